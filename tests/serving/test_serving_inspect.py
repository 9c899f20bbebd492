"""What `serving.inspect` says about our exports, and about any other SavedModel."""

import json

import pytest
import tensorflow as tf
from absl import flags
from serving_export_subject import LAYERS, make, tokenizer

from serving import inspect
from serving.exporting import export_model, folder, reading

pytestmark = pytest.mark.integration


def ask(*arguments):
    values = flags.FlagValues()
    inspect.define(values)
    return inspect.run(values, values(["inspect", *map(str, arguments)])[1:])


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    base = tmp_path_factory.mktemp("inspected") / "m"
    model = make("learned+diet_abs", position_options={"rank": 3})
    for options in ({}, {"tokenizer": tokenizer(), "warmup_lengths": (3, 5), "warmup_batches": (1, 2, 4)}):
        export_model(model, base, signatures=["text"] if options else (), **options)
    return base


def test_our_own(base, capsys):
    found = ask(base)
    text = capsys.readouterr().out
    assert found["version"] == 2 and found["other_versions"] == [1]
    assert "Positions: learned+diet_abs (rank=3) through bias, embed, sharing none, folded at 12" in text
    assert found["warmup"] == {"predict serving_default": 6, "predict text": 6}
    assert found["custom_ops"] == ["WordpieceTokenizeWithOffsets"]
    assert "-> tokens: string (?, ?)" in text and "<- token_ids: int32 (?, ?)" in text
    assert found["model"]["num_layers"] == LAYERS and found["model"]["position_options"] == {"rank": 3}
    files = [file for file in (base / "2").rglob("*") if file.is_file()]
    assert found["bytes"]["all"] == sum(file.stat().st_size for file in files)


def test_json_is_the_same(base, capsys):
    found = ask("--json", base / "1")
    assert json.loads(capsys.readouterr().out) == found
    assert found["version"] == 1 and found["warmup"] == {"predict serving_default": 1} and not found["custom_ops"]


def test_any_saved_model(tmp_path, capsys):
    class Doubling(tf.Module):
        def __init__(self):
            super().__init__()
            self.factor = tf.Variable(2.0, name="factor")
            self.large = tf.constant(tf.random.normal((64, 5)))

        @tf.function(input_signature=[tf.TensorSpec((None, 64), tf.float32, name="x")])
        def __call__(self, x):
            return {"y": self.factor * x @ self.large.numpy()}

    module = Doubling()
    tf.saved_model.save(module, str(tmp_path / "doubling"), signatures=module.__call__)
    found = ask(tmp_path / "doubling")
    assert found["model"] is None and found["warmup"] is None and found["version"] is None
    assert found["signatures"]["serving_default"]["outputs"] == {"y": {"dtype": "float32", "shape": [-1, 5]}}
    assert found["variables"] == found["parameters"] == 1 and found["largest_variables"][0]["name"] == "factor"
    assert found["largest_constants"][0]["shape"] == [64, 5]
    assert "No warm-up requests" in capsys.readouterr().out


def test_folders_that_are_no_models(base, tmp_path):
    with pytest.raises(FileNotFoundError, match="no SavedModel"):
        ask(tmp_path)
    with pytest.raises(ValueError, match="Name one folder"):
        ask()
    (tmp_path / "saved_model.pb").write_bytes(b"\xff" * 20)
    with pytest.raises(ValueError, match="damaged|no graph"):
        ask(tmp_path)
    # A damaged description or warm-up file is no reason to say nothing.
    broken = tmp_path / "copy"
    tf.io.gfile.makedirs(str(broken / "assets.extra"))
    (broken / "saved_model.pb").write_bytes((base / "1" / "saved_model.pb").read_bytes())
    (broken / "assets.extra" / "keras_posenc.json").write_text("{")
    (broken / "assets.extra" / "tf_serving_warmup_requests").write_bytes(b"no record" * 10)
    found = reading.inspect(broken)
    assert found["model"] is None and "error" in found["warmup"] and found["variables"] == 0
    assert reading.report(found) and folder.newest(broken) == broken
