"""Real pretrained weights out of Python packages, where these are installed, against transformers."""

import json
import re

import keras
import numpy as np
import pytest

from keras_posenc import checkpoints
from keras_posenc.checkpoints import installed
from keras_posenc.models import Bert, Classifier, MaskedLM

SENTENCES = [
    "The cat sat on the mat, and the dog did not mind.",
    "Position embeddings are vectors that say where a word stands.",
    "Żółw naïveté 東京 😀 supercalifragilisticexpialidocious!",
    ("How old are you?", "I was born in 1990."),
]
REACTION = "CC(C)(C)OC(=O)N1CCNCC1.Brc1ccccc1>>CC(C)(C)OC(=O)N1CCN(c2ccccc2)CC1"  # an amination of bromobenzene
SMILES = r"(\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|\?|>>?|\*|\$|\%[0-9]{2}|[0-9])"


def close(ours, theirs):
    np.testing.assert_allclose(keras.ops.convert_to_numpy(ours), theirs, atol=1e-4, rtol=1e-4)


def folder_of(name):
    folder = installed.find(name)
    if folder is None:
        pytest.skip(f"{installed.KNOWN[name].requirement} is not installed")
    return folder


def smiles_ids(folder, texts):
    """Ids of reactions, cut by the regular expression of Schwaller et al., 2018."""
    pieces = (folder / "vocab.txt").read_text().split("\n")
    rows = [["[CLS]", *re.findall(SMILES, text), "[SEP]"] for text in texts]
    length = max(map(len, rows))
    ids = np.array([[pieces.index(token) for token in row] + [0] * (length - len(row)) for row in rows], "int32")
    mask = np.array([[1] * len(row) + [0] * (length - len(row)) for row in rows], "int32")
    return {"token_ids": ids, "segment_ids": np.zeros_like(ids), "padding_mask": mask}


def test_names_are_checked():
    with pytest.raises(ValueError, match="minilm"):
        installed.find("gpt")


def test_packages_are_not_imported():
    import sys

    for name, known in installed.KNOWN.items():
        installed.find(name)
        assert known.module not in sys.modules


@pytest.mark.slow
def test_minilm():
    """Ids of real sentences, hidden states of every layer and the pooled output."""
    folder = folder_of("minilm")
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    checkpoint = checkpoints.load(folder)
    assert isinstance(checkpoint.model, Bert)
    given = checkpoint.tokenizer.encode(SENTENCES)
    pairs = [text if isinstance(text, str) else list(text) for text in SENTENCES]
    theirs = transformers.BertTokenizer.from_pretrained(folder)(pairs, padding=True, return_tensors="pt")
    np.testing.assert_array_equal(given["token_ids"], theirs["input_ids"])
    np.testing.assert_array_equal(given["segment_ids"], theirs["token_type_ids"])
    np.testing.assert_array_equal(given["padding_mask"], theirs["attention_mask"])
    with torch.no_grad():
        expected = transformers.BertModel.from_pretrained(folder).eval()(**theirs, output_hidden_states=True)
    found = checkpoint.model(given, return_intermediates=True)
    assert len(found["hidden_states"]) == len(expected.hidden_states) == 7
    for ours, other in zip(found["hidden_states"], expected.hidden_states):
        close(ours, other.numpy())
    close(found["pooled_output"], expected.pooler_output.numpy())


@pytest.mark.slow
@pytest.mark.parametrize("name,kind", [("rxnmapper", "Albert"), ("rxnfp_pretrained", "Bert")])
def test_masked_language_models(name, kind):
    """Hidden states and logits; and each atom of a reaction that is masked is found again."""
    folder = folder_of(name)
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    from tiny_hf import answer

    given = smiles_ids(folder, [REACTION, "CCO>>CC=O"])
    model = checkpoints.load(folder).model
    assert isinstance(model, MaskedLM)
    config = json.loads((folder / "config.json").read_text())
    theirs = getattr(transformers, f"{kind}ForMaskedLM")(getattr(transformers, f"{kind}Config")(**config)).eval()
    state = torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True)
    # Old files keep the bias of the decoder under one name of two, or an older copy under the second.
    state = {k: v for k, v in state.items() if not k.endswith("decoder.bias")}
    head = "cls.predictions" if kind == "Bert" else "predictions"
    state[f"{head}.decoder.bias"] = state[f"{head}.bias"]
    state[f"{head}.decoder.weight"] = state[f"{kind.lower()}.embeddings.word_embeddings.weight"]
    missing = theirs.load_state_dict(state, strict=False).missing_keys
    assert all("position_ids" in key or "token_type_ids" in key for key in missing), missing
    expected = answer(theirs, given)
    found = model(given, return_intermediates=True)
    # Rounding grows over the turns of one block, and most at padding, which is not what the model was trained on.
    real = given["padding_mask"] == 1
    for ours, other in zip(found["hidden_states"], expected["hidden_states"]):
        close(keras.ops.convert_to_numpy(ours)[real], other[real])
    close(keras.ops.convert_to_numpy(found["logits"])[real], expected["logits"][real])

    ids = given["token_ids"][:1]
    length = ids.shape[1]
    masked = np.repeat(ids, length - 2, axis=0)
    positions = np.arange(1, length - 1)
    masked[np.arange(length - 2), positions] = (folder / "vocab.txt").read_text().split("\n").index("[MASK]")
    logits = keras.ops.convert_to_numpy(model({"token_ids": masked, "masked_positions": positions[:, None]})["logits"])
    recovered = (logits[:, 0].argmax(-1) == ids[0, 1:-1]).mean()
    assert recovered > 0.9, recovered


@pytest.mark.slow
def test_a_pretrained_model_and_its_fine_tuned_twin():
    """rxnfp's three files: the same sizes; fine-tuning moved the weights, and one has its classifier."""
    models = {}
    for name in ("rxnfp_pretrained", "rxnfp_finetuned", "rxnfp_classifier"):
        folder_of(name)
        models[name] = installed.load(name).model
    assert isinstance(models["rxnfp_classifier"], Classifier) and models["rxnfp_classifier"].num_classes == 50
    before, after = models["rxnfp_pretrained"].backbone, models["rxnfp_finetuned"]
    assert before.count_params() == after.count_params()
    kernels = [keras.ops.convert_to_numpy(m.encoder.blocks[5].intermediate.kernel).ravel() for m in (before, after)]
    similarity = np.corrcoef(kernels)[0, 1]
    assert 0.5 < similarity < 1 - 1e-6


@pytest.mark.slow
def test_a_lone_torch_file():
    """XtremeDistil has no configuration; its position embeddings are close to Toeplitz (R^2 off the diagonal)."""
    folder_of("xtremedistil")
    model = installed.load("xtremedistil").model
    assert isinstance(model, Classifier) and model.num_classes == 3
    table = keras.ops.convert_to_numpy(model.backbone.encoder.input_positions[0].table)[:128].astype("float64")
    gram = table @ table.T
    i, j = np.indices(gram.shape)
    off = i != j
    means = np.array([np.diagonal(gram, offset).mean() for offset in range(-127, 128)])
    residual = (gram - means[j - i + 127])[off]
    assert 1 - residual.var() / gram[off].var() == pytest.approx(0.932, abs=2e-3)
