"""`make serve`: the demo's models behind one address."""

import json
import shlex
import signal
import sys
import time
from pathlib import Path
from urllib.parse import urlencode

from serving.demoing import exports
from serving.demoing.ports import in_use
from serving.demoing.settings import PAIR, REAL
from serving.demoing.stages import CONFIG, LOG, SERVED, STAGES
from serving.exporting.folder import versions
from serving.measuring.server import HOST, ModelServer


def found(folder):
    """What the demo exported and the encoding it studied; an error says to run it first."""
    folder = Path(folder)
    path = folder / STAGES / "export.json"
    if not (path.is_file() and (folder / CONFIG).is_file()):
        raise ValueError(f"There are no models in {folder} yet: run make demo first.")
    export = json.loads(path.read_text(encoding="utf-8"))["found"]
    export["models"] = {name: of for name, of in export["models"].items() if versions(folder / SERVED / name)}
    if not export["models"]:
        raise ValueError(f"The models of {folder} are gone: run make demo again.")
    return export


def chosen(folder, export):
    """The model of the examples: the one that was studied, or else the first."""
    path = Path(folder) / STAGES / "study.json"
    studied = json.loads(path.read_text(encoding="utf-8"))["found"]["position"] if path.is_file() else None
    return studied if studied in export["models"] else next(iter(export["models"]))


def curl(address, model, text):
    """A command that asks a model about a text, to be pasted into a shell."""
    body = {"signature_name": "text", "instances": [{"text": text, "text_pair": ""}]}
    return f"curl -s -d {shlex.quote(json.dumps(body))} http://{address}/v1/models/{model}:predict"


def viewer(address, model, text, pair=""):
    """A link to the viewer that shows the effective attention of a text."""
    shown = {"model": model, "text": text, **({"pair": pair} if pair else {}), "kind": "effective"}
    return f"http://{address}/viewer/#{urlencode(shown)}"


def serve(folder, port):
    """Starts the server, says where it is when all models are loaded, and waits until it is stopped.

    Args:
        folder: of the demo.
        port: of REST; gRPC has the one before it.
    """
    export = found(folder)
    for each in (port, port - 1):
        if in_use(each):
            raise ValueError(f"Port {each} is in use. Choose others: make serve PORT=8601 takes 8601 and 8600.")
    config = exports.write_config(folder, export["models"])  # the folder may have been moved
    begin, names = time.monotonic(), list(export["models"])
    print(f"Loading {len(names)} models: {', '.join(names)}", flush=True)
    # A server that is told to stop stops its child too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with ModelServer(config, names, Path(folder) / LOG, ports=(port - 1, port)) as server:
            print(f"Ready after {time.monotonic() - begin:.0f} s.\n{text(folder, export, server)}", flush=True)
            server.wait()
            raise RuntimeError(f"The server has ended; the end of {server.log} says why.")
    except KeyboardInterrupt:
        print("\nStopped.")


def text(folder, export, server):
    """What there is to see, and how."""
    address, model = server.addresses["rest"], chosen(folder, export)
    sentence = next(text for text, label in zip(export["texts"], export["labels"]) if label)
    longest = max(export["texts"], key=lambda text: len(text.split()))
    lines = [
        f"REST    http://{address}/v1/models/{model}",
        f"gRPC    {HOST}:{server.ports[0]}",
        f"viewer  http://{address}/viewer/",
        f"        with a sentence: {viewer(address, model, longest)}",
    ]
    if REAL in export["models"]:
        lines.append(f"        a real model: {viewer(address, REAL, *PAIR)}")
    asked = "Is it a sentence of the benchmark's language? The second of the logits is for yes:"
    return "\n".join([*lines, "", asked, "", curl(address, model, sentence), "", "Ctrl-C stops the server."])
