"""The attention viewer in a headless Chromium, on the embedded server: what it shows is what the model computes."""

import csv
import http.server
import json
import shutil
import subprocess
import threading
import time
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import headless_browser
import numpy as np
import pytest
from serving_export_subject import HEADS, LAYERS, VOCABULARY, make, tokenizer

from keras_posenc.analysis import Runner
from keras_posenc.models import heads
from serving.exporting import export_model
from serving.server.embedded import EmbeddedServer
from serving.server.options import Options

TEXT, PAIR = "hello the world", "naive cafe"
MODEL = "config {{ name: '{name}' base_path: '{path}' model_platform: 'tensorflow' }}"
LIGHT = {"zero": (255, 255, 255), "above": (8, 69, 148), "below": (179, 72, 0)}
in_browser = pytest.mark.skipif(headless_browser.find() is None, reason="there is no Chromium on the PATH")


@pytest.fixture(scope="module")
def model():
    return make("diet_rel", lambda backbone: heads.Classifier(backbone, 3), max_length=40)


@pytest.fixture(scope="module")
def server(model, tmp_path_factory):
    """Model "m" gives a layer at a time, from texts; "ids" all layers at once, from ids, and raw attention only."""
    folder = tmp_path_factory.mktemp("viewer")
    export_model(model, folder / "m", tokenizer(), warmup_lengths=(), signatures=["text", "layer_attention"])
    export_model(model, folder / "ids", warmup_lengths=(), signatures=["attention"])
    config = folder / "models.config"
    models = "".join(MODEL.format(name=name, path=folder / name) for name in ("m", "ids"))
    config.write_text(f"model_config_list {{ {models} }}")
    options = Options(
        port=None,
        rest_api_port=0,
        model_config_file=str(config),
        rest_api_enable_cors_support=True,
        rest_api_timeout_in_ms=120_000,
        stop_grace_seconds=1,
    )
    with EmbeddedServer(options) as running:
        yield running


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    found = headless_browser.Browser(tmp_path_factory.mktemp("chromium"))
    yield found
    found.close()


@pytest.fixture
def page(browser, server):
    """Opens the viewer with a state; afterwards no script may have failed, nor asked for what the policy forbids."""
    browser.resize(1280, 900)
    browser.complaints.clear()

    def show(base=f"http://localhost:{server.rest_port}/viewer/", **state):
        browser.open(f"{base}#{urlencode(state)}")
        browser.until("!document.body.hasAttribute('aria-busy')")
        return browser

    yield show
    assert browser.complaints == []


@pytest.fixture(scope="module")
def expected(model):
    """Tokens, logits and maps of the pair of texts, from the model in Python."""
    inputs = tokenizer().encode([(TEXT, PAIR)], 40)
    assert inputs["padding_mask"].all()
    maps = Runner(model)(inputs)
    raw, effective = np.asarray(maps.attention)[0], np.asarray(maps.effective)[0]
    return {
        "ids": inputs["token_ids"][0].tolist(),
        "segments": inputs["segment_ids"][0].tolist(),
        "tokens": [VOCABULARY[i] for i in inputs["token_ids"][0]],
        "logits": np.asarray(model(inputs)["logits"])[0],
        "raw": raw,
        "effective": effective,
        "null": raw - effective,
    }


def texts(browser, selector):
    return browser.run(f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.textContent)")


def numbers(browser, selector):
    return np.array([float(text.replace("\u2212", "-")) for text in texts(browser, selector)])


def shown(browser):
    """All that a view consists of: texts, and the pixels of its canvases."""
    pixels = "[...document.querySelectorAll('.pane:not([hidden]) canvas')].map((c) => c.toDataURL())"
    return [texts(browser, f"#{part}") for part in ("title", "logits", "tokens", "looks", "facts")], browser.run(pixels)


def state_of(browser):
    return {name: found[0] for name, found in parse_qs(urlsplit(browser.run("location.href")).fragment).items()}


@in_browser
def test_tokens_logits_and_weights_are_the_models(page, expected):
    effective = expected["effective"]
    layer, head, query, _ = (int(i) for i in np.unravel_index(effective.argmin(), effective.shape))
    place = dict(layer=layer + 1, head=head + 1, token=query + 1, kind="effective")
    browser = page(model="m", text=TEXT, pair=PAIR, labels="no,maybe,yes", **place)
    assert texts(browser, "#title") == [f"Effective, layer {layer + 1}, head {head + 1}"]
    assert texts(browser, "#tokens button") == expected["tokens"]
    assert texts(browser, "#logits .name") == ["no", "maybe", "yes"]
    np.testing.assert_allclose(numbers(browser, "#logits .value"), expected["logits"], atol=6e-5)
    row = effective[layer, head, query]
    assert row.min() < 0  # effective weights may be negative, and are shown so
    order = np.argsort(-np.abs(row), kind="stable")[:8]
    named = [f"{i + 1} {expected['tokens'][i]}" for i in order]
    assert texts(browser, "#looks .name") == named
    np.testing.assert_allclose(numbers(browser, "#looks .value"), row[order], atol=6e-5)


@in_browser
def test_colours_and_hovered_values(page, expected):
    """The colour of a cell is its share of the largest weight, and the pointer reads its three values."""
    browser = page(model="m", text=TEXT, pair=PAIR, layer=1, head=2, theme="light", zoom=-2)
    for kind in ("effective", "null", "raw"):
        browser.key(kind[0])
        assert texts(browser, "#title") == [f"{kind.capitalize()}, layer 1, head 2"]
        check_cells(browser, expected, kind)


def check_cells(browser, expected, kind):
    values = expected[kind][0, 1]
    place = browser.run("viewer.view.panes[0].place")
    assert place["cell"] < 30  # no numbers are written into the cells
    box = browser.run("viewer.view.panes[0].canvas.getBoundingClientRect().toJSON()")
    for query, key in [(0, 0), (3, 5), (len(values) - 1, 2)]:
        x, y = (place[side] + (at + 0.5) * place["cell"] for side, at in (("left", key), ("top", query)))
        pixel = browser.run(f"[...viewer.view.panes[0].canvas.getContext('2d').getImageData({x}, {y}, 1, 1).data]")
        share = values[query, key] / np.abs(values).max()
        end = LIGHT["above" if share > 0 else "below"]
        colour = [zero + (other - zero) * abs(share) for zero, other in zip(LIGHT["zero"], end)]
        np.testing.assert_allclose(pixel[:3], colour, atol=1)
        browser.move(box["x"] + x, box["y"] + y)
        lines = browser.until("[...document.querySelectorAll('#tip:not([hidden]) div')].map((e) => e.textContent)")
        tokens = expected["tokens"]
        assert lines[0] == f"{query + 1} \u201c{tokens[query]}\u201d \u2192 {key + 1} \u201c{tokens[key]}\u201d"
        for name, line in zip(("raw", "effective", "null"), lines[1:], strict=True):
            assert line.startswith(f"{name} ")
            found = float(line.removeprefix(f"{name} ").replace("\u2212", "-"))
            np.testing.assert_allclose(found, expected[name][0, 1, query, key], atol=6e-5)
        browser.move(1, 1)


@in_browser
def test_all_heads_load_as_they_are_seen(page, expected):
    browser = page(model="m", text=TEXT, pair=PAIR, mode="grid", kind="effective")
    browser.until(f"document.querySelectorAll('.head').length === {LAYERS * HEADS}")
    label = browser.run("document.querySelectorAll('.head')[3].getAttribute('aria-label')")
    low, high = (float(word.replace("\u2212", "-")) for word in label.split("from ")[1].split(" to "))
    values = expected["effective"][1, 1]
    np.testing.assert_allclose([low, high], [values.min(), values.max()], atol=6e-5)
    browser.run("document.querySelectorAll('.head')[3].click()")
    assert browser.until("document.getElementById('title').textContent") == "Effective, layer 2, head 2"


@in_browser
def test_a_link_reproduces_the_view(page):
    """Text is typed, keys are pressed; the address that then stands there shows the same, to the pixel."""
    browser = page(model="m")
    browser.run("document.getElementById('text').focus()")
    browser.call("Input.insertText", text="hello & the #world = 100% +x")
    browser.key("Enter")
    browser.until("document.querySelectorAll('#tokens button').length > 0")
    browser.run("document.activeElement.blur()")
    for key in ("ArrowDown", "ArrowRight", "e", "+", "t"):
        browser.key(key)
        browser.until("!document.body.hasAttribute('aria-busy')")
    browser.run("document.querySelectorAll('#tokens button')[2].click()")
    browser.run("document.getElementById('curve').value = 'root'")
    browser.run("document.getElementById('curve').dispatchEvent(new Event('change'))")
    for mode in ("heatmap", "lines", "difference"):
        browser.key(mode[0])
        browser.until("!document.body.hasAttribute('aria-busy')")
        state, before, address = state_of(browser), shown(browser), browser.run("location.href")
        assert state["text"] == "hello & the #world = 100% +x"
        given = {name: state.get(name) for name in ("layer", "head", "kind", "zoom", "theme", "token", "curve")}
        assert given == dict(layer="2", head="2", kind="effective", zoom="1", theme="light", token="3", curve="root")
        assert state.get("mode", "heatmap") == mode
        browser.open(address)
        browser.until("!document.body.hasAttribute('aria-busy')")
        assert shown(browser) == before
        assert state_of(browser) == state


@in_browser
def test_files(page, expected, tmp_path):
    browser = page(model="m", text=TEXT, pair=PAIR, layer=2, head=2, mode="difference", withLayer=1, withKind="raw")
    browser.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    for kind in ("csv", "svg", "png"):
        browser.run(f"document.querySelector('#save button[value={kind}]').click()")
        end = time.monotonic() + 30
        while not list(tmp_path.glob(f"*.{kind}")):
            assert time.monotonic() < end, f"no {kind} came"
            time.sleep(0.05)
    rows = list(csv.reader(next(tmp_path.glob("*.csv")).open(encoding="utf-8", newline="")))
    size = len(expected["tokens"])
    assert rows[0][4:] == [f"{i + 1}:{token}" for i, token in enumerate(expected["tokens"])]
    found = np.array([row[4:] for row in rows[1:]], "float64").reshape(3, size, size)
    a, b = expected["raw"][1, 1], expected["raw"][0, 0]
    np.testing.assert_allclose(found, [a, b, a - b], atol=1e-5)
    svg = next(tmp_path.glob("*.svg")).read_text(encoding="utf-8")
    assert svg.count("<rect") > 3 * size * size and svg.count(">cafe<") == 6
    assert next(tmp_path.glob("*.png")).read_bytes().startswith(b"\x89PNG")


@in_browser
def test_text_is_shown_as_text(page):
    evil = "<img src=x onerror=alert(1)>"
    browser = page(model="m", text=evil, pair=f"</textarea>{evil}", labels=f"{evil},b,c")
    assert browser.run("document.getElementById('text').value") == evil
    assert "".join(texts(browser, "#tokens button")).count("<") == 3
    assert texts(browser, "#logits .name")[0] == evil
    browser = page(model=evil, text=evil)
    assert evil in texts(browser, "#error")[0]
    assert browser.run("document.images.length + document.querySelectorAll('[onerror]').length") == 0


class Liar(http.server.BaseHTTPRequestHandler):
    """A server that means harm: markup wherever a text can stand, and numbers that are no JSON."""

    evil = '"><img src=x onerror="document.title=1">'

    def answer(self, body, status=200):
        self.send_response(status)
        self.send_header("access-control-allow-origin", "*")
        self.end_headers()
        self.wfile.write(body.encode())

    def do_GET(self):
        if not self.path.endswith("/metadata"):
            return self.answer('{"model_version_status": [{"version": "7", "state": "AVAILABLE"}]}')
        shape = {"tensor_shape": {"dim": [{"size": size} for size in ("-1", "2", "1", "-1", "-1")]}}
        signatures = {"text": {}, "layer_attention": {}, "attention": {"outputs": {"attention": shape}}}
        return self.answer(json.dumps({"metadata": {"signature_def": {"signature_def": signatures}}}))

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if request["signature_name"] == "text":
            given = {"token_ids": [[1, 2]], "segment_ids": [[0, 0]], "padding_mask": [[1, 1]]}
            answer = json.dumps({"outputs": {**given, "tokens": [[self.evil, "NaN"]], "logits": [["n", "p"]]}})
            return self.answer(answer.replace('"n"', "NaN").replace('"p"', "-Infinity"))
        if request["inputs"]["layer"] != [0]:
            return self.answer(json.dumps({"error": self.evil}), 400)
        maps = "[[[[NaN, 1.5], [-Infinity, 0.25]]]]"
        return self.answer(f'{{"outputs": {{"attention": {maps}, "effective_attention": {maps}}}}}')

    def log_message(self, *_):
        pass


@in_browser
def test_answers_are_shown_as_text_too(page):
    with http.server.ThreadingHTTPServer(("localhost", 0), Liar) as liar:
        threading.Thread(target=liar.serve_forever, daemon=True).start()
        address = f"http://localhost:{liar.server_port}"
        browser = page(server=address, model="x", text="y", token=1)
        assert texts(browser, "#tokens button") == [Liar.evil, "NaN"]
        assert texts(browser, "#logits .value") == ["NaN", "-Infinity"]
        assert "NaN" in texts(browser, "#looks .value")
        assert "2 values are NaN or infinite" in texts(browser, ".legend-words")[0]
        browser = page(server=address, model="x", text="y", layer=2)
        assert Liar.evil in texts(browser, "#error")[0]
        assert browser.run("document.title") == "Attention viewer"
        assert browser.run("document.images.length") == 0
        liar.shutdown()


@in_browser
def test_token_ids_where_there_is_no_tokenizer(page, expected):
    ids, segments = (" ".join(map(str, expected[name])) for name in ("ids", "segments"))
    browser = page(model="ids", text="words")
    assert not browser.run("document.getElementById('id-fields').hidden")
    assert "no token ids" in texts(browser, "#error")[0]
    browser = page(model="ids", ids=ids, segments=segments, layer=9, token=2, kind="null")
    assert texts(browser, "#title") == [f"Raw, layer {LAYERS}, head 1"]  # the last layer, and the only kind there is
    assert texts(browser, "#kind button:disabled") == ["Effective", "Null"]
    np.testing.assert_allclose(numbers(browser, "#logits .value"), expected["logits"], atol=6e-5)
    row = np.sort(np.abs(expected["raw"][LAYERS - 1, 0, 1]))[::-1]
    np.testing.assert_allclose(numbers(browser, "#looks .value"), row[:8], atol=6e-5)


WRONG = [
    (dict(model="m", text="a", server="http://localhost:9"), "cannot be reached"),
    (dict(model="m", text="a", server="ftp://x"), "not a server address"),
    (dict(model="nothing", text="a"), 'no model "nothing"'),
    (dict(model="m", text="a", version="99"), "no version 99"),
    (dict(model="ids", ids="1 two"), '"two" in the token ids is not a whole number'),
    (dict(model="ids", ids="1 2", segments="0"), "1 segment ids for 2 token ids"),
    (dict(model="ids", ids="1 " * 41), "At most 40 tokens"),
    (dict(model="ids", ids="123456"), "token_ids must be from 0 to"),
]


@in_browser
def test_errors_say_what_is_wrong(page):
    for state, message in WRONG:
        browser = page(**state)
        assert message in texts(browser, "#error")[0], state
        assert not browser.run("document.getElementById('error').hidden")
        assert browser.run("document.getElementById('result').hidden")


@in_browser
def test_from_a_file(page, server, expected):
    """The page needs no server of its own, only one that allows other origins."""
    file = Path(__file__).parents[2] / "serving" / "viewer" / "index.html"
    address = f"http://localhost:{server.rest_port}"
    browser = page(file.as_uri(), server=address, model="m", text=TEXT, pair=PAIR, mode="lines")
    assert texts(browser, "#tokens button") == expected["tokens"]


@in_browser
@pytest.mark.parametrize("width", [400, 1280])
def test_everything_fits_and_has_a_name(page, browser, width):
    browser.resize(width, 900)
    page(model="m", text="hello the world " * 6)
    for key in "hlgd":
        browser.key(key)
        assert browser.run("document.documentElement.scrollWidth <= innerWidth"), key
        seen = "[...document.querySelectorAll('button, input, select, textarea')].filter((e) => e.offsetParent)"
        nameless = f"{seen}.filter((e) => !(e.labels?.length || e.textContent.trim() || e.ariaLabel))"
        assert browser.run(f"{nameless}.map((e) => e.outerHTML)") == [], key


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node on the PATH")
def test_functions_that_need_no_browser():
    file = Path(__file__).parent / "viewer_units.test.js"
    done = subprocess.run(["node", "--test", str(file)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
