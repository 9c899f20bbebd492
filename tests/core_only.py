"""What works with the core dependencies alone: a layer in a Keras model, trained, folded, saved, loaded, analysed.

python core_only.py FOLDER            in an environment that has nothing else
python core_only.py FOLDER --blocked  in any environment: packages that the core does not need cannot be imported
"""

import re
import sys
from importlib import metadata

CORE = "keras_posenc"


def needed(name, found=None):
    """Names of the installed distributions that `name` needs without extras, itself included."""
    from packaging.requirements import Requirement

    found = set() if found is None else found
    normal = re.sub(r"[-_.]+", "-", name).lower()
    if normal in found:
        return found
    try:
        requirements = metadata.requires(name) or []
    except metadata.PackageNotFoundError:  # for another platform
        return found
    found.add(normal)
    for requirement in map(Requirement, requirements):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            needed(requirement.name, found)
    return found


class Blocked:
    """Finder that refuses the modules of all other distributions."""

    def __init__(self):
        core = needed(CORE)
        owners = metadata.packages_distributions().items()
        normal = {module: {re.sub(r"[-_.]+", "-", name).lower() for name in names} for module, names in owners}
        self.modules = {module for module, names in normal.items() if not names & core}

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.modules:
            raise ModuleNotFoundError(f"No module named {name!r}: it is not among the core dependencies.", name=name)


def work(folder):
    """Trains a model around `DietAbsAttention`, and uses what needs no extra."""
    import keras
    import numpy as np

    import keras_posenc

    keras.utils.set_random_seed(0)
    tokens = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(12, 16)(tokens)
    x = x + keras_posenc.layers.DietAbsAttention(num_heads=2, key_dim=8, max_length=16)(x, x)
    model = keras.Model(tokens, keras.layers.Dense(2)(x[:, 0]))
    model.compile(keras.optimizers.Adam(0.02), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    ids = np.random.default_rng(0).integers(0, 12, (256, 6))
    labels = (ids[:, 2] < ids[:, 4]).astype("int32")  # only who knows the order can tell
    losses = model.fit(ids, labels, epochs=20, verbose=0).history["loss"]
    assert losses[-1] < 0.6 * losses[0], losses
    model.save(f"{folder}/model.keras")
    expected = model.predict(ids, verbose=0)
    keras_posenc.fold_positions(model, length=6)
    loaded = keras.saving.load_model(f"{folder}/model.keras")
    for other in (model, loaded):
        np.testing.assert_allclose(other.predict(ids, verbose=0), expected, atol=1e-5)
    rng = np.random.default_rng(0)
    attention, values = rng.dirichlet(np.ones(9), (1, 2, 9)).astype("float32"), rng.normal(size=(1, 2, 9, 4))
    effective = keras_posenc.analysis.effective_attention(attention, values.astype("float32"))
    np.testing.assert_allclose(effective @ values, attention @ values, atol=1e-4)
    keras_posenc.models.build("bert_tiny", position="tisa", task="classify", num_classes=2)


if __name__ == "__main__":
    if "--blocked" in sys.argv:
        sys.meta_path.insert(0, Blocked())
    work(sys.argv[1])
    heavy = {"torch", "transformers", "keras_hub", "tensorflow_text", "matplotlib", "orbit"} & set(sys.modules)
    assert not heavy, heavy
    print("the core works")
