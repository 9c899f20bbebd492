"""Our own folders: what is saved is what is loaded, whole or not at all."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_posenc
from keras_posenc import checkpoints
from keras_posenc.models import Bert, Classifier, MaskedLM, SpanPredictor, TokenClassifier
from keras_posenc.models.encoder_decoder import EncoderDecoder

VOCAB = 30


def encoder(position="learned", **options):
    model = Bert(VOCAB, 2, 2, 8, 12, max_length=10, position=position, **options)
    model.build()
    return randomized(model)


def randomized(model):
    rng = np.random.default_rng(5)
    for weight in model.weights:
        weight.assign(rng.normal(size=weight.shape) * 0.4)
    return model


def inputs(rng):
    mask = np.ones((2, 7), "int32")
    mask[1, 5:] = 0
    return {
        "token_ids": rng.integers(0, VOCAB, (2, 7), dtype="int32"),
        "segment_ids": np.sort(rng.integers(0, 2, (2, 7), dtype="int32"), axis=1),
        "padding_mask": mask,
    }


def same(ours, theirs):
    assert set(ours) == set(theirs)
    for name in ours:
        np.testing.assert_array_equal(
            keras.ops.convert_to_numpy(ours[name]), keras.ops.convert_to_numpy(theirs[name]), err_msg=name
        )


@pytest.mark.parametrize(
    "options",
    [
        dict(),
        dict(position="diet_abs", position_options={"rank": 3}, sharing="layer", segments="per_head"),
        dict(position="learned+tisa"),
        dict(position="tupe_rel", sharing="layer"),
        dict(position="rotary", pooler=False, segments="none"),
        dict(position="diet_rel", tie_layers=True, embedding_dim=6, activation="gelu_tanh", epsilon=1e-5),
        dict(position="diet_abs_lin", num_keys=3),
    ],
    ids=lambda options: options.get("position", "learned"),
)
def test_encoders(options, tmp_path, rng):
    model, given = encoder(**options), inputs(rng)
    checkpoints.save(model, tmp_path / "m")
    found = checkpoints.load(tmp_path / "m")
    assert found.source == "keras_posenc" and found.tokenizer is None and found.fresh == ()
    assert found.model.get_config() == model.get_config()
    same(found.model(given), model(given))
    checkpoints.save(found.model, tmp_path / "again")
    same(checkpoints.load(tmp_path / "again").model(given), model(given))


@pytest.mark.parametrize(
    "head,task",
    [
        (MaskedLM, "masked_lm"),
        (lambda b: Classifier(b, 3), "classify"),
        (lambda b: Classifier(b, 1), "regress"),
        (SpanPredictor, "span"),
        (lambda b: TokenClassifier(b, 4), "token_classify"),
    ],
    ids=["masked_lm", "classify", "regress", "span", "token_classify"],
)
def test_heads(head, task, tmp_path, rng):
    model, given = head(encoder("diet_rel")), inputs(rng)
    model.build()
    randomized(model)
    checkpoints.save(model, tmp_path / "m")
    config = json.loads((tmp_path / "m" / "keras_posenc.json").read_text())
    assert config["task"] == task and config["library_version"] == keras_posenc.__version__
    for asked in (None, task):
        found = checkpoints.load(tmp_path / "m", asked)
        assert type(found.model) is type(model) and found.fresh == ()
        same(found.model(given), model(given))
    same(checkpoints.load(tmp_path / "m", "backbone").model(given), model.backbone(given))


def test_encoder_decoder(tmp_path, rng):
    model = randomized(EncoderDecoder(VOCAB, 2, 2, 8, 12, max_length=10, position="sinusoidal+diet_rel"))
    checkpoints.save(model, tmp_path / "m")
    found = checkpoints.load(tmp_path / "m")
    given = {
        "token_ids": rng.integers(1, VOCAB, (2, 6), dtype="int32"),
        "target_ids": rng.integers(1, VOCAB, (2, 5), dtype="int32"),
    }
    same(found.model(given), model(given))
    with pytest.raises(ValueError, match="no task heads"):
        checkpoints.load(tmp_path / "m", "classify", num_classes=2)


def test_a_new_head_on_a_saved_model(tmp_path, rng):
    model, given = MaskedLM(encoder()), inputs(rng)
    model.build()
    checkpoints.save(model, tmp_path / "m")
    with pytest.warns(UserWarning, match="2 weights are fresh"):
        found = checkpoints.load(tmp_path / "m", "classify", num_classes=5, dropout=0.3)
    assert found.model(given)["logits"].shape == (2, 5) and len(found.fresh) == 2
    assert found.model.backbone.encoder.dropout == found.model.dropout == 0.3
    same(found.model.backbone(given), model.backbone(given))


def test_overrides(tmp_path, rng):
    model, given = encoder(), inputs(rng)
    checkpoints.save(model, tmp_path / "m")
    found = checkpoints.load(tmp_path / "m", dtype="mixed_bfloat16", extrapolate="clip").model
    assert found.compute_dtype == "bfloat16" and found.encoder.extrapolate == "clip"
    assert found(given)["sequence_output"].dtype == "bfloat16"


@pytest.mark.parametrize("task", [None, "classify"])
def test_another_number_of_classes_is_a_fresh_head(task, tmp_path, rng):
    model, given = Classifier(encoder(), 3), inputs(rng)
    model.build()
    checkpoints.save(randomized(model), tmp_path / "m")
    same(checkpoints.load(tmp_path / "m", task, num_classes=3).model(given), model(given))
    with pytest.warns(UserWarning, match="2 weights are fresh"):
        found = checkpoints.load(tmp_path / "m", task, num_classes=5).model
    assert found(given)["logits"].shape == (2, 5)
    same(found.backbone(given), model.backbone(given))


def test_the_dropout_of_a_stored_head(tmp_path):
    model = Classifier(encoder(), 3, dropout=0.5)
    model.build()
    checkpoints.save(model, tmp_path / "m")
    with pytest.warns(UserWarning, match="fresh"):
        assert checkpoints.load(tmp_path / "m", num_classes=5).model.dropout == 0.5
    found = checkpoints.load(tmp_path / "m", dropout=0.3).model
    assert found.dropout == found.backbone.encoder.dropout == 0.3


@pytest.mark.parametrize(
    ("head", "task", "message"),
    [
        (lambda b: b, None, "goes with a task"),
        (MaskedLM, None, "'masked_lm' takes no `num_classes`"),
        (lambda b: Classifier(b, 1), None, "'regress' takes no `num_classes`"),
        (lambda b: Classifier(b, 3), "backbone", "goes with a task"),
    ],
)
def test_classes_of_what_has_none(head, task, message, tmp_path):
    model = head(encoder())
    model.build()
    checkpoints.save(model, tmp_path / "m")
    with pytest.raises(ValueError, match=message):
        checkpoints.load(tmp_path / "m", task, num_classes=4)


@pytest.mark.parametrize("options", [dict(), dict(tie_layers=True), dict(sharing="layer")], ids=str)
def test_other_positions_in_trained_layers(options, tmp_path, rng):
    """As from Hugging Face: `"learned+tisa"` adds TISA to what is stored, `"tisa"` takes its place; zeros are none."""
    model, given = MaskedLM(encoder(**options)), inputs(rng)
    model.build()
    checkpoints.save(randomized(model), tmp_path / "m")
    found = {}
    for position in ("learned+tisa", "tisa"):
        with pytest.warns(UserWarning, match="fresh"):
            found[position] = checkpoints.load(tmp_path / "m", position=position)
        assert len(found[position].fresh) == 3 * (1 if options.get("sharing") else 2)
        assert all("/tisa/" in path for path in found[position].fresh)
        for weight in found[position].model.weights:
            if "/tisa/" in weight.path:
                weight.assign(np.zeros(weight.shape))
    same(found["learned+tisa"].model(given), model(given))
    model.backbone.encoder.input_positions[0].table.assign(np.zeros((10, 8)))
    same(found["tisa"].model(given), model(given))


def test_stored_positions_among_others_keep_their_options_and_weights(tmp_path):
    model = encoder("diet_abs", position_options={"rank": 3}, segments="none")
    checkpoints.save(model, tmp_path / "m")
    with pytest.warns(UserWarning, match="1 weights are fresh"):
        found = checkpoints.load(tmp_path / "m", position="learned+diet_abs").model
    ours, theirs = (m.encoder.blocks[1].attention.position.weights[0] for m in (found, model))
    np.testing.assert_array_equal(ours, theirs)
    with pytest.warns(UserWarning, match="fresh.*segment_embedding"):
        checkpoints.load(tmp_path / "m", segments="input", position="none")
    assert checkpoints.load(tmp_path / "m", position="diet_abs", position_options={"rank": 3}).fresh == ()


def test_a_table_with_another_meaning_is_fresh(tmp_path):
    """Buckets of distances to both sides are not those of distances to one."""
    checkpoints.save(encoder("t5"), tmp_path / "m")
    with pytest.warns(UserWarning, match="2 weights are fresh.*t5"):
        checkpoints.load(tmp_path / "m", position_options={"bidirectional": False})
    checkpoints.save(encoder("diet_rel"), tmp_path / "n")
    assert checkpoints.load(tmp_path / "n", extrapolate="clip").fresh == ()


def test_sizes_cannot_be_changed(tmp_path):
    checkpoints.save(encoder(), tmp_path / "m")
    with pytest.raises(ValueError, match=r"sizes of .* Received: max_length, num_heads. .*extrapolate='clip'"):
        checkpoints.load(tmp_path / "m", max_length=20, num_heads=4)
    checkpoints.save(encoder("tisa"), tmp_path / "n")
    with pytest.raises(ValueError, match="extend_length"):
        checkpoints.load(tmp_path / "n", max_length=20)
    assert checkpoints.load(tmp_path / "m", max_length=10).fresh == ()


def test_with_a_tokenizer(tmp_path):
    pytest.importorskip("keras_hub")
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "The", "dog", "##s"]
    tokenizer = checkpoints.tokenizer.WordPiece(vocabulary, lowercase=False)
    checkpoints.save(encoder(), tmp_path / "m", tokenizer)
    found = checkpoints.load(tmp_path / "m").tokenizer
    assert found.tokens(found.encode("The dogs")["token_ids"]) == ["[CLS]", "The", "dog", "##s", "[SEP]"]


def test_a_folded_model_is_saved_by_its_weights(tmp_path, rng):
    model, given = encoder("diet_abs"), inputs(rng)
    expected = model(given)
    model.fold_positions(10)
    checkpoints.save(model, tmp_path / "m")
    same(checkpoints.load(tmp_path / "m").model(given), expected)


def test_a_compiled_model_is_saved_without_its_training(tmp_path, rng):
    """The loss is nothing that a reader of the folder could import."""

    def loss(true, predicted):
        return keras.ops.mean(predicted)

    model, given = MaskedLM(encoder()), inputs(rng)
    model.build()
    model.compile("adam", loss={"logits": loss})
    checkpoints.save(model, tmp_path / "m")
    assert "adam" not in (tmp_path / "m" / "keras_posenc.json").read_text()
    found = checkpoints.load(tmp_path / "m").model
    assert not found.compiled
    same(found(given), model(given))


def test_nothing_is_overwritten_unless_asked(tmp_path, rng):
    first, second, given = encoder(), encoder("tisa"), inputs(rng)
    checkpoints.save(first, tmp_path / "m")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        checkpoints.save(second, tmp_path / "m")
    same(checkpoints.load(tmp_path / "m").model(given), first(given))
    (tmp_path / "m" / "old.txt").write_text("of the old folder")
    checkpoints.save(second, tmp_path / "m", overwrite=True)
    same(checkpoints.load(tmp_path / "m").model(given), second(given))
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == ["keras_posenc.json", "model.weights.h5"]
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_other_folders_are_never_replaced(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "text.tex").write_text("x")
    with pytest.raises(FileExistsError, match="not written by `save`"):
        checkpoints.save(encoder(), tmp_path / "thesis", overwrite=True)
    assert (tmp_path / "thesis" / "text.tex").read_text() == "x"


class Broken:
    """A tokenizer whose files cannot be written."""

    def save(self, folder):
        raise OSError("disk full")


def test_a_save_that_fails_leaves_nothing(tmp_path, rng):
    with pytest.raises(OSError, match="disk full"):
        checkpoints.save(encoder(), tmp_path / "m", Broken())
    assert list(tmp_path.iterdir()) == []
    model, given = encoder(), inputs(rng)
    checkpoints.save(model, tmp_path / "m")
    with pytest.raises(OSError, match="disk full"):
        checkpoints.save(encoder("tisa"), tmp_path / "m", Broken(), overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    same(checkpoints.load(tmp_path / "m").model(given), model(given))


def test_folders_behind_a_uri(rng):
    """In TensorFlow's file system in memory, as on `gs://`."""
    uri, given = "ram://own_folder/model", inputs(rng)
    model, other = encoder("tisa"), encoder("alibi")
    checkpoints.save(model, uri)
    same(checkpoints.load(uri).model(given), model(given))
    with pytest.raises(FileExistsError, match="overwrite=True"):
        checkpoints.save(other, uri)
    checkpoints.save(other, uri, overwrite=True)
    same(checkpoints.load(f"{uri}/").model(given), other(given))
    # As a kill leaves it while it is written: no checkpoint, but one that `save` may write again.
    with tf.io.gfile.GFile(f"{uri}/keras_posenc.partial", "w") as stream:
        stream.write("")
    tf.io.gfile.remove(f"{uri}/keras_posenc.json")
    with pytest.raises(ValueError, match="no checkpoint"):
        checkpoints.load(uri)
    checkpoints.save(model, uri, overwrite=True)
    same(checkpoints.load(uri).model(given), model(given))
    assert not tf.io.gfile.exists(f"{uri}/keras_posenc.partial")
    tf.io.gfile.remove(f"{uri}/keras_posenc.json")
    with pytest.raises(FileExistsError, match="not written by `save`"):
        checkpoints.save(model, uri, overwrite=True)
    with pytest.raises(FileNotFoundError, match="ram://own_folder/other"):
        checkpoints.load("ram://own_folder/other")


def test_what_cannot_be_saved(tmp_path):
    with pytest.raises(ValueError, match="Received: Sequential"):
        checkpoints.save(keras.Sequential(), tmp_path / "m")
    with pytest.raises(ValueError, match="no weights yet"):
        checkpoints.save(Bert(VOCAB, 1, 2, 8, 12), tmp_path / "m")


def test_damaged_folders(tmp_path):
    checkpoints.save(encoder(), tmp_path / "m")
    config, weights = tmp_path / "m" / "keras_posenc.json", tmp_path / "m" / "model.weights.h5"
    whole = config.read_text()
    for change, message in (
        (lambda c: {**c, "format": 99}, "format 99"),
        (lambda c: {**c, "model": {**c["model"], "registered_name": "Custom>Mine"}}, "Custom>Mine"),
        (lambda c: {k: v for k, v in c.items() if k != "model"}, "damaged"),
    ):
        config.write_text(json.dumps(change(json.loads(whole))))
        with pytest.raises(ValueError, match=message):
            checkpoints.load(tmp_path / "m")
    config.write_text(whole)
    weights.write_bytes(weights.read_bytes()[:500])
    with pytest.raises(ValueError, match="model.weights.h5' cannot be read"):
        checkpoints.load(tmp_path / "m")
    weights.unlink()
    with pytest.raises(FileNotFoundError, match="model.weights.h5"):
        checkpoints.load(tmp_path / "m")
