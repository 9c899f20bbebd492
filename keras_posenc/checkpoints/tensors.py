"""Named arrays in files: safetensors (one file or shards) and torch's own format."""

import contextlib
import json
import zipfile
from pathlib import Path

SAFETENSORS = "model.safetensors"
TORCH = "pytorch_model.bin"
INDEX = ".index.json"
TORCH_SUFFIXES = (".bin", ".ckpt", ".pt", ".pth")


def find(folder):
    """The weight files of a folder: `(kind, [paths])`, safetensors before torch's format, one file before shards."""
    folder = Path(folder)
    for name, kind in ((SAFETENSORS, "safetensors"), (TORCH, "torch")):
        if (folder / name).is_file():
            return kind, [folder / name]
        if (folder / (name + INDEX)).is_file():
            return kind, _shards(folder / (name + INDEX))
    raise FileNotFoundError(
        f"'{folder}' has no weights: looked for {SAFETENSORS}, {SAFETENSORS + INDEX}, {TORCH} and {TORCH + INDEX}."
    )


def _shards(index):
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, AttributeError) as error:
        raise ValueError(f"'{index}' is not an index of shards: {error!r}") from error
    outside = [name for name in names if Path(name).name != name]
    if outside:
        raise ValueError(f"'{index}' names files outside of its folder: {outside}")
    missing = [name for name in names if not (index.parent / name).is_file()]
    if missing:
        raise FileNotFoundError(f"'{index.parent}' lacks files that {index.name} names: {', '.join(missing)}")
    return [index.parent / name for name in names]


@contextlib.contextmanager
def opened(path):
    """Context of the tensors of a folder, or of one file, as a `Tensors`."""
    path = Path(path)
    if path.is_dir():
        kind, files = find(path)
    else:
        kind, files = ("torch" if path.suffix in TORCH_SUFFIXES else "safetensors"), [path]
    with contextlib.ExitStack() as stack:
        read = _safetensors if kind == "safetensors" else _torch
        found = {}
        for file in files:
            found.update(read(file, stack))
        yield Tensors(found)


class Tensors:
    """A mapping from names to arrays that are read when asked for, one at a time.

    Args:
        found: dict from name to `(shape, function that reads the array)`.
    """

    def __init__(self, found):
        self._found = found

    def __contains__(self, name):
        return name in self._found

    def __iter__(self):
        return iter(self._found)

    def __len__(self):
        return len(self._found)

    def __getitem__(self, name):
        return self._found[name][1]()

    def shape(self, name):
        return tuple(self._found[name][0])

    def renamed(self, names):
        """The same tensors under other names.

        Args:
            names: function from an old name to a new one, or to `None` to leave the tensor out.
        """
        pairs = ((names(name), entry) for name, entry in self._found.items())
        return Tensors({name: entry for name, entry in pairs if name is not None})


def _safetensors(path, stack):
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise ImportError(f"Reading '{path}' needs the package safetensors: pip install safetensors") from error
    import ml_dtypes  # noqa: F401 - makes NumPy know bfloat16, which safetensors asks for by name

    try:
        file = stack.enter_context(safe_open(str(path), framework="np"))
    except (SafetensorError, OSError) as error:
        raise ValueError(f"'{path}' is not a readable safetensors file: {error}. Copy or download it again.") from error
    return {name: (file.get_slice(name).get_shape(), lambda n=name: file.get_tensor(n)) for name in file.keys()}


def _torch(path, stack):
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            f"'{path}' is in torch's format, which only torch reads: pip install torch. Or save the weights as "
            f"{SAFETENSORS}, which needs no torch."
        ) from error
    try:
        # The older format is no zip file and cannot be mapped into memory.
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as error:  # torch raises pickle, zip, runtime and OS errors here
        raise ValueError(f"torch cannot read '{path}' with weights_only=True: {error}") from error
    if isinstance(state, dict) and isinstance(state.get("state_dict"), dict):
        state = state["state_dict"]
    if not isinstance(state, dict):
        raise ValueError(f"'{path}' holds no dict of tensors, but a {type(state).__name__}.")

    def read(tensor):
        tensor = tensor.detach()
        return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()

    return {name: (tensor.shape, lambda t=tensor: read(t)) for name, tensor in state.items() if torch.is_tensor(tensor)}
