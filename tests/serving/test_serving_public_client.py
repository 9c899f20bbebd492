"""Clients for TF-Serving that this project did not write, against the embedded server.

| client | protocol | installed by |
|---|---|---|
| `tf-serving` 0.1.6 | REST | the extra `test` |
| `tensorflow-serving-api`, `requests`, as TF-Serving's documentation uses them | both | the extra `serving` |
| `min-tfs-client` 1.0.2 (Zendesk) | gRPC | `pip install --no-deps --target DIR/min_tfs_client min-tfs-client==1.0.2` |
| `kserve` 0.21.0, whose V1 protocol is TF-Serving's REST | REST | `pip install --target DIR/kserve kserve==0.21.0` |

The last two cannot be installed beside TensorFlow 2.20 (one brings old copies of TensorFlow's own files, the other
older pandas): they are looked for in the folder that the environment variable KERAS_POSENC_CLIENTS names, and run in a
process of their own.
"""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import grpc
import numpy as np
import pytest
import requests
import tensorflow as tf
from serving_models import add_version
from tensorflow_serving.apis import (
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from serving.server.embedded import EmbeddedServer
from serving.server.options import Options


class Reader(tf.Module):
    """Reads "images" as a model for `tf-serving` does: the two most likely words of each, and their probabilities."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "image")])
    def read(self, image):
        length = tf.cast(tf.strings.length(image), tf.float32)
        words = tf.stack([image, tf.strings.upper(image)], axis=1)
        return {"preds": words, "logprobs": tf.stack([-length, -2 * length], axis=1)}


@pytest.fixture(scope="module")
def server(saved_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("public")
    (folder / "m").mkdir()
    add_version(saved_model, folder / "m", 3)
    reader = Reader()
    tf.saved_model.save(reader, str(folder / "ocr" / "1"), signatures={"serving_default": reader.read})
    entry = 'config {{ name: "{0}" base_path: "{1}/{0}" model_platform: "tensorflow" }}'
    entries = " ".join(entry.format(name, folder) for name in ("m", "ocr"))
    (folder / "models.config").write_text(f"model_config_list {{ {entries} }}")
    options = Options(port=0, rest_api_port=0, model_config_file=str(folder / "models.config"))
    with EmbeddedServer(options) as server:
        yield server


def test_tf_serving_over_rest(server):
    client = pytest.importorskip("tf.serving", reason="pip install tf-serving==0.1.6")
    where = dict(host="http://localhost", port=server.rest_port)
    found = asyncio.run(client.predict(["abc", "de"], **where)).unsafe()
    assert [(each.preds, each.logprobs) for each in found] == [
        (["abc", "ABC"], [-3.0, -6.0]),
        (["de", "DE"], [-2.0, -4.0]),
    ]
    wrong = asyncio.run(client.predict(["abc"], endpoint="/v1/models/none:predict", **where)).value
    assert (wrong.tag, wrong.error) == ("tfserving-error", "Servable not found for request: Latest(none)")


def test_stubs_of_tensorflow_serving_api(server):
    channel = grpc.insecure_channel(f"localhost:{server.port}")
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "m"
    request.model_spec.signature_name = "serving_default"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto([[1.0, 2.0, 5.0]]))
    result = stub.Predict(request, 10.0)
    assert tf.make_ndarray(result.outputs["y"]).tolist() == [[2.0, 4.0, 10.0]]
    status = get_model_status_pb2.GetModelStatusRequest()
    status.model_spec.name = "m"
    found = model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(status, 10.0).model_version_status
    assert [(each.version, each.state) for each in found] == [(3, 30)]
    channel.close()


def test_requests_as_documented(server):
    url = f"http://localhost:{server.rest_port}/v1/models/m"
    instances = {"signature_name": "serving_default", "instances": [[1.0, 2.0, 5.0]]}
    answer = requests.post(f"{url}:predict", data=json.dumps(instances), headers={"content-type": "application/json"})
    answer.raise_for_status()
    assert answer.json() == {"predictions": [[2.0, 4.0, 10.0]]}
    assert requests.get(url).json()["model_version_status"][0]["state"] == "AVAILABLE"
    assert "seen" in requests.get(f"{url}/metadata").json()["metadata"]["signature_def"]["signature_def"]


MIN_TFS = """
import json, sys
import numpy as np
from min_tfs_client.requests import TensorServingClient
from min_tfs_client.tensors import tensor_proto_to_ndarray
client = TensorServingClient(host="localhost", port=int(sys.argv[1]))
x = np.array([[1.0, 2.0, 5.0]], np.float32)
response = client.predict_request(model_name="m", model_version=3, input_dict={"x": x})
print(json.dumps(tensor_proto_to_ndarray(response.outputs["y"]).tolist()))
"""
KSERVE = """
import asyncio, json, sys
from kserve import InferenceRESTClient, RESTConfig

async def main():
    async with InferenceRESTClient(RESTConfig(protocol="v1")) as client:
        return await client.infer(f"http://localhost:{sys.argv[1]}", {"instances": [[1.0, 2.0, 5.0]]}, model_name="m")

print(json.dumps(asyncio.run(main())["predictions"]))
"""


@pytest.mark.parametrize(
    ("name", "script", "port"), [("min_tfs_client", MIN_TFS, "port"), ("kserve", KSERVE, "rest_port")]
)
def test_a_client_with_packages_of_its_own(server, name, script, port):
    folder = Path(os.environ.get("KERAS_POSENC_CLIENTS", "")) / name
    if "KERAS_POSENC_CLIENTS" not in os.environ or not folder.is_dir():
        pytest.skip(f"KERAS_POSENC_CLIENTS names no folder with {name}")
    environment = {**os.environ, "PYTHONPATH": str(folder), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", script, str(getattr(server, port))]
    found = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert found.returncode == 0, found.stderr
    np.testing.assert_array_equal(json.loads(found.stdout.splitlines()[-1]), [[2.0, 4.0, 10.0]])
