"""What the README and the docstrings say is run."""

import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_posenc
import serving
import training
from keras_posenc import encodings, layers

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
MODULES = [
    module.name
    for package in (keras_posenc, serving, training)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if not module.name.endswith("__main__")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name):
    names = {"keras": keras, "keras_posenc": keras_posenc, "np": np}
    tests = doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(name), extraglobs=names)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for test in tests:
        runner.run(test)
    assert runner.failures == 0


PUBLIC = [
    (module, name)
    for module in (keras_posenc, *(getattr(keras_posenc, name) for name in keras_posenc.__all__))
    if inspect.ismodule(module)
    for name in module.__all__
    if callable(getattr(module, name))
]


@pytest.mark.parametrize("module, name", PUBLIC, ids=lambda value: getattr(value, "__name__", value))
def test_everything_public_has_a_docstring_of_its_own(module, name):
    """Not one that is inherited from Keras."""
    found = getattr(module, name)
    assert vars(found).get("__doc__") if inspect.isclass(found) else found.__doc__


def test_documentation_is_built_from_the_docstrings(tmp_path):
    import pdoc

    pdoc.render.configure(docformat="google")
    pdoc.pdoc("keras_posenc.layers", output_directory=tmp_path)
    page = (tmp_path / "keras_posenc" / "layers.html").read_text(encoding="utf-8")
    for name in layers.__all__:
        assert f'id="{name}"' in page, name
    assert "sum_s a_s exp" in page  # the equation of the encoding, on the page of the attention


@pytest.mark.integration
def test_python_in_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.S)
    assert blocks
    scope = {}
    for block in blocks:
        exec(compile(block.replace("/tmp/", f"{tmp_path}/"), "README.md", "exec"), scope)


def test_every_encoding_is_in_the_catalogue():
    catalogue = README.split("## The catalogue")[1].split("\n## ")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", catalogue, flags=re.M)) == encodings.names()


H, n, d_h, rank, k, S, m = 3, 10, 4, 2, 5, 6, 7
d = H * d_h
# The column "parameters" of the catalogue: encoding, options, count.
COUNTS = [
    ("none", {}, 0),
    ("learned", {}, n * d),
    ("sinusoidal", {}, 0),
    ("floater", {}, 2 * d**2 + 4 * d),
    ("diet_abs", {"rank": rank}, 2 * H * n * rank),
    ("diet_rel", {}, H * (2 * n - 1)),
    ("diet_abs_lin", {"rank": rank, "num_keys": k}, H * (n + k) * rank),
    ("t5", {}, 32 * H),
    ("tisa", {"kernels": S}, 3 * S * H),
    ("tupe", {}, n * d + 2 * d**2 + 2 * d),
    ("tupe_rel", {}, n * d + 2 * d**2 + 2 * d + 32 * H),
    ("alibi", {}, 0),
    ("kerple", {}, 2 * H),
    ("fire", {}, 66 + 32 * H),
    ("shaw", {"max_distance": m}, 2 * (2 * m + 1) * d_h),
    ("transformer_xl", {}, d**2 + 2 * d),
    ("synthesizer", {"kind": "random"}, H * n**2),
    ("synthesizer", {"kind": "factorized", "rank": rank}, 2 * H * n * rank),
    ("synthesizer", {"kind": "dense"}, d * n),
    ("rotary", {}, 0),
]


@pytest.mark.parametrize("name, options, count", COUNTS)
def test_parameters_in_the_catalogue(name, options, count):
    encoding = encodings.create(name, options, num_heads=H, key_dim=d_h, max_length=n)
    encoding.build((None, None, d))
    assert encoding.count_params() == count


def test_every_encoding_has_its_parameters_counted():
    assert sorted({name for name, _, _ in COUNTS}) == encodings.names()
