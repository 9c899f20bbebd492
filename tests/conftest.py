import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import pytest

if keras.backend.backend() == "jax":
    import jax

    jax.config.update("jax_enable_x64", True)


@pytest.fixture(autouse=True)
def seed():
    """Every test starts from the same random state and leaves the policy as it was."""
    keras.utils.set_random_seed(7)
    policy = keras.config.dtype_policy()
    yield
    keras.config.set_dtype_policy(policy)


@pytest.fixture
def rng():
    return np.random.default_rng(3)
