"""Models read from Hugging Face files compute what transformers computes."""

import json
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_posenc import checkpoints
from keras_posenc.models import Bert, Classifier, MaskedLM, SpanPredictor, TokenClassifier

pytest.importorskip("transformers")
torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

import tiny_hf  # noqa: E402

KINDS = ("bert", "albert")


def close(ours, theirs):
    np.testing.assert_allclose(keras.ops.convert_to_numpy(ours), theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("how", ["safetensors", "sharded", "bin"])
@pytest.mark.parametrize("kind", KINDS)
def test_hidden_states_of_every_layer(kind, how, tmp_path, rng):
    theirs = tiny_hf.model(kind)
    checkpoint = checkpoints.load(tiny_hf.save(theirs, tmp_path / kind, how))
    assert (tmp_path / kind / "model.safetensors").exists() == (how == "safetensors")
    given = tiny_hf.inputs(rng)
    expected = tiny_hf.answer(theirs, given)
    found = checkpoint.model(given, return_intermediates=True)
    assert isinstance(checkpoint.model, Bert) and checkpoint.source == "huggingface" and checkpoint.fresh == ()
    assert checkpoint.config["model_type"] == kind
    assert len(found["hidden_states"]) == len(expected["hidden_states"]) == tiny_hf.LAYERS + 1
    for ours, other in zip(found["hidden_states"], expected["hidden_states"]):
        close(ours, other)
    close(found["pooled_output"], expected["pooler_output"])


@pytest.mark.parametrize("task", ["ForMaskedLM", "ForPreTraining"])
@pytest.mark.parametrize("kind", KINDS)
def test_masked_lm_logits(kind, task, tmp_path, rng):
    theirs = tiny_hf.model(kind, task)
    model = checkpoints.load(tiny_hf.save(theirs, tmp_path / "m")).model
    given = tiny_hf.inputs(rng)
    expected = tiny_hf.answer(theirs, given)
    assert isinstance(model, MaskedLM)
    assert (model.backbone.pooler is not None) == (task == "ForPreTraining")
    close(model(given)["logits"], expected["logits" if task == "ForMaskedLM" else "prediction_logits"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "task,cls", [("ForSequenceClassification", Classifier), ("ForTokenClassification", TokenClassifier)]
)
def test_classifiers(kind, task, cls, tmp_path, rng):
    theirs = tiny_hf.model(kind, task, num_labels=5)
    model = checkpoints.load(tiny_hf.save(theirs, tmp_path / "m")).model
    given = tiny_hf.inputs(rng)
    assert isinstance(model, cls) and model.num_classes == 5
    close(model(given)["logits"], tiny_hf.answer(theirs, given)["logits"])


@pytest.mark.parametrize("kind", KINDS)
def test_question_answering(kind, tmp_path, rng):
    theirs = tiny_hf.model(kind, "ForQuestionAnswering")
    model = checkpoints.load(tiny_hf.save(theirs, tmp_path / "m")).model
    given = tiny_hf.inputs(rng)
    expected, found, real = tiny_hf.answer(theirs, given), model(given), given["padding_mask"] == 1
    assert isinstance(model, SpanPredictor)
    for name in ("start_logits", "end_logits"):
        close(keras.ops.convert_to_numpy(found[name])[real], expected[name][real])


def test_regression_is_a_classifier_of_one(tmp_path, rng):
    theirs = tiny_hf.model("bert", "ForSequenceClassification", num_labels=1)
    folder, given = tiny_hf.save(theirs, tmp_path / "m"), tiny_hf.inputs(rng)
    for task in (None, "regress"):
        checkpoint = checkpoints.load(folder, task)
        assert checkpoint.fresh == ()
        close(checkpoint.model(given)["logits"], tiny_hf.answer(theirs, given)["logits"])


@pytest.mark.parametrize(
    "options",
    [
        {"hidden_act": "relu"},
        {"hidden_act": "gelu"},
        {"hidden_act": "gelu_new"},
        {"hidden_act": "gelu_pytorch_tanh"},
        {"hidden_act": "silu"},
        {"layer_norm_eps": 0.1},
        {"type_vocab_size": 1},
        {"type_vocab_size": 4},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", KINDS)
def test_variants(kind, options, tmp_path, rng):
    theirs = tiny_hf.model(kind, "ForMaskedLM", **options)
    model = checkpoints.load(tiny_hf.save(theirs, tmp_path / "m")).model
    given = tiny_hf.inputs(rng, segments=options.get("type_vocab_size", 2))
    close(model(given)["logits"], tiny_hf.answer(theirs, given)["logits"])


def test_the_encoder_alone_and_other_heads(tmp_path, rng):
    """The same files as an encoder, and inside a fresh head whose weights are named."""
    theirs = tiny_hf.model("bert", "ForMaskedLM")
    folder, given = tiny_hf.save(theirs, tmp_path / "m"), tiny_hf.inputs(rng)
    expected = tiny_hf.answer(theirs, given)["hidden_states"][-1]
    alone = checkpoints.load(folder, "backbone", dropout=0.0, name="alone")
    assert isinstance(alone.model, Bert) and alone.model.name == "alone" and alone.model.encoder.dropout == 0.0
    close(alone.model(given)["sequence_output"], expected)
    with pytest.warns(UserWarning, match="fresh"):
        made = checkpoints.load(folder, "classify", num_classes=3)
    assert {path.split("/", 1)[1].split("/")[-2] for path in made.fresh} == {"pooler", "logits"}
    close(made.model.backbone(given)["sequence_output"], expected)
    with pytest.raises(ValueError, match="num_classes"):
        checkpoints.load(folder, "classify")


def test_another_number_of_classes_is_another_head(tmp_path):
    folder = tiny_hf.save(tiny_hf.model("bert", "ForSequenceClassification", num_labels=5), tmp_path / "m")
    assert checkpoints.load(folder, "classify", num_classes=5).fresh == ()
    for task, classes in (("classify", 2), ("token_classify", 5), ("regress", None)):
        with pytest.warns(UserWarning, match="2 weights are fresh"):
            made = checkpoints.load(folder, task, **({} if classes is None else {"num_classes": classes}))
        assert made.model.num_classes == (classes or 1)


def test_fresh_weights_are_random_and_the_models_initializers_stay(tmp_path):
    """Weights that files fill are created as zeros, which those of a new head must not be."""
    folder = tiny_hf.save(tiny_hf.model("bert"), tmp_path / "m")
    with pytest.warns(UserWarning, match="fresh"):
        model = checkpoints.load(folder, "masked_lm").model
    assert np.ptp(keras.ops.convert_to_numpy(model.transform.kernel)) > 0.01
    block = model.backbone.encoder.blocks[0]
    made = [block.attention.get_config()["kernel_initializer"], block.intermediate.get_config()["kernel_initializer"]]
    assert [initializer["class_name"] for initializer in made] == ["TruncatedNormal"] * 2


def test_other_positions_in_trained_layers(tmp_path, rng):
    """With `position="learned+tisa"` only TISA is fresh; with `"tisa"` the position embeddings are left out."""
    theirs = tiny_hf.model("bert")
    folder, given = tiny_hf.save(theirs, tmp_path / "m"), tiny_hf.inputs(rng)
    with pytest.warns(UserWarning, match="fresh"):
        both = checkpoints.load(folder, position="learned+tisa")
    assert both.fresh and all("tisa" in path for path in both.fresh)
    for encoding in keras.tree.flatten([block.attention.position for block in both.model.encoder.blocks]):
        for weight in encoding.weights:
            weight.assign(np.zeros(weight.shape))
    close(both.model(given)["sequence_output"], tiny_hf.answer(theirs, given)["last_hidden_state"])
    with pytest.warns(UserWarning, match="fresh"):
        model = checkpoints.load(folder, position="tisa").model
    with torch.no_grad():
        theirs.embeddings.position_embeddings.weight.zero_()
    for block in model.encoder.blocks:
        for weight in block.attention.position.weights:
            weight.assign(np.zeros(weight.shape))
    close(model(given)["sequence_output"], tiny_hf.answer(theirs, given)["last_hidden_state"])


@pytest.mark.parametrize("kind", KINDS)
def test_scores_without_content_leave_queries_and_keys_out(kind, tmp_path):
    folder = tiny_hf.save(tiny_hf.model(kind), tmp_path / "m")
    with pytest.warns(UserWarning, match="fresh"):
        found = checkpoints.load(folder, position="learned+synthesizer")
    assert found.fresh and all("synthesizer" in path for path in found.fresh)
    assert found.model.encoder.blocks[0].attention.query_dense is None


@pytest.mark.parametrize(("kind", "head"), [("bert", 0.4), ("bert", None), ("albert", 0.4)])
def test_dropout_is_that_of_the_config(kind, head, tmp_path):
    key = {"bert": "classifier_dropout", "albert": "classifier_dropout_prob"}[kind]
    theirs = tiny_hf.model(kind, "ForTokenClassification", **{key: head}, hidden_dropout_prob=0.2)
    folder = tiny_hf.save(theirs, tmp_path / "m")
    model = checkpoints.load(folder).model
    assert model.dropout == theirs.dropout.p == (0.2 if head is None else head)
    assert model.backbone.encoder.dropout == 0.2
    assert checkpoints.load(folder, dropout=0.3).model.dropout == 0.3


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_that_the_config_does_not_tell_is_that_of_transformers(kind, tmp_path):
    theirs = tiny_hf.model(kind, "ForSequenceClassification")
    folder = tiny_hf.save(theirs, tmp_path / "m")
    file = folder / "config.json"
    kept = {name: value for name, value in json.loads(file.read_text()).items() if "dropout" not in name}
    file.write_text(json.dumps(kept))
    model = checkpoints.load(folder).model
    encoder = model.backbone.encoder
    assert encoder.dropout == theirs.config.hidden_dropout_prob
    assert encoder.attention_dropout == theirs.config.attention_probs_dropout_prob
    assert model.dropout == theirs.dropout.p


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_files(dtype, tmp_path):
    """Values of half precision are read exactly, into float32 weights."""
    from safetensors.torch import save_file

    theirs = tiny_hf.model("bert")
    folder = tiny_hf.save(theirs, tmp_path / "m")
    halves = {name: weight.to(getattr(torch, dtype)) for name, weight in theirs.state_dict().items()}
    save_file(halves, folder / "model.safetensors")
    model = checkpoints.load(folder).model
    kernel = model.encoder.blocks[1].intermediate.kernel
    assert kernel.dtype == "float32"
    np.testing.assert_array_equal(
        keras.ops.convert_to_numpy(kernel), halves["encoder.layer.1.intermediate.dense.weight"].float().numpy().T
    )


def test_names_of_the_first_bert_files(tmp_path, rng):
    """`gamma` and `beta`, a `position_ids` buffer, a tied decoder, and a wrapper's prefix."""
    theirs = tiny_hf.model("bert", "ForPreTraining")
    folder, given = tiny_hf.save(theirs, tmp_path / "m"), tiny_hf.inputs(rng)

    def older(tensors):
        renamed = {
            "model." + k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): v
            for k, v in tensors.items()
        }
        words = tensors["bert.embeddings.word_embeddings.weight"]
        return {
            **renamed,
            "model.bert.embeddings.position_ids": np.arange(tiny_hf.POSITIONS)[None],
            "model.cls.predictions.decoder.weight": words,
        }

    tiny_hf.rewrite(folder, older)
    close(checkpoints.load(folder).model(given)["logits"], tiny_hf.answer(theirs, given)["prediction_logits"])


@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize("kind,head", [("bert", "cls.predictions"), ("albert", "predictions")])
def test_the_two_names_of_the_masked_lm_bias(kind, head, both, tmp_path, rng):
    """A file may have it under either. If they differ, transformers reads the decoder's, and so do we."""
    theirs = tiny_hf.model(kind, "ForMaskedLM")
    folder, given = tiny_hf.save(theirs, tmp_path / "m"), tiny_hf.inputs(rng)

    def rename(tensors):
        bias = tensors.pop(f"{head}.bias")
        if both:
            return {**tensors, f"{head}.bias": bias + 1, f"{head}.decoder.bias": bias}
        return {**tensors, f"{head}.decoder.bias": bias}

    tiny_hf.rewrite(folder, rename)
    expected = tiny_hf.answer(theirs, given)["logits"]
    if both:
        again = type(theirs).from_pretrained(folder).eval()
        np.testing.assert_allclose(tiny_hf.answer(again, given)["logits"], expected, atol=1e-5)
    close(checkpoints.load(folder).model(given)["logits"], expected)


def test_sizes_come_from_shapes_where_there_is_no_config(tmp_path, rng):
    theirs = tiny_hf.model("bert", "ForSequenceClassification", num_labels=3)
    file, given = tmp_path / "weights.ckpt", tiny_hf.inputs(rng)
    torch.save({"state_dict": theirs.state_dict(), "epoch": 3}, file)
    with pytest.raises(ValueError, match="num_heads=..."):
        checkpoints.load(file)
    found = checkpoints.load(file, num_heads=tiny_hf.HEADS)
    assert isinstance(found.model, Classifier) and found.tokenizer is None
    close(found.model(given)["logits"], tiny_hf.answer(theirs, given)["logits"])


def test_where_torch_and_transformers_are_not_installed(tmp_path):
    """Safetensors are read; for torch's format the error names the remedy."""
    theirs = tiny_hf.model("bert", "ForMaskedLM")
    safe, other = (tiny_hf.save(theirs, tmp_path / how, how) for how in ("sharded", "bin"))
    program = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name in ("torch", "transformers"):
            raise ImportError("not installed: " + name)
sys.meta_path.insert(0, Refuse())
from keras_posenc import checkpoints
model = checkpoints.load({str(safe)!r}).model
print(type(model).__name__, sorted(set(sys.modules) & set(("torch", "transformers"))))
checkpoints.load({str(other)!r})
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split("\n")[-2:] == ["MaskedLM []", ""], done.stderr
    assert done.stderr.splitlines()[-1].startswith("ImportError: ")
    assert "pip install torch" in done.stderr and "model.safetensors" in done.stderr


def test_a_file_behind_a_uri_comes_with_what_is_beside_it(tmp_path, rng):
    from keras_posenc.checkpoints import remote

    theirs, uri = tiny_hf.model("bert"), "ram://huggingface/tiny"
    folder = tiny_hf.save(theirs, tmp_path / "tiny")
    tf.io.gfile.makedirs(uri)
    for file in folder.iterdir():
        tf.io.gfile.copy(str(file), f"{uri}/{file.name}")
    given = tiny_hf.inputs(rng)
    found = checkpoints.load(f"{uri}/model.safetensors")
    close(found.model(given)["pooled_output"], tiny_hf.answer(theirs, given)["pooler_output"])
    # What has not changed is copied once.
    assert remote.fetch(uri) == remote.fetch(f"{uri}/")
    before = remote.fetch(uri)
    with tf.io.gfile.GFile(f"{uri}/config.json", "a") as stream:
        stream.write("\n")
    assert remote.fetch(uri) != before
