"""JSON to arrays and back, by the rules and in the words of TF-Serving's REST API (`util/json_tensor.cc`)."""

import gzip
import json
import math
import zlib

import numpy as np
import pytest
from tensorflow.core.framework import types_pb2 as types
from tensorflow.core.protobuf.meta_graph_pb2 import SignatureDef
from tensorflow_serving.apis import classification_pb2, regression_pb2

from serving.server.errors import ServingError
from serving.server.rest import api, encode, routes
from serving.server.rest.decode import decode_predict
from serving.server.rest.examples import decode_examples
from serving.server.rest.parsing import decimal_of


def decode(body, **dtypes):
    signature = SignatureDef()
    for name, dtype in dtypes.items():
        signature.inputs[name].dtype = dtype
    return decode_predict(body if isinstance(body, bytes) else body.encode(), lambda name: signature)


def refusal(body, **dtypes):
    with pytest.raises(ServingError) as caught:
        decode(body, **dtypes)
    return caught.value


def encoded(outputs, rows):
    return b"".join(encode.encode_predictions(outputs, rows))


@pytest.mark.parametrize(
    "dtype, body, expected",
    [
        (types.DT_FLOAT, "[1, 2.5, -3e2]", np.float32([1, 2.5, -300])),
        (types.DT_FLOAT, "[NaN, Infinity, -Infinity, Inf]", np.float32([math.nan, math.inf, -math.inf, math.inf])),
        (types.DT_FLOAT, "[16777215]", np.float32([16777215])),
        (types.DT_FLOAT, "[16777217.0, 1]", np.float32([16777216, 1])),
        (types.DT_DOUBLE, "[1, 0.1, 9007199254740991]", np.float64([1, 0.1, 2**53 - 1])),
        (types.DT_INT32, "[[-2147483648], [2147483647]]", np.int32([[-(2**31)], [2**31 - 1]])),
        (types.DT_INT64, "[9223372036854775807]", np.int64([2**63 - 1])),
        (types.DT_UINT64, "[18446744073709551615]", np.uint64([2**64 - 1])),
        (types.DT_UINT8, "[255]", np.uint8([255])),
        (types.DT_BOOL, "[true, false]", np.array([True, False])),
        (types.DT_STRING, '["a", "\\u00e9\\ud83d\\ude00"]', np.array([b"a", "é😀".encode()], object)),
        (types.DT_STRING, '["a", {"b64": "aGk="}, {"b64": "aGk"}]', np.array([b"a", b"hi", b"hi"], object)),
        (types.DT_INT32, "[[], []]", np.zeros((2, 0), np.int32)),
        (types.DT_INT32, "[[[1, 2], [3, 4], [5, 6]]]", np.int32([[[1, 2], [3, 4], [5, 6]]])),
    ],
)
@pytest.mark.parametrize("form", ["inputs", "instances"])
def test_values(dtype, body, expected, form):
    request = decode(f'{{"{form}": {body}}}', x=dtype)
    assert request.rows == (form == "instances")
    found = request.inputs["x"]
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


def test_named_inputs_in_rows_and_columns_are_the_same():
    dtypes = dict(ids=types.DT_INT32, text=types.DT_STRING)
    rows = decode('{"instances": [{"ids": [1, 2], "text": "a"}, {"text": {"b64": "Yg=="}, "ids": [3, 4]}]}', **dtypes)
    columns = decode('{"inputs": {"ids": [[1, 2], [3, 4]], "text": ["a", "b"]}, "unknown": 1}', **dtypes)
    for name in dtypes:
        np.testing.assert_array_equal(rows.inputs[name], columns.inputs[name])


def test_a_scalar_in_columns_has_no_dimension_and_in_rows_the_batch():
    assert decode('{"inputs": 5}', x=types.DT_INT32).inputs["x"].shape == ()
    assert decode('{"inputs": {"b64": "aGk="}}', x=types.DT_STRING).inputs["x"].item() == b"hi"
    assert decode('{"instances": [5]}', x=types.DT_INT32).inputs["x"].shape == (1,)
    assert decode('{"inputs": {"x": [5]}}', x=types.DT_INT32).inputs["x"].shape == (1,)


WRONG_TYPE = "JSON Value: {} Type: {} is not of expected type: {}"


@pytest.mark.parametrize(
    "dtype, value, message",
    [
        (types.DT_INT32, "1.0", WRONG_TYPE.format("1.0", "Number", "int32")),
        (types.DT_INT32, "2147483648", WRONG_TYPE.format("2147483648", "Number", "int32")),
        (types.DT_INT8, "300", WRONG_TYPE.format("300", "Number", "int8")),
        (types.DT_UINT64, "-1", WRONG_TYPE.format("-1", "Number", "uint64")),
        (types.DT_INT64, "9223372036854775808", WRONG_TYPE.format("9223372036854775808", "Number", "int64")),
        (types.DT_INT32, "true", WRONG_TYPE.format("true", "True", "int32")),
        (types.DT_INT32, "null", WRONG_TYPE.format("null", "Null", "int32")),
        (types.DT_INT32, '"1"', WRONG_TYPE.format('"1"', "String", "int32")),
        (types.DT_FLOAT, '"1"', WRONG_TYPE.format('"1"', "String", "float")),
        (types.DT_FLOAT, '{"b64": "aGk="}', WRONG_TYPE.format('{\n    "b64": "aGk="\n}', "Object", "float")),
        (types.DT_BOOL, "1", WRONG_TYPE.format("1", "Number", "bool")),
        (types.DT_STRING, "1", WRONG_TYPE.format("1", "Number", "string")),
        (types.DT_FLOAT, "16777217", "Cannot convert JSON value: 16777217 to float without loss of precision."),
        (types.DT_FLOAT, "1e39", "Cannot convert JSON value: 1e+39 to float without loss of precision."),
        (types.DT_DOUBLE, "9007199254740993", "Cannot convert JSON value: 9007199254740993 to double without loss of"),
        (types.DT_STRING, '{"b64": "a"}', "Unable to base64 decode"),
        (types.DT_STRING, '{"b64": "aGk==="}', "Unable to base64 decode"),
        (types.DT_STRING, '{"b64": "\\u00e9"}', "Unable to base64 decode"),
    ],
)
def test_values_of_a_wrong_type(dtype, value, message):
    error = refusal(f'{{"inputs": [[{value}]]}}', x=dtype)
    assert error.code == "INVALID_ARGUMENT" and error.message.startswith(message)
    error = refusal(f'{{"instances": [{value}]}}', x=dtype)
    prefix = "Failed to process element: 0 of 'instances' list. Error: INVALID_ARGUMENT: "
    assert error.code == "INVALID_ARGUMENT" and error.message.startswith(prefix + message)


def test_half_has_no_json_form():
    error = refusal('{"inputs": [1.5]}', x=types.DT_HALF)
    assert (error.code, error.message) == ("UNIMPLEMENTED", "Conversion of JSON Value: 1.5 to type: half")
    assert error.http_status == 501


ELEMENT = "Failed to process element: 1 of 'instances' list. Error: INVALID_ARGUMENT: "


@pytest.mark.parametrize(
    "body, message",
    [
        ('{"instances": [[1, 2], [3]]}', ELEMENT + "Expecting tensor size: 2 but got: 1"),
        ('{"instances": [[1, 2], [[3], [4]]]}', ELEMENT + "Expecting shape [2] but got: [2,1]"),
        ('{"instances": [[1], 2]}', ELEMENT + "Expecting shape [1] but got: []"),
        (
            '{"instances": [[[1], [2]], [[1], 2]]}',
            ELEMENT + "JSON Value: 2 found at incorrect level: 2 in the JSON DOM. Expected at level: 2",
        ),
        ('{"inputs": [[1, 2], [3]]}', "Encountered list at unexpected size: 1 at level: 1 expected size: 2"),
        ('{"inputs": [1, [2]]}', "Encountered list at unexpected level: 1 expected < 1"),
        ('{"inputs": ' + "[" * 70 + "]" * 70 + "}", "Encountered list at unexpected level: 64 expected < 64"),
        ('{"instances": [1, {"x": 1}]}', "Expecting value/list but got object at item 1 of input list"),
        ('{"instances": [{"x": 1}, 1]}', "Expecting object but got list at item 1 of input list"),
        ('{"instances": [{"x": 1}, {"x": 1, "z": 2}]}', "Failed to process element: 1 key: z of 'instances' list. "),
        ('{"inputs": {"z": 1}}', "Missing named input: x in 'inputs' object."),
        ('{"instances": []}', "JSON Value: {\n    \"instances\": []\n} No values in 'instances' array"),
        ('{"instances": 1}', "JSON Value: {\n    \"instances\": 1\n} Excepting 'instances' to be an list/array"),
        ("{}", "Missing 'inputs' or 'instances' key"),
        ("[1]", "JSON Value: [\n    1\n] Is not object"),
    ],
)
def test_requests_of_a_wrong_form(body, message):
    error = refusal(body, x=types.DT_INT32)
    assert error.code == "INVALID_ARGUMENT" and error.message.startswith(message)


def test_several_inputs_need_names():
    dtypes = dict(b=types.DT_INT32, a=types.DT_INT32)
    assert refusal('{"instances": [1]}', **dtypes).message.startswith("instances is a plain list, but expecting")
    assert refusal('{"inputs": [1]}', **dtypes).message.startswith("inputs is a plain value/list, but expecting")
    assert refusal('{"instances": [{"a": 1}]}', **dtypes).message == (
        "Failed to process element: 0 of 'instances' list. JSON object: {\n    \"a\": 1\n} keys must be equal to: a,b"
    )
    both = refusal('{"instances": [1], "inputs": [1]}', **dtypes).message
    assert both.endswith("Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist ")


@pytest.mark.parametrize(
    "body, message",
    [
        (b"", "The document is empty"),
        (b" \n", "The document is empty. at offset: 2"),
        (b'{"a" 1}', "Missing a colon after a name of object member. at offset: 5"),
        (b'{"a": [1 2]}', "Missing a comma or ] after an array element. at offset: 9"),
        (b'{"a": "[" 2}', "Missing a comma or } after an object member. at offset: 10"),
        (b"{1: 2}", "Missing a name for object member. at offset: 1"),
        ('{"é": x}'.encode(), "Invalid value. at offset: 7"),
        (b"{} {}", "The document root must not be followed by other values. at offset: 3"),
        (b'{"a": "b', "Missing a closing quotation mark in string. at offset: 6"),
        (b'{"a": "\\x"}', "Invalid escape character in string. at offset: 7"),
        (b'{"a": "\\ud800", "b": NaN}', "The surrogate pair in string is invalid. at offset: 6"),
        (b'{"a": "\xff"}', "Invalid encoding in string. at offset: 7"),
        (b'{"a": 1e400}', "Number too big to be stored in double."),
        (b'{"a": NaN, "b": 1' + b"0" * 5000 + b"}", "Number too big to be stored in double."),
        (b'{"a": ' + b"[" * 100_000, "Arrays or objects are nested too deeply."),
        (b'{"a": ' * 100_000, "Arrays or objects are nested too deeply."),
    ],
)
def test_what_is_no_json(body, message):
    error = refusal(body)
    assert (error.code, error.message) == ("INVALID_ARGUMENT", f"JSON Parse error: {message}")


def test_a_number_beyond_64_bits_is_a_decimal_with_and_without_nan_beside_it():
    for other in ("1", "NaN"):
        found = decode(f'{{"inputs": [18446744073709551616, {other}]}}', x=types.DT_DOUBLE).inputs["x"]
        assert found[0] == 2.0**64


def test_messages_do_not_repeat_large_requests():
    error = refusal('{"instances": 1, "other": "' + "a" * 1_000_000 + '"}', x=types.DT_INT32)
    assert len(error.message) < 2000


@pytest.mark.parametrize("value", [0.2, 1.0, 3.14159265, 9e6, 3e-5, 1e39, -123456789.0, math.inf, -math.inf])
def test_decimals_in_messages_give_the_number_back(value):
    text = decimal_of(value)
    kind = np.float32 if abs(value) < 3e38 else np.float64
    assert kind(float(text.replace("Infinity", "inf"))) == kind(value)
    assert {0.2: "0.2", 1.0: "1.0", 3.14159265: "3.14159274", 9e6: "9e+06"}.get(value, text) == text


ROWS = {"a": np.float32([[1, 0.1], [1e-7, 123456.79]]), "b": np.int64([-(2**63), 2**63 - 1])}


def test_rows_and_columns():
    assert encoded({"a": ROWS["a"]}, True) == b'{"predictions":[[1.0,0.1],[1e-7,123456.79]]}'
    assert encoded({"a": ROWS["a"]}, False) == b'{"outputs":[[1.0,0.1],[1e-7,123456.79]]}'
    assert json.loads(encoded(ROWS, True)) == {
        "predictions": [{"a": [1.0, 0.1], "b": -(2**63)}, {"a": [1e-7, 123456.79], "b": 2**63 - 1}]
    }
    assert json.loads(encoded(ROWS, False)) == {
        "outputs": {"a": [[1.0, 0.1], [1e-7, 123456.79]], "b": [-(2**63), 2**63 - 1]}
    }


@pytest.mark.parametrize(
    "array, text",
    [
        (np.float32([math.nan, 1, math.inf, -math.inf]), b"[NaN,1.0,Infinity,-Infinity]"),
        (np.float64([[math.nan], [0.1]]), b"[[NaN],[0.1]]"),
        (np.array(math.nan, np.float32), b"NaN"),
        (np.array(0.1, np.float32), b"0.1"),
        (np.array(7, np.uint64), b"7"),
        (np.array(True), b"true"),
        (np.array([True, False]), b"[true,false]"),
        (np.array([b'a"\n', "é".encode()], object), '["a\\"\\n","é"]'.encode()),
        (np.array([[b"a"], [b"b"]], object), b'[["a"],["b"]]'),
        (np.array(b"a", object), b'"a"'),
        (np.zeros((2, 0), np.float32), b"[[],[]]"),
        (np.arange(6, dtype=np.int32).reshape(2, 3).T, b"[[0,3],[1,4],[2,5]]"),
    ],
)
def test_values_in_columns(array, text):
    assert encoded({"x": array}, False) == b'{"outputs":' + text + b"}"


def test_outputs_named_bytes_are_base64():
    strings = np.array([b"\xff\x00", b""], object)
    assert json.loads(encoded({"x_bytes": strings}, True)) == {"predictions": [{"b64": "/wA="}, {"b64": ""}]}
    assert json.loads(encoded({"x": strings}, True)) == {"predictions": ["\ufffd\x00", ""]}
    assert encoded({"x_bytes": np.float32([1])}, True) == b'{"predictions":[1.0]}'


@pytest.mark.parametrize(
    "outputs, rows, message",
    [
        ({}, True, "Cannot convert empty tensor map to JSON"),
        ({"x": np.float32(1)}, True, "Tensor name: x has no shape information "),
        (
            {"x": np.zeros(2), "y": np.zeros(3)},
            True,
            "Tensor name: y has inconsistent batch size: 3 expecting: 2",
        ),
        ({"x": np.zeros(2, np.float16)}, False, "Failed to write JSON value for tensor type: half"),
        ({"x": np.zeros(2, np.complex64)}, False, "Failed to write JSON value for tensor type: complex64"),
    ],
)
def test_outputs_without_json_form_are_refused_before_anything_is_sent(outputs, rows, message):
    outputs = {name: np.asarray(value) for name, value in outputs.items()}
    with pytest.raises(ServingError) as caught:
        encode.encode_predictions(outputs, rows)
    assert (caught.value.code, caught.value.message) == ("INVALID_ARGUMENT", message)


@pytest.mark.parametrize("shape", [(2, 3, 300, 300), (1, 200_000), (200_000,), (70_000, 2), (3, 1, 1, 100_000)])
@pytest.mark.parametrize("rows", [True, False])
def test_large_arrays_come_in_chunks_and_lose_nothing(shape, rows):
    array = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    array.flat[::1000] = np.nan
    outputs = {"x": array, "y": np.arange(shape[0])} if len(shape) < 4 else {"x": array}
    if len(shape) < 4 and shape[0] > 2 and rows:
        outputs = {"x": array}
    chunks = list(encode.encode_predictions(outputs, rows))
    assert len(chunks) > 1 and all(len(chunk) >= encode.CHUNK for chunk in chunks[:-1])
    assert max(map(len, chunks)) < encode.CHUNK + 32 * encode.SLAB
    found = json.loads(b"".join(chunks))["predictions" if rows else "outputs"]
    if len(outputs) == 2:
        found = [row["x"] for row in found] if rows else found["x"]
    np.testing.assert_array_equal(np.array(found, np.float32), array)


def test_every_float_is_read_back_exactly():
    bits = np.random.default_rng(0).integers(0, 2**32, 50_000, dtype=np.uint32).view(np.float32)
    doubles = np.random.default_rng(0).integers(0, 2**64, 50_000, dtype=np.uint64).view(np.float64)
    for dtype, array in ((types.DT_FLOAT, bits), (types.DT_DOUBLE, doubles)):
        body = encoded({"x": array}, False).replace(b"outputs", b"inputs")
        np.testing.assert_array_equal(decode(body, x=dtype).inputs["x"], array)


def test_classifications_and_regressions():
    result = classification_pb2.ClassificationResult()
    result.classifications.add().classes.add(label='a"', score=0.1)
    result.classifications.add().classes.add(score=math.inf)
    assert encode.encode_classifications(result) == b'{"results":[[["a\\"",0.1]],[["",Infinity]]]}'
    regressions = regression_pb2.RegressionResult(regressions=[{"value": 2}, {"value": math.nan}])
    assert encode.encode_regressions(regressions) == b'{"results":[2.0,NaN]}'
    with pytest.raises(ServingError, match="Cannot convert empty ClassificationResults to JSON"):
        encode.encode_classifications(classification_pb2.ClassificationResult())
    with pytest.raises(ServingError, match="Cannot convert empty RegressionResults to JSON"):
        encode.encode_regressions(regression_pb2.RegressionResult())


def test_examples_with_context():
    name, (first, second) = decode_examples(
        b'{"signature_name": "s", "context": {"c": 1, "d": "x"}, "examples": '
        b'[{"f": [1.5, NaN], "i": [1, true], "s": ["a", {"b64": "/w=="}], "c": 2.5}, {"none": []}]}'
    )
    assert name == "s"
    feature = first.features.feature
    assert feature["f"].float_list.value[0] == 1.5 and math.isnan(feature["f"].float_list.value[1])
    assert feature["i"].int64_list.value == [1, 1]
    assert feature["s"].bytes_list.value == [b"a", b"\xff"]
    assert feature["c"].float_list.value == [2.5] and feature["c"].WhichOneof("kind") == "float_list"
    assert feature["d"].bytes_list.value == [b"x"]
    assert second.features.feature["c"].int64_list.value == [1]
    assert second.features.feature["none"].WhichOneof("kind") is None


@pytest.mark.parametrize(
    "body, message",
    [
        ("{}", "JSON Value: {} When method is classify, key 'examples' is expected and was not found"),
        ('{"examples": 1}', "JSON Value: {\n    \"examples\": 1\n} Expecting 'examples' value to be an list/array"),
        ('{"examples": []}', "JSON Value: {\n    \"examples\": []\n} 'examples' value is an empty array"),
        ('{"examples": [1]}', "Example must be JSON object but got JSON Number"),
        ('{"examples": [{}], "context": []}', "Example must be JSON object but got JSON Array"),
        ('{"examples": [{"f": [1, 1.5]}]}', "Unexpected element type in feature: f expecting type: int64"),
        ('{"examples": [{"f": ["a", 1.5]}]}', "Unexpected element type in feature: f expecting type: bytes"),
        ('{"examples": [{"f": [1.5, true]}]}', "Unexpected element type in feature: f expecting type: float"),
        ('{"examples": [{"f": null}]}', "Feature: f has element with unexpected JSON type: Null"),
        ('{"examples": [{"f": [[1]]}]}', "Feature: f has element with unexpected JSON type: Array"),
        ('{"examples": [{"f": {"a": 1}}]}', "Feature: f has element with unexpected JSON type: Object"),
        ('{"examples": [{"f": {"b64": "aGk=", "c": 1}}]}', "Feature: f has element with unexpected JSON type: Object"),
        ('{"examples": [{"f": 18446744073709551615}]}', "Feature: f has uint64 element. Only int64 is supported."),
        ('{"examples": [{"f": 1e39}]}', "Cannot convert JSON value: 1e+39 to float without loss of precision."),
    ],
)
def test_examples_that_are_none(body, message):
    with pytest.raises(ServingError) as caught:
        decode_examples(body.encode())
    assert (caught.value.code, caught.value.message) == ("INVALID_ARGUMENT", message)


@pytest.mark.parametrize(
    "method, path, expected",
    [
        ("POST", "/v1/models/m:predict", ("predict", ("m", None, None))),
        ("POST", "/V1/Models/m/versions/12:classify", ("classify", ("m", 12, None))),
        ("POST", "/v1/models/m/labels/stable:regress", ("regress", ("m", None, "stable"))),
        ("POST", "/v1/models/a%2Fb%3Ac%20%C3%A9:predict", ("predict", ("a/b:c é", None, None))),
        ("GET", "/v1/models/m", ("status", ("m", None, None))),
        ("GET", "/v1/models/m/versions/3", ("status", ("m", 3, None))),
        ("GET", "/v1/models/m/labels/a%2Fb/metadata", ("metadata", ("m", None, "a/b"))),
    ],
)
def test_routes(method, path, expected):
    assert routes.find(method, path) == expected


@pytest.mark.parametrize(
    "method, path, message",
    [
        ("GET", "/v1/models/m:predict", "Malformed request: GET /v1/models/m:predict"),
        ("POST", "/v1/models/m", "Malformed request: POST /v1/models/m"),
        ("PUT", "/v1/models/m", "Malformed request: PUT /v1/models/m"),
        ("POST", "/v1/models/m/versions/1/labels/a:predict", "Malformed request: POST /v1/models/m/versions/1/labels"),
        ("POST", "/v1/models/a/b:predict", "Malformed request: POST /v1/models/a/b:predict"),
        ("POST", "/v1/models/m/versions/\u0661:predict", "Malformed request: POST"),
        ("POST", "/v1/models/m:PREDICT", "Malformed request: POST /v1/models/m:PREDICT"),
        ("GET", "/v1/models", "Missing model name in request."),
        ("GET", "/v1/models/m/versions/9223372036854775808", "Failed to convert version: 9223372036854775808 to"),
        ("GET", f"/v1/models/m/versions/{'9' * 5000}", "Failed to convert version: 999"),
    ],
)
def test_paths_that_lead_nowhere(method, path, message):
    with pytest.raises(ServingError) as caught:
        routes.find(method, path)
    assert caught.value.code == "INVALID_ARGUMENT" and caught.value.message.startswith(message)


def test_gzip_bodies_are_bounded_and_never_trusted():
    body = b'{"inputs": 1}'
    assert api.unzip(gzip.compress(body), 100) == body
    assert api.unzip(gzip.compress(b" " * 10_000_000), 1_000_000) is None
    for broken in (body, b"", gzip.compress(body)[:-9], zlib.compress(body)):
        assert api.unzip(broken, 100) == b""
