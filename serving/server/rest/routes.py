"""What a method and a path ask for.

    POST /v1/models/NAME[/versions/N|/labels/L]:(predict|classify|regress)
    GET  /v1/models/NAME[/versions/N|/labels/L][/metadata]

Names and labels are URL-escaped. They are looked up among the models that are served and never become a path.
"""

import re
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from serving.server.errors import invalid
from serving.server.handlers import Target

WHICH = r"(?:(?i:/versions)/([0-9]+)|(?i:/labels)/([^/:]+))?"
ROUTES = {
    "POST": re.compile(rf"(?i:/v1/models)/([^/:]+){WHICH}:(classify|regress|predict)"),
    "GET": re.compile(rf"(?i:/v1/models)(?:/([^/:]+))?{WHICH}(?:/(metadata))?"),
}
LARGEST_VERSION = 2**63 - 1


class Route(NamedTuple):
    """`predict`, `classify`, `regress`, `metadata` or `status`, and of which model."""

    action: str
    target: Target


def find(method, path):
    """The route of a request under `/v1/`.

    Args:
        method: "GET", "POST", ...
        path: still escaped, without the query.

    Raises:
        ServingError: INVALID_ARGUMENT for every other method or path.
    """
    match = ROUTES[method].fullmatch(path) if method in ROUTES else None
    if match is None:
        raise invalid(f"Malformed request: {method} {path}")
    name, version, label, action = match.groups()
    if name is None:
        raise invalid("Missing model name in request.")
    if version is not None and (len(version) > 19 or int(version) > LARGEST_VERSION):
        raise invalid(f"Failed to convert version: {version} to numeric.")
    target = Target(_unescape(name), None if version is None else int(version), label and _unescape(label))
    return Route(action or "status", target)


def _unescape(text):
    return unquote_to_bytes(text).decode(errors="replace")
