"""The viewer is told what the exporter knew of a model."""

import json
import urllib.request

import pytest
from serving_export_subject import make

from keras_posenc.models import Classifier
from serving.exporting import export_model
from serving.server.embedded import EmbeddedServer
from serving.server.options import Options

pytestmark = pytest.mark.integration


def described(server):
    with urllib.request.urlopen(f"http://localhost:{server.rest_port}/viewer/config.json") as answer:
        (model,) = json.load(answer)["models"]
    return {each["version"]: each["description"] for each in model["versions"]}


def test_descriptions_of_versions(tmp_path):
    """Version 2 is of someone else: it has none; that of version 3 is damaged."""
    model = make(head=lambda backbone: Classifier(backbone, 2))
    paths = [export_model(model, tmp_path / "m", labels=["no", "yes"], warmup_lengths=()) for _ in range(3)]
    (paths[1] / "assets.extra" / "keras_posenc.json").unlink()
    (paths[2] / "assets.extra" / "keras_posenc.json").write_text('{"labels":')
    config = tmp_path / "models.config"
    config.write_text(
        f'model_config_list {{ config {{ name: "m" base_path: "{tmp_path / "m"}" model_platform: "tensorflow" '
        "model_version_policy { all {} } } }"
    )
    with EmbeddedServer(Options(model_config_file=str(config), port=None, rest_api_port=0)) as server:
        found = described(server)
        while any(each not in found for each in "123") or found["1"] is None:  # all are loaded, one after the other
            found = described(server)
    assert found["1"]["labels"] == ["no", "yes"] and found["1"]["task"] == "classify"
    assert found["2"] is None and found["3"] is None
