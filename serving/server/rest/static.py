"""The attention viewer under `/viewer/`: files of the package `serving.viewer`, and the models there are to look at.

All files are read when the server starts and looked up by name, so no request reaches the file system.
"""

import hashlib
from pathlib import Path

import orjson

from serving.server.rest.api import JSON, Response, error_response

FOLDER = Path(__file__).resolve().parents[2] / "viewer"
TYPES = {
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".mjs": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".json": b"application/json",
    ".svg": b"image/svg+xml",
    ".png": b"image/png",
    ".ico": b"image/x-icon",
    ".woff2": b"font/woff2",
}
# The page may ask any TF-Serving for predictions, and runs no code but its own.
POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    b"connect-src 'self' http: https:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
HEADERS = [
    (b"content-security-policy", POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
]


class Viewer:
    """
    Args:
        models: function that lists the models as dicts, for `config.json`.
        folder: where the files are.
    """

    def __init__(self, models, folder=FOLDER):
        self.models = models
        self.files = {}
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.suffix in TYPES:
                data = path.read_bytes()
                tag = b'"%b"' % hashlib.sha256(data).hexdigest()[:32].encode()
                self.files[path.relative_to(folder).as_posix()] = data, TYPES[path.suffix], tag

    def answer(self, method, path, if_none_match=b""):
        """
        Args:
            method: HTTP method.
            path: unescaped path, `/viewer` or below.
            if_none_match: header of that name.
        """
        if method not in ("GET", "HEAD"):
            return error_response(405, f"{method} is not possible for {path}.", (b"allow", b"GET, HEAD"))
        if path == "/viewer":
            return Response(308, [(b"location", b"viewer/")], b"")
        name = path.removeprefix("/viewer/") or "index.html"
        if name == "config.json":
            body = orjson.dumps({"models": self.models()})
            return Response(200, [JSON, (b"cache-control", b"no-store")], body)
        if name not in self.files:
            return error_response(404, f"There is no {path}.")
        data, kind, tag = self.files[name]
        headers = [(b"content-type", kind), (b"etag", tag), *HEADERS]
        if tag in (each.strip().removeprefix(b"W/") for each in if_none_match.split(b",")):
            return Response(304, headers, b"")
        return Response(200, headers, data)
