"""What one server answers for a model of every encoding, over REST and over gRPC, is what the model answers in Python.

The model is called as it was built: not folded, and in this process. The server has its export, folded.
"""

import numpy as np
import pytest
import serving_export_subject as subject

from keras_posenc import encodings
from keras_posenc.analysis import effective_attention
from serving.client import Client
from serving.exporting import export_model
from serving.server.embedded import EmbeddedServer
from serving.server.options import Options

pytestmark = pytest.mark.integration
POSITIONS = (*encodings.names(), "learned+tisa", "rotary+diet_rel")
PROTOCOLS = ("rest", "grpc")
SIGNATURES = ("effective_attention", "layer_attention")
DEEP = ("diet_abs", "diet_abs_lin", "shaw", "learned+tisa")  # two layers; one is enough, and faster, for the others
CLOSE = dict(rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def models():
    return {position: subject.make(position, layers=1 + (position in DEEP)) for position in POSITIONS}


@pytest.fixture(scope="module")
def addresses(models, tmp_path_factory):
    """Addresses by protocol of one server with all models, from one config file."""
    folder = tmp_path_factory.mktemp("wire")
    entries = []
    for position, model in models.items():
        export_model(model, folder / position, signatures=SIGNATURES, warmup_lengths=())
        entries.append(f'config {{ name: "{position}" base_path: "{folder / position}" model_platform: "tensorflow" }}')
    (folder / "models.config").write_text(f"model_config_list {{ {' '.join(entries)} }}")
    options = Options(port=0, rest_api_port=0, max_num_load_retries=0, model_config_file=str(folder / "models.config"))
    with EmbeddedServer(options) as server:
        yield {"rest": f"localhost:{server.rest_port}", "grpc": f"grpc://localhost:{server.port}"}


@pytest.mark.parametrize("position", POSITIONS)
def test_the_wire_changes_nothing(position, models, addresses, rng):
    model, given = models[position], subject.inputs(rng)
    found = model(given, return_intermediates=True)
    # Compressed keys of a Linformer are no tokens, so none of them is padding.
    mask = given["padding_mask"] if model.encoder.num_keys is None else None
    effective = [effective_attention(*layer, mask) for layer in zip(found["attention"], found["values"])]
    maps = {"attention": np.stack(found["attention"], 1), "effective_attention": np.stack(effective, 1)}
    rows = np.arange(len(given["token_ids"]))
    layer = np.asarray([1, 0, 1] if position in DEEP else [0, 0, 0], "int32")  # that each row asks for
    logits = {"logits": np.asarray(found["pooled_output"])}
    expected = {
        "serving_default": logits,
        "effective_attention": {**logits, **maps},
        "layer_attention": {**logits, **{name: value[rows, layer] for name, value in maps.items()}},
    }
    if mask is not None:
        assert not maps["effective_attention"][-1, ..., mask[-1] == 0].any()
        # Nine tokens and heads of four: values have a null space, so the two kinds of maps are different things.
        assert np.abs(maps["effective_attention"] - maps["attention"]).max() > 1e-2
    for protocol in PROTOCOLS:
        with Client(addresses[protocol], position) as client:
            for signature, outputs in expected.items():
                sent = {**given, "layer": layer} if signature == "layer_attention" else given
                served = client.predict(sent, signature)
                assert set(served) == set(outputs)
                for name, value in outputs.items():
                    where = f"{protocol} {signature} {name}"
                    assert served[name].dtype == np.float32
                    np.testing.assert_allclose(served[name], value, **CLOSE, err_msg=where)
