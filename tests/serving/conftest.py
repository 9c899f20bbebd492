"""Fixtures of the server's tests: SavedModels, written once."""

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
