"""JSON text to Python values, and values back to text for messages.

orjson reads nearly everything. What it refuses is read again by Python's decoder, slower, because TF-Serving (rapidjson
with `kParseNanAndInfFlag`) also takes the bare tokens NaN, Infinity and Inf; if that fails too, the message is the one
that rapidjson has for the mistake. Integers beyond 64 bits are floats, as there.
"""

import json
import re
from math import isinf

import numpy as np
import orjson

from serving.server.errors import invalid

MESSAGE_CHARACTERS = 1000
FAR = 1 << 20
LARGEST_FLOAT = float(np.finfo(np.float32).max)
STRING = r'"[^"\\]*(?:\\.[^"\\]*)*"'
STRINGS = re.compile(STRING, re.DOTALL)
NOT_FINITE = re.compile(STRING + r"|-?\bInf(?:inity)?\b|-?\bNaN\b", re.DOTALL)
BRACKETS = re.compile(STRING + r"|[\[\]{}]", re.DOTALL)
ROOT_ENDS = "The document root must not be followed by other values."
TOO_BIG = "Number too big to be stored in double."
# The start of a message of Python's decoder, and what rapidjson says.
MESSAGES = {
    "Expecting value": "Invalid value.",
    "Expecting property name": "Missing a name for object member.",
    "Illegal trailing comma": "Missing a name for object member.",
    "Expecting ':'": "Missing a colon after a name of object member.",
    "Unterminated string": "Missing a closing quotation mark in string.",
    "Invalid control character": "Invalid encoding in string.",
    "Invalid \\escape": "Invalid escape character in string.",
    "Invalid \\uXXXX": "Incorrect hex digit after \\u escape in string.",
    "Extra data": ROOT_ENDS,
}


def parse_object(body):
    """The JSON object in `body` (bytes), as a dict.

    Raises:
        ServingError: INVALID_ARGUMENT for whatever is not one JSON object.
    """
    if not body:
        raise invalid("JSON Parse error: The document is empty")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        value = _parse_leniently(body)
    if type(value) is not dict:
        raise invalid(f"JSON Value: {text_of(value)} Is not object")
    return value


def _parse_leniently(body):
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _error("Invalid encoding in string.", error.start) from None
    if not text.strip(" \t\r\n"):
        raise _error("The document is empty.", len(body))
    try:
        try:
            value = DECODER.decode(text)
        except json.JSONDecodeError as error:
            if not text.startswith(("Inf", "-Inf", "-NaN"), error.pos):
                raise
            value = DECODER.decode(NOT_FINITE.sub(_spell_out, text))
    except json.JSONDecodeError as error:
        raise _error(_message(error), len(text[: error.pos].encode())) from None
    except RecursionError:
        raise invalid("JSON Parse error: Arrays or objects are nested too deeply.") from None
    if r"\ud" in text or r"\uD" in text:
        _check_surrogates(text)
    return value


def _message(error):
    if error.msg.startswith("Expecting ','"):
        closes = ["] after an array element."]  # the guess where looking would take long
        for match in BRACKETS.finditer(error.doc, 0, error.pos if error.pos < FAR else 0):
            if match[0] in "[{":
                closes.append("] after an array element." if match[0] == "[" else "} after an object member.")
            elif match[0] in "]}":
                closes.pop()
        return f"Missing a comma or {closes[-1]}"
    return next(message for start, message in MESSAGES.items() if error.msg.startswith(start))


def _check_surrogates(text):
    """Half a surrogate pair is no character: it could not be sent to the model, nor back in a message."""
    for match in STRINGS.finditer(text):
        try:
            json.loads(match[0]).encode()
        except UnicodeEncodeError:
            raise _error("The surrogate pair in string is invalid.", len(text[: match.start()].encode())) from None


def _error(message, offset):
    return invalid(f"JSON Parse error: {message} at offset: {offset}")


def _spell_out(match):
    token = match[0]
    if token.startswith('"'):
        return token
    return "NaN" if token.endswith("NaN") else "-Infinity" if token.startswith("-") else "Infinity"


def _integer(digits):
    if len(digits) <= 20 and -(2**63) <= (value := int(digits)) < 2**64:
        return value
    return _decimal(digits)


def _decimal(digits):
    value = float(digits)
    if isinf(value):
        raise invalid(f"JSON Parse error: {TOO_BIG}")
    return value


DECODER = json.JSONDecoder(parse_int=_integer, parse_float=_decimal)


def type_of(value):
    """rapidjson's name for the type of a JSON value."""
    if value is None or value is True or value is False:
        return {None: "Null", True: "True", False: "False"}[value]
    return {dict: "Object", list: "Array", str: "String"}.get(type(value), "Number")


def text_of(value):
    """A JSON value as it appears in a message: indented, and cut when it is long."""
    if type(value) is float:
        return decimal_of(value)
    text = ""
    try:
        for piece in json.JSONEncoder(indent=4, ensure_ascii=False).iterencode(value):
            text += piece[: MESSAGE_CHARACTERS + 1]
            if len(text) > MESSAGE_CHARACTERS:
                break
    except RecursionError:
        text += "..."
    return text if len(text) <= MESSAGE_CHARACTERS else text[:MESSAGE_CHARACTERS] + "..."


def decimal_of(value):
    """A float in TF-Serving's spelling: six digits if they give the same float32 back, else nine (double: 17)."""
    if value != value:
        return "NaN"
    if isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    cast, digits = (np.float32, 9) if abs(value) <= LARGEST_FLOAT else (float, 17)
    text = f"{float(cast(value)):.6g}"
    if cast(text) != cast(value):
        text = f"{float(cast(value)):.{digits}g}"
    return text if "." in text or "e" in text else text + ".0"
