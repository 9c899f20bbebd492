"""What is in the folder of a SavedModel, read without loading it."""

from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.framework import op_def_registry

from serving.exporting import description, warmup
from serving.exporting.folder import newest, versions

LARGEST = 5  # variables and constants that are listed
HIDDEN = ("__saved_model_init_op", "__saved_model_train_op")  # signatures by which a loader starts a model
VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
# Of tensorflow_text: TensorFlow knows them once that is imported.
TEXT_OPS = ("WordpieceTokenizeWithOffsets", "SentencepieceOp", "SentencepieceTokenizeOp")


def inspect(path):
    """A dict with what a SavedModel takes, gives and holds.

    Args:
        path: a version folder, or the folder of a model, of which the newest version is read.
    """
    path = newest(path)
    graph = read_graph(path)
    variables = variables_of(path)
    others = [version for version in versions(path.parent) if str(version) != path.name]
    return {
        "path": str(path),
        "version": int(path.name) if path.name.isdigit() else None,
        "other_versions": others if path.name.isdigit() else [],
        "tags": list(graph.meta_info_def.tags),
        "tensorflow": graph.meta_info_def.tensorflow_version,
        "signatures": {
            name: {
                "method": signature.method_name,
                "inputs": {key: _tensor(info) for key, info in sorted(signature.inputs.items())},
                "outputs": {key: _tensor(info) for key, info in sorted(signature.outputs.items())},
            }
            for name, signature in sorted(graph.signature_def.items())
            if name not in HIDDEN
        },
        "bytes": {
            "all": sum(_size(file) for file in path.rglob("*")),
            "graph": _size(path / "saved_model.pb"),
            "variables": sum(_size(file) for file in (path / "variables").glob("*")),
            "assets": sum(_size(file) for file in (path / "assets").glob("*")),
        },
        "variables": len(variables),
        "parameters": sum(int(np.prod(v["shape"])) for v in variables),
        "largest_variables": sorted(variables, key=lambda v: -v["bytes"])[:LARGEST],
        "largest_constants": sorted(constants(graph), key=lambda c: -c["bytes"])[:LARGEST],
        "nodes": sum(1 for _ in nodes(graph)),
        "xla": any(function.attr["_XlaMustCompile"].b for function in graph.graph_def.library.function),
        "custom_ops": custom_ops(graph),
        "warmup": _warmup(path),
        "model": description.read(path),
    }


def read_graph(path):
    """The `MetaGraphDef` of a SavedModel that servers load."""
    file = Path(path) / "saved_model.pb"
    saved = saved_model_pb2.SavedModel()
    try:
        saved.ParseFromString(file.read_bytes())
    except Exception as error:  # protobuf's own class of error differs between its implementations
        raise ValueError(f"'{file}' is damaged: {error}") from error
    found = [graph for graph in saved.meta_graphs if "serve" in graph.meta_info_def.tags]
    if not found:
        tags = [list(graph.meta_info_def.tags) for graph in saved.meta_graphs]
        raise ValueError(f"'{path}' has no graph with the tag 'serve', which servers load. Tags found: {tags}")
    return found[0]


def nodes(graph):
    """All nodes of a `MetaGraphDef`, those of its functions included."""
    yield from graph.graph_def.node
    for function in graph.graph_def.library.function:
        yield from function.node_def


def constants(graph):
    """The constants of a `MetaGraphDef`, each with its name, shape and size in bytes."""
    for node in nodes(graph):
        if node.op == "Const":
            value = node.attr["value"].tensor
            shape = [dimension.size for dimension in value.tensor_shape.dim]
            yield {"name": node.name, "shape": shape, "bytes": value.ByteSize()}


def custom_ops(graph):
    """Names of operations that TensorFlow by itself does not have."""
    functions = {function.signature.name for function in graph.graph_def.library.function}
    used = {node.op for node in nodes(graph)} - functions
    return sorted(op for op in used if op in TEXT_OPS or op_def_registry.get(op) is None)


def _tensor(info):
    shape = None if info.tensor_shape.unknown_rank else [d.size for d in info.tensor_shape.dim]
    return {"dtype": tf.dtypes.as_dtype(info.dtype).name, "shape": shape}


def _size(file):
    return file.stat().st_size if file.is_file() else 0


def variables_of(path):
    """Name, dtype, shape and size of the variables of a version."""
    prefix = path / "variables" / "variables"
    if not prefix.with_suffix(".index").is_file():
        return []
    reader = tf.train.load_checkpoint(str(prefix))
    dtypes = reader.get_variable_to_dtype_map()
    found = []
    for key, shape in sorted(reader.get_variable_to_shape_map().items()):
        if key == "_CHECKPOINTABLE_OBJECT_GRAPH":
            continue
        name = key.removesuffix(VALUE).replace(".S", "/")
        size = int(np.prod(shape)) * dtypes[key].size
        found.append({"name": name, "dtype": dtypes[key].name, "shape": list(shape), "bytes": size})
    return found


def _warmup(path):
    try:
        return warmup.counts(path)
    except (ImportError, tf.errors.OpError, ValueError) as error:
        return {"error": str(error)}


def report(found):
    """The same as text; `found` is what `inspect` gave, or a path."""
    found = found if isinstance(found, dict) else inspect(found)
    lines = [f"SavedModel {found['path']}", *_about(found["model"]), "", "Signatures"]
    for name, signature in found["signatures"].items():
        lines.append(f"  {name}")
        for arrow, side in (("<-", "inputs"), ("->", "outputs")):
            lines += [f"    {arrow} {key}: {_type(info)}" for key, info in signature[side].items()]
    sizes = found["bytes"]
    parts = ", ".join(f"{part} {_human(sizes[part])}" for part in ("graph", "variables", "assets"))
    lines += ["", f"Size {_human(sizes['all'])}: {parts}; {found['nodes']:,} operations"]
    lines.append(f"{found['variables']} variables, {found['parameters']:,} values; the largest:")
    lines += [
        f"  {_human(v['bytes']):>10}  {v['dtype']} {tuple(v['shape'])}  {v['name']}" for v in found["largest_variables"]
    ]
    if found["largest_constants"]:
        largest = found["largest_constants"][0]
        lines.append(f"Largest constant in the graph: {_human(largest['bytes'])}, shape {tuple(largest['shape'])}")
    made = found["warmup"]
    if made is None:
        lines.append("No warm-up requests")
    else:
        lines.append("Warm-up requests: " + ", ".join(f"{name} {count}" for name, count in made.items()))
    if found["xla"]:
        lines.append("Compiled by XLA: TF-Serving needs --xla_cpu_compilation_enabled")
    if found["custom_ops"]:
        lines.append(f"Operations beyond TensorFlow's own: {', '.join(found['custom_ops'])}")
    if found["other_versions"]:
        lines.append(f"Other versions: {', '.join(map(str, found['other_versions']))}")
    return "\n".join(lines)


def _about(model):
    if model is None:
        return ["Not described by keras_posenc"]
    folded = f"folded at {model['folded_length']}" if model["folded_length"] else "not folded"
    options = ", ".join(f"{key}={value}" for key, value in model["position_options"].items())
    position = f"{model['position']} ({options})" if options else model["position"]
    doors = ", ".join(model["doors"]) or "no door"
    cut = model.get("parts", 1)
    parts = f"; sequences in {cut} parts, for one thread within and {cut} between operations" if cut > 1 else ""
    lines = [
        f"{model['class']}, task {model['task'] or 'none'}, by keras_posenc {model['keras_posenc']}",
        f"Positions: {position} through {doors}, sharing {model['sharing']}, {folded}; segments: {model['segments']}",
        f"Sizes: {model['num_layers']} layers, {model['num_heads']} heads, width {model['hidden_dim']}, "
        f"vocabulary {model['vocab_size']:,}, at most {model['max_length']} tokens",
        f"Parameters: {model['parameters']:,}, {model['position_parameters']:,} of them positions"
        f"{', in bfloat16' if model['half'] else ''}{parts}",
        f"Logits: {model['logits']}",
    ]
    if model["labels"]:
        lines.append(f"Labels: {', '.join(model['labels'])}")
    if model["tokenizer"]:
        case = "lower case" if model["tokenizer"]["lowercase"] else "cased"
        lines.append(f"Tokenizer: {model['tokenizer']['kind']}, {model['tokenizer']['pieces']:,} pieces, {case}")
    return lines


def _type(info):
    if info["shape"] is None:
        return f"{info['dtype']} of any shape"
    return f"{info['dtype']} ({', '.join('?' if size < 0 else str(size) for size in info['shape'])})"


def _human(size):
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
