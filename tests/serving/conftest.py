"""Fixtures of the server's tests: SavedModels, written once, and servers."""

import pytest
import serving_models


@pytest.fixture(scope="session")
def saved_model(tmp_path_factory):
    """Version folder of a `serving_models.Model` with factor 2."""
    return str(serving_models.save(tmp_path_factory.mktemp("saved_model") / "1"))


@pytest.fixture(scope="session")
def other_model(tmp_path_factory):
    """One with factor 5 and its default signature only."""
    return str(serving_models.save(tmp_path_factory.mktemp("other_model") / "1", 5.0, ()))


@pytest.fixture(scope="session")
def tf1_model(tmp_path_factory):
    """A SavedModel of TensorFlow 1, `serving_models.save_tf1`."""
    return str(serving_models.save_tf1(tmp_path_factory.mktemp("tf1_model") / "1"))


@pytest.fixture
def base_path(saved_model, tmp_path):
    """Folder of a model with version 1."""
    base = tmp_path / "base"
    base.mkdir()
    serving_models.add_version(saved_model, base, 1)
    return base


@pytest.fixture
def serve(request):
    """Starts servers on free ports, with a client for each."""
    from serving_grpc_client import Client

    from serving.server.embedded import EmbeddedServer
    from serving.server.options import Options

    def serve(**options):
        given = {"port": 0, "model_name": "m", "file_system_poll_wait_seconds": 0.05, "max_num_load_retries": 0}
        server = EmbeddedServer(Options(**{**given, "load_timeout_seconds": 60, "stop_grace_seconds": 10, **options}))
        server.start()
        request.addfinalizer(server.stop)
        client = Client(f"localhost:{server.port}")
        request.addfinalizer(client.channel.close)
        return server, client

    return serve
