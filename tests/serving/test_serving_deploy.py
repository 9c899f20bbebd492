"""The deployment files: against the schemas of Kubernetes and Compose, against one another, and run.

The flags, configs, probes and health check of the files are tried on the embedded server, which stands in for the
image.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from importlib import resources
from pathlib import Path

import pytest
import serving_models
import yaml
from absl import flags
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from serving import model_server
from serving.backends import docker
from serving.backends.flags import BY_NAME, given
from serving.server import batching, protos

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "serving" / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "docker-compose.yaml").read_text())
MANIFESTS = [
    manifest
    for file in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for manifest in yaml.safe_load_all(file.read_text())
]


def kind(name):
    return [manifest for manifest in MANIFESTS if manifest["kind"] == name]


DEPLOYMENT = kind("Deployment")[0]
POD = DEPLOYMENT["spec"]["template"]
CONTAINER = POD["spec"]["containers"][0]
CONFIG = kind("ConfigMap")[0]
SERVICE = COMPOSE["services"]["model-server"]


def parse(arguments):
    values = flags.FlagValues()
    model_server.define(values)
    assert values(["model_server", *arguments]) == ["model_server"]
    return values


def compose_errors(document):
    jsonschema = pytest.importorskip("jsonschema")
    pytest.importorskip("check_jsonschema")
    text = (resources.files("check_jsonschema") / "builtin_schemas/vendor/compose-spec.json").read_text()
    schema = json.loads(text)
    return [error.message for error in jsonschema.validators.validator_for(schema)(schema).iter_errors(document)]


@pytest.mark.parametrize("version", ["1.29", "1.33", "1.37"])
def test_manifests_are_valid_kubernetes(version):
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    for manifest in MANIFESTS:
        assert kubernetes_validate.validate(manifest, version, strict=True) == version


def test_the_kubernetes_schema_is_strict():
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    wrong = json.loads(json.dumps(DEPLOYMENT))
    wrong["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="readynessProbe"):
        kubernetes_validate.validate(wrong, "1.37", strict=True)


def test_the_compose_file_is_valid():
    assert compose_errors(COMPOSE) == []
    wrong = {"services": {"model-server": {**SERVICE, "port": ["8500:8500"]}}}
    assert any("'port' was unexpected" in message for message in compose_errors(wrong))


def test_one_image_everywhere():
    assert CONTAINER["image"] == SERVICE["image"] == docker.IMAGE
    assert CONTAINER["command"] == SERVICE["entrypoint"] == [docker.SERVER]


@pytest.mark.parametrize("arguments", [CONTAINER["args"], SERVICE["command"]], ids=["kubernetes", "compose"])
def test_arguments_are_flags_of_tensorflow_serving(arguments):
    values = parse(arguments)
    assert len(given(values)) == len(arguments)
    for argument in arguments:  # the C++ parser takes no `--name value`, and a file is one of the mounted ones
        name, separator, value = argument.removeprefix("--").partition("=")
        assert name in BY_NAME
        assert separator
        if name.endswith("_file"):
            assert value.removeprefix("/config/") in CONFIG["data"]


def test_resources_refer_to_one_another():
    labels, name = POD["metadata"]["labels"], DEPLOYMENT["metadata"]["name"]
    ports = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}
    values = parse(CONTAINER["args"])
    assert ports == {"grpc": values.port, "rest": values.rest_api_port}
    for service in kind("Service"):
        assert service["spec"]["selector"].items() <= labels.items()
        for port in service["spec"]["ports"]:
            assert port["port"] == ports[port["targetPort"]]
    for selector in (DEPLOYMENT["spec"]["selector"], kind("PodDisruptionBudget")[0]["spec"]["selector"]):
        assert selector["matchLabels"].items() <= labels.items()
    target = kind("HorizontalPodAutoscaler")[0]["spec"]["scaleTargetRef"]
    assert (target["kind"], target["apiVersion"], target["name"]) == ("Deployment", DEPLOYMENT["apiVersion"], name)
    volumes = {volume["name"]: volume for volume in POD["spec"]["volumes"]}
    assert {mount["name"] for mount in CONTAINER["volumeMounts"]} == set(volumes)
    claim = kind("PersistentVolumeClaim")[0]["metadata"]["name"]
    assert volumes["models"]["persistentVolumeClaim"]["claimName"] == claim
    assert volumes["config"]["configMap"]["name"] == CONFIG["metadata"]["name"]


def test_nothing_is_lost_in_an_update():
    assert DEPLOYMENT["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    drain = int(CONTAINER["lifecycle"]["preStop"]["exec"]["command"][1])
    timeout = parse(CONTAINER["args"]).rest_api_timeout_in_ms / 1000
    assert POD["spec"]["terminationGracePeriodSeconds"] >= drain + timeout
    scaling = kind("HorizontalPodAutoscaler")[0]["spec"]
    assert scaling["minReplicas"] > kind("PodDisruptionBudget")[0]["spec"]["maxUnavailable"]


@pytest.mark.parametrize(
    "arguments, cores",
    [
        (CONTAINER["args"], CONTAINER["resources"]["limits"]["cpu"]),
        (SERVICE["command"], SERVICE["deploy"]["resources"]["limits"]["cpus"]),
    ],
    ids=["kubernetes", "compose"],
)
def test_threads_fit_the_cores(arguments, cores):
    values = parse(arguments)
    assert values.tensorflow_intra_op_parallelism == values.tensorflow_inter_op_parallelism == int(cores)
    parameters = protos.read_text(DEPLOY / "config" / "batching.config", protos.BatchingParameters())
    assert batching.parameters(parameters).num_batch_threads == int(cores)


def test_the_config_map_holds_the_files():
    assert CONFIG["data"] == {file.name: file.read_text() for file in (DEPLOY / "config").iterdir()}


def test_the_configs_are_messages_of_tensorflow_serving():
    texts = CONFIG["data"]
    models = text_format.Parse(texts["models.config"], model_server_config_pb2.ModelServerConfig())
    (model,) = models.model_config_list.config
    assert model.base_path.startswith(CONTAINER["volumeMounts"][0]["mountPath"] + "/")
    assert set(model.version_labels.values()) <= set(model.model_version_policy.specific.versions)
    assert {"stable", "canary"} == set(model.version_labels)
    metrics = text_format.Parse(texts["monitoring.config"], protos.MonitoringConfig()).prometheus_config
    annotations = POD["metadata"]["annotations"]
    assert metrics.enable
    assert metrics.path == annotations["prometheus.io/path"]
    assert int(annotations["prometheus.io/port"]) == parse(CONTAINER["args"]).rest_api_port
    assert text_format.Parse(texts["batching.config"], protos.BatchingParameters()).allowed_batch_sizes


# Running it.


def free_port():
    with socket.create_server(("", 0)) as server:
        return server.getsockname()[1]


class Running:
    """`python -m serving.model_server` with the arguments of the Deployment, on folders of the test."""

    def __init__(self, folder, saved_model):
        self.models = folder / "models" / "keras_posenc"
        self.config = folder / "config"
        self.models.mkdir(parents=True)
        self.config.mkdir()
        serving_models.add_version(saved_model, self.models, 1)
        for name, text in CONFIG["data"].items():
            (self.config / name).write_text(text.replace("/models/", f"{self.models.parent}/"))
        self.port = free_port()
        arguments = [argument.replace("/config/", f"{self.config}/") for argument in CONTAINER["args"]]
        arguments += [f"--port={free_port()}", f"--rest_api_port={self.port}", "--max_num_load_retries=0"]
        arguments += ["--model_config_file_poll_wait_seconds=1"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "DOCKER_HOST": f"unix://{folder}/no-engine"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "serving.model_server", "--backend=auto", *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.lines = []
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if line == "Ready.\n":
                return
        raise AssertionError("\n".join(["The server ended:", *self.lines]))

    def get(self, path, body=None):
        """Status and answer."""
        request = urllib.request.Request(f"http://localhost:{self.port}{path}", body and json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def factor(self, label):
        """What a version multiplies by, or `None` if it does not answer."""
        path = f"/v1/models/keras_posenc/labels/{label}:predict"
        status, text = self.get(path, {"instances": [[1.0, 0.0, 0.0]]})
        return json.loads(text)["predictions"][0][0] if status == 200 else None


@pytest.fixture(scope="module")
def running(tmp_path_factory, saved_model):
    server = Running(tmp_path_factory.mktemp("deploy"), saved_model)
    yield server
    server.process.kill()
    server.process.wait()


@pytest.mark.integration
class TestRunning:
    """In this order: the server goes through the life of the README."""

    def test_without_the_program_and_an_engine_it_is_embedded_and_says_so(self, running):
        assert running.lines[0].startswith("Server: embedded (tensorflow_model_server is not on the PATH; ")
        assert f"REST:   http://localhost:{running.port}/v1/models/keras_posenc" in running.lines
        assert f"viewer: http://localhost:{running.port}/viewer/" in running.lines

    @pytest.mark.parametrize("name", ["startupProbe", "readinessProbe", "livenessProbe"])
    def test_probes_answer(self, running, name):
        assert CONTAINER[name]["httpGet"]["port"] == "rest"
        assert running.get(CONTAINER[name]["httpGet"]["path"])[0] == 200

    def test_the_health_check_of_compose(self, running):
        command, *line = SERVICE["healthcheck"]["test"]
        assert command == "CMD"
        ours = [argument.replace("8501", str(running.port)) for argument in line]
        other = [argument.replace("8501", str(free_port())) for argument in line]
        assert subprocess.run(ours, timeout=60, check=False).returncode == 0
        assert subprocess.run(other, timeout=60, check=False, stderr=subprocess.DEVNULL).returncode != 0

    def test_metrics_are_where_the_annotation_says(self, running):
        status, text = running.get(POD["metadata"]["annotations"]["prometheus.io/path"])
        assert status == 200
        loads = [
            line for line in text.splitlines() if line.startswith(":tensorflow:cc:saved_model:load_attempt_count{")
        ]
        assert [line.rpartition(" ")[2] for line in loads] == ["1"]

    def test_a_version_is_rolled_out_by_labels(self, running, other_model):
        assert (running.factor("stable"), running.factor("canary")) == (2.0, None)
        serving_models.add_version(other_model, running.models, 2)
        serving_models.until(lambda: running.factor("canary") == 5.0, 120)
        assert running.factor("stable") == 2.0
        config = running.config / "models.config"
        config.write_text(config.read_text().replace('"stable" value: 1', '"stable" value: 2'))
        serving_models.until(lambda: running.factor("stable") == 5.0, 120)

    def test_sigterm_stops_in_good_order(self, running):
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(300) == 0
        assert running.process.stdout.read().splitlines()[-1] == "Stopped."
