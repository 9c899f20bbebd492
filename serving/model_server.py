"""`python -m serving.model_server`: serves SavedModels with TF-Serving's flags, whatever server there is.

    python -m serving.model_server --model_name=mrpc --model_base_path=exported/mrpc --rest_api_port=8501

`--backend=auto` takes the real `tensorflow_model_server` if it is on the PATH, else its Docker image if an engine
answers, else the embedded server, and says which. The real one replaces this process, so that signals and its exit
code are its own; the embedded one finishes the requests under way on SIGTERM and SIGINT.
"""

import os
import shlex
import signal
from importlib import metadata
from pathlib import Path
from urllib.parse import urlencode

from absl import app, flags, logging

from serving.backends import checks, choice, docker, embedded, native
from serving.backends import flags as serving_flags

VIEWER = Path(__file__).resolve().parent / "viewer" / "index.html"


def define(values):
    """Defines all flags of this binary in `values`, usually `absl.flags.FLAGS`."""
    named = dict(flag_values=values)
    serving_flags.define(values)
    flags.adopt_module_key_flags(serving_flags, values)  # for --help
    flags.DEFINE_enum("backend", choice.AUTO, choice.BACKENDS, "Which server to run.", **named)
    flags.DEFINE_string("docker_image", docker.IMAGE, "Image for the docker backend.", **named)
    flags.DEFINE_string("docker_args", "", "More arguments of `docker run`, e.g. '--gpus=all'.", **named)


def run(values):
    """Serves as the parsed flags say, until told to stop."""
    if values.version:
        return print(versions(values.docker_image))
    checked = checks.check(values)
    given = serving_flags.given(values)
    chosen = choice.choose(values.backend, given, values.docker_image)
    say(f"Server: {chosen.backend} ({'; '.join(chosen.reasons)})")
    for warning in checked.warnings:
        say(f"Warning: {warning}")
    if chosen.backend == choice.EMBEDDED:
        return serve(values, given, checked)
    if chosen.backend == choice.NATIVE:
        command = native.command(chosen.program, given)
    else:
        extra = shlex.split(values.docker_args)
        command = docker.command(chosen.program, given, checked.models.values(), values.docker_image, extra)
    say(shlex.join(command))
    for line in addresses(values, checked):
        say(line)
    if values.rest_api_port:
        say(f"viewer: {file_viewer(values.rest_api_port, checked.models)}")
        if not values.rest_api_enable_cors_support:
            say("        (which needs --rest_api_enable_cors_support)")
    os.execv(command[0], command)


def serve(values, given, checked):
    """Runs the embedded server."""
    for sentence in embedded.ignored(given):
        say(f"Warning: {sentence}")

    def leave(number, _):
        os._exit(128 + number)

    # While models are loaded, which may take minutes and cannot be interrupted; nothing listens yet that would have
    # to be closed. `wait` puts handlers of its own in place.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    from serving.server.embedded import EmbeddedServer
    from serving.server.errors import ServingError

    try:
        server = EmbeddedServer(embedded.options(values)).start()
    except ServingError as error:
        raise ValueError(f"{error.code}: {error.message}") from error
    for line in addresses(values, checked):
        say(line)
    if values.rest_api_port:
        say(f"viewer: http://localhost:{values.rest_api_port}/viewer/")
    say("Ready.")
    done = server.wait(loads=False)
    say("Stopped.")
    if not done:
        os._exit(0)


def addresses(values, checked):
    """Lines that say where gRPC, REST and metrics are."""
    lines = []
    if values.port:
        lines.append(f"gRPC:   localhost:{values.port}")
    if values.grpc_socket_path:
        lines.append(f"gRPC:   unix:{values.grpc_socket_path}")
    if values.rest_api_port:
        root = f"http://localhost:{values.rest_api_port}"
        lines += [f"REST:   {root}/v1/models/{name}" for name in checked.models]
        lines += [f"metrics: {root}{checked.metrics_path}"] if checked.metrics_path else []
    return lines


def file_viewer(port, models):
    """Address of the viewer's own file, for servers that do not serve it."""
    shown = urlencode({"server": f"http://localhost:{port}", "model": next(iter(models), "")})
    return f"{VIEWER.as_uri()}#{shown}"


def versions(image):
    """Versions, and the servers that are at hand."""
    return "\n".join(
        [
            f"keras_posenc model server: {metadata.version('keras_posenc')}",
            f"TensorFlow library: {metadata.version('tensorflow')}",
            f"native: {native.find()[1]}",
            f"docker: {docker.find(image, pull=False)[1]}",
        ]
    )


def say(line):
    print(line, flush=True)  # before this process becomes another, or waits


def main(_):
    if not flags.FLAGS["verbosity"].present:
        logging.set_verbosity(logging.INFO)  # as TF-Serving: loading and unloading are said
    try:
        run(flags.FLAGS)
    except (ValueError, OSError) as error:
        raise SystemExit(f"error: {error}") from error


if __name__ == "__main__":
    define(flags.FLAGS)
    app.run(main)
