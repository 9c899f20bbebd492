"""What is wrong with a checkpoint is said once, with names."""

import numpy as np
import pytest

from keras_posenc import checkpoints

pytest.importorskip("transformers")
pytest.importorskip("torch")
pytest.importorskip("safetensors")

import tiny_hf  # noqa: E402


@pytest.fixture
def folder(tmp_path):
    return tiny_hf.save(tiny_hf.model("bert"), tmp_path / "bert")


def test_missing_extra_and_wrong_shapes_are_all_named(folder):
    def damage(tensors):
        tensors.pop("encoder.layer.1.output.dense.bias")
        tensors.pop("pooler.dense.bias")
        tensors["encoder.layer.0.attention.self.query.weight"] = np.zeros((8, 9), "float32")
        tensors["encoder.layer.3.output.dense.bias"] = np.zeros(8, "float32")
        return tensors

    tiny_hf.rewrite(folder, damage)
    with pytest.raises(ValueError) as caught:
        checkpoints.load(folder)
    lines = [line.strip() for line in str(caught.value).splitlines()]
    assert str(folder) in lines[0] and "4 tensors" in lines[0]
    assert lines[1:] == [
        "wrong shape: encoder.layer.0.attention.self.query.weight, expected (8, 8), found (8, 9)",
        "missing: encoder.layer.1.output.dense.bias, expected shape (8,)",
        "missing: pooler.dense.bias, expected shape (8,)",
        "unexpected: encoder.layer.3.output.dense.bias, found shape (8,)",
    ]


def test_a_config_that_disagrees_with_the_files(folder):
    tiny_hf.set_config(folder, max_position_embeddings=20)
    with pytest.raises(ValueError, match=r"position_embeddings.weight, expected \(20, 8\), found \(11, 8\)"):
        checkpoints.load(folder)


def test_a_corrupt_file_is_named(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ValueError, match="model.safetensors' is not a readable safetensors file"):
        checkpoints.load(folder)


def test_a_missing_shard_is_named(tmp_path):
    folder = tiny_hf.save(tiny_hf.model("bert"), tmp_path / "m", "sharded")
    shard = sorted(folder.glob("model-*.safetensors"))[1]
    shard.unlink()
    with pytest.raises(FileNotFoundError, match=shard.name):
        checkpoints.load(folder)


def test_a_pickle_with_code_in_it_is_refused(folder):
    import pickle

    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"a": print}, protocol=2))
    with pytest.raises(ValueError, match="weights_only"):
        checkpoints.load(folder)


@pytest.mark.parametrize(
    "changes,message",
    [
        ({"model_type": "roberta", "architectures": ["RobertaForMaskedLM"]}, "RobertaForMaskedLM"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key'"),
        ({"hidden_act": "quick_gelu", "is_decoder": True}, "is_decoder=True, hidden_act='quick_gelu'"),
    ],
)
def test_unsupported_architectures_are_named(folder, changes, message):
    tiny_hf.set_config(folder, **changes)
    with pytest.raises(ValueError, match=message):
        checkpoints.load(folder)


def test_albert_of_several_groups(tmp_path):
    folder = tiny_hf.save(tiny_hf.model("albert", num_hidden_groups=2, num_hidden_layers=4), tmp_path / "m")
    with pytest.raises(ValueError, match="num_hidden_groups=2"):
        checkpoints.load(folder)


def test_folders_without_a_model(folder, tmp_path):
    (folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="has no weights: looked for model.safetensors"):
        checkpoints.load(folder)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("x")
    with pytest.raises(ValueError, match="no checkpoint.*notes.txt"):
        checkpoints.load(tmp_path / "other")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        checkpoints.load(tmp_path / "nowhere")


def test_an_untied_decoder(tmp_path):
    folder = tiny_hf.save(tiny_hf.model("bert", "ForMaskedLM", tie_word_embeddings=False), tmp_path / "m")
    with pytest.raises(ValueError, match="tie_word_embeddings"):
        checkpoints.load(folder)
    assert checkpoints.load(folder, "backbone").fresh == ()
    tiny_hf.set_config(folder, tie_word_embeddings=True)
    with pytest.warns(UserWarning, match="cls.predictions.decoder.weight differs"):
        checkpoints.load(folder)


def test_sizes_cannot_be_overridden(folder):
    with pytest.raises(ValueError, match="max_length, num_heads.*extrapolate"):
        checkpoints.load(folder, max_length=64, num_heads=4)
    assert checkpoints.load(folder, extrapolate="clip").model.encoder.extrapolate == "clip"


def test_tasks_and_classes(folder):
    with pytest.raises(ValueError, match="Unknown task: 'parse'"):
        checkpoints.load(folder, "parse")
    with pytest.raises(ValueError, match="takes no `num_classes`"):
        checkpoints.load(folder, "masked_lm", num_classes=3)
