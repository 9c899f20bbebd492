"""The flags of `tensorflow_model_server`: spelling, what reaches the embedded server, and mistakes found early."""

import socket

import pytest
from absl import flags

from serving import model_server
from serving.backends import checks, embedded
from serving.backends.flags import HONOURED, TABLE, given, spelled
from serving.server.options import Options


def parse(*arguments):
    values = flags.FlagValues()
    model_server.define(values)
    values(["model_server", *map(str, arguments)])
    return values


def free_port():
    with socket.create_server(("", 0)) as server:
        return server.getsockname()[1]


def check(*arguments):
    """Checks flags with a port that is free, unless one is given."""
    return checks.check(parse(f"--port={free_port()}", *arguments))


@pytest.fixture
def base(tmp_path):
    folder = tmp_path / "model"
    (folder / "1").mkdir(parents=True)
    return folder


def test_defaults_are_those_of_server_h():
    facts = {
        "port": 8500,
        "rest_api_port": 0,
        "rest_api_timeout_in_ms": 30000,
        "model_name": "default",
        "file_system_poll_wait_seconds": 1,
        "model_config_file_poll_wait_seconds": 0,
        "max_num_load_retries": 5,
        "load_retry_interval_micros": 60 * 1000 * 1000,
        "enable_batching": False,
        "enable_model_warmup": True,
        "flush_filesystem_caches": True,
        "num_request_iterations_for_warmup": 0,
        "saved_model_tags": "serve",
    }
    values = parse()
    assert {name: values[name].value for name in facts} == facts
    assert embedded.options(values) == Options()


@pytest.mark.parametrize("argument, expected", [("", True), ("=true", True), ("=1", True), ("=false", False)])
def test_booleans_as_the_c_flags_take_them(argument, expected):
    values = parse(f"--enable_batching{argument}")
    assert values.enable_batching is expected
    assert [spelled(*item) for item in given(values).items()] == [f"--enable_batching={str(expected).lower()}"]


def test_only_what_the_command_line_says_is_passed_on():
    assert given(parse("--port=8500", "--model_name", "m", "--backend=native")) == {"port": 8500, "model_name": "m"}


@pytest.mark.parametrize("name", [flag.name for flag in TABLE if flag.embedded == HONOURED])
def test_honoured_flags_change_the_options(name, tmp_path):
    default = parse()[name].value
    other = {bool: not default, int: 7, float: 0.5, str: "other"}[type(default)]
    if name == "monitoring_config_file":
        other = tmp_path / "monitoring.config"
        other.write_text("prometheus_config { enable: true }")
    assert embedded.options(parse(f"--{name}={other}")) != Options()


def test_port_zero_is_off():
    options = embedded.options(parse("--port=0", "--rest_api_port=0"))
    assert options.port is None
    assert options.rest_api_port is None


def test_flags_the_embedded_server_cannot_honour():
    at_default = given(parse("--use_alts_credentials=false", "--flush_filesystem_caches=true"))
    assert embedded.refused(at_default) == embedded.ignored(at_default) == []
    assert "ALTS" in embedded.refused(given(parse("--use_alts_credentials")))[0]
    assert "--flush_filesystem_caches" in embedded.ignored(given(parse("--flush_filesystem_caches=false")))[0]


def test_a_good_command_line(base):
    checked = check(f"--model_base_path={base}", "--model_name=m")
    assert checked.models == {"m": str(base)}
    assert checked.metrics_path is None
    assert checked.warnings == []


def test_stores_behind_uris_are_left_to_the_server():
    assert check("--model_base_path=gs://bucket/model").models == {"default": "gs://bucket/model"}


def test_a_base_path_without_versions_is_said(tmp_path):
    assert "no version of model default" in check(f"--model_base_path={tmp_path}").warnings[0]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "Nothing to serve"),
        (["--model_base_path={tmp}/none"], "no folder: .*/none"),
        (["--model_base_path={base}", "--port=70000"], "--port=70000 is no port"),
        (["--model_base_path={base}", "--port=-1"], "--port=-1 is negative"),
        (["--model_base_path={base}", "--port=0"], "--grpc_socket_path"),
        (["--model_base_path={base}", "--port=8877", "--rest_api_port=8877"], "both 8877"),
        (["--model_base_path={base}", "--model_name=a/b"], "has no '/'"),
        (["--model_base_path={base}", "--grpc_channel_arguments=a=1,b"], "'b'; each is name=value"),
        (["--model_base_path={base}", "--grpc_socket_path={tmp}/none/s"], "there is no folder"),
        (["--model_base_path={base}", "--grpc_socket_path={base}"], "is no socket"),
        (["--model_base_path={base}", "--grpc_socket_path={tmp}/" + "s" * 120], "107 bytes"),
        (["--model_base_path={base}", "--batching_parameters_file={tmp}/b"], "needs --enable_batching"),
        (["--model_base_path={base}", "--monitoring_config_file={tmp}/none"], "No such file"),
        (["--model_config_file={tmp}/none"], "cannot be read: No such file"),
        (
            ["--model_base_path={base}"]
            + [f"--tensorflow_{pool}_parallelism=2" for pool in ("session", "intra_op", "inter_op")],
            "give it, or those two",
        ),
    ],
)
def test_mistakes_are_named(arguments, message, tmp_path, base):
    with pytest.raises(ValueError, match=message):
        check(*(argument.format(tmp=tmp_path, base=base) for argument in arguments))


def test_a_saved_model_is_no_base_path(base):
    (base / "1" / "saved_model.pb").touch()
    with pytest.raises(ValueError, match="Give the folder above it"):
        check(f"--model_base_path={base}/1")


@pytest.mark.parametrize("name", ["port", "rest_api_port"])
def test_a_port_in_use_is_named(name, base):
    with socket.create_server(("", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ValueError, match=f"--{name}={port}: another program listens on port {port}"):
            check(f"--model_base_path={base}", f"--{name}={port}")


def test_a_socket_in_use_and_one_left_behind(base, tmp_path):
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        with pytest.raises(ValueError, match="another program listens there"):
            check(f"--model_base_path={base}", f"--grpc_socket_path={path}")
    check(f"--model_base_path={base}", f"--grpc_socket_path={path}")


@pytest.mark.parametrize(
    "name, text, line",
    [
        ("model_config_file", "model_config_list {\n  config {\n    nam: 'm'\n  }\n}", "3:5"),
        ("batching_parameters_file", "max_batch_size { value: 8 }\nmax_size { value: 8 }", "2:1"),
        ("monitoring_config_file", "prometheus_config {\n  enable: maybe\n}", "2:11"),
        ("ssl_config_file", "server_key: 'a'\nclient_verify: 3", "2:16"),
    ],
)
def test_a_mistake_in_a_text_file_is_named_with_its_line(name, text, line, base, tmp_path):
    file = tmp_path / "file"
    file.write_text(text)
    with pytest.raises(ValueError, match=f"--{name}: {file}.*{line}"):
        check(f"--model_base_path={base}", "--enable_batching", f"--{name}={file}")


def test_models_of_a_config_file(base, tmp_path):
    file = tmp_path / "models.config"
    file.write_text(f"model_config_list {{ config {{ name: 'a' base_path: '{base}' model_platform: 'tensorflow' }} }}")
    assert check(f"--model_config_file={file}").models == {"a": str(base)}
    file.write_text("custom_model_config {}")
    with pytest.raises(ValueError, match="has a custom_model_config"):
        check(f"--model_config_file={file}")
    file.write_text("model_config_list { config { name: 'b' base_path: '/none' } }")
    with pytest.raises(ValueError, match="model b is no folder"):
        check(f"--model_config_file={file}")


def test_metrics_need_rest(base, tmp_path):
    file = tmp_path / "monitoring.config"
    file.write_text("prometheus_config { enable: true path: '/metrics' }")
    arguments = f"--model_base_path={base}", f"--monitoring_config_file={file}"
    assert "--rest_api_port" in check(*arguments).warnings[0]
    assert check(*arguments, f"--rest_api_port={free_port()}").metrics_path == "/metrics"


def test_the_help_has_the_flags_of_tf_serving():
    values = flags.FlagValues()
    model_server.define(values)
    shown = {flag.name for flag in values.get_key_flags_for_module(model_server)}
    assert {"backend", "port", "rest_api_port", "model_base_path", "enable_batching"} <= shown
