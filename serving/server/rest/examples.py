"""The body of a classify or regress request to `tf.train.Example`.

    {"signature_name": "...", "context": {feature: value}, "examples": [{feature: value or [values]}, ...]}

Integers and booleans make int64 features, decimals float features, strings and `{"b64": "..."}` bytes features; one
feature has one kind. Features of the context are part of every example that does not have them itself.
"""

from math import isfinite

from tensorflow.core.example import example_pb2

from serving.server.errors import invalid
from serving.server.rest.decode import decode_base64, is_base64, signature_name
from serving.server.rest.parsing import LARGEST_FLOAT, parse_object, text_of, type_of

KINDS = {"bytes_list": "bytes", "float_list": "float", "int64_list": "int64"}


def decode_examples(body):
    """Signature name ("" if none was given) and the list of examples in `body`."""
    document = parse_object(body)
    name = signature_name(document)
    context = _example(document["context"]) if "context" in document else None
    examples = document.get("examples")
    if "examples" not in document:
        problem = "When method is classify, key 'examples' is expected and was not found"
    elif type(examples) is not list:
        problem = "Expecting 'examples' value to be an list/array"
    elif not examples:
        problem = "'examples' value is an empty array"
    else:
        return name, [_example(example, context) for example in examples]
    raise invalid(f"JSON Value: {text_of(document)} {problem}")


def _example(value, context=None):
    if type(value) is not dict:
        raise invalid(f"Example must be JSON object but got JSON {type_of(value)}")
    example = example_pb2.Example()
    if context is not None:
        example.CopyFrom(context)
    for name, content in value.items():
        feature = example.features.feature[name]
        feature.Clear()
        for item in content if type(content) is list else [content]:
            _add(feature, name, item)
    return example


def _add(feature, name, value):
    kind, converted = _feature(name, value)
    present = feature.WhichOneof("kind")
    if present not in (None, kind):
        raise invalid(f"Unexpected element type in feature: {name} expecting type: {KINDS[present]}")
    getattr(feature, kind).value.append(converted)


def _feature(name, value):
    """The kind of feature that a JSON value makes, and the value in it."""
    if value is None or type(value) is list or (type(value) is dict and not is_base64(value)):
        raise invalid(f"Feature: {name} has element with unexpected JSON type: {type_of(value)}")
    if type(value) is dict:
        return "bytes_list", decode_base64(value)
    if type(value) is str:
        return "bytes_list", value.encode()
    if type(value) is float:
        if isfinite(value) and abs(value) > LARGEST_FLOAT:
            raise invalid(f"Cannot convert JSON value: {text_of(value)} to float without loss of precision.")
        return "float_list", value
    if value >= 2**63:
        raise invalid(f"Feature: {name} has uint64 element. Only int64 is supported.")
    return "int64_list", int(value)
