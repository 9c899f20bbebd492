"""Serves all models at once: do they answer as in Python, and how fast?"""

import contextlib

import numpy as np

from serving.client import Client
from serving.demoing.settings import BASELINE, PAIR, REAL
from serving.demoing.stages import LOG, SERVED
from serving.measuring import statistics
from serving.measuring.calls import InProcess, Served, take_turns
from serving.measuring.server import ModelServer
from serving.measuring.settings import WAYS

TOLERANCE = 1e-4  # of logits: far above what rounding and folding do, far below what another model does
WARMUP, PAUSE = 5, 0.002


def measure(trained, settings, folder, exported, config, say):
    """Starts the server, checks and times it.

    Args:
        trained: `Trained`.
        settings: `Settings`.
        folder: of the demo.
        exported: what `export` returned.
        config: path of the server's configuration.
        say: for progress.

    Returns: dict of `differences` (largest of logits by model and way), `latency` (by model and way, as
        `statistics.summary` has it, with the `ratio` to the baseline) and `tokens` of the timed request.
    """
    with ModelServer(config, exported["models"], folder / LOG) as server:
        say(f"{len(exported['models'])} models loaded by one server")
        differences = {
            name: {way: difference(address, name, exported) for way, address in server.addresses.items()}
            for name in exported["models"]
        }
        worst = max(max(found.values()) for found in differences.values())
        if not worst <= TOLERANCE:
            raise RuntimeError(f"Served answers differ from the models in Python by up to {worst:.3g}: {differences}")
        say(f"served answers equal those of the models in Python: the largest difference is {worst:.1e}")
        longest = max(exported["texts"], key=lambda text: len(text.split()))
        given = trained.tokenizer.encode([longest])
        return {
            "differences": differences,
            "latency": _latency(settings, folder / SERVED, server.addresses, given),
            "tokens": int(given["token_ids"].shape[1]),
        }


def difference(address, name, exported):
    """The largest difference between logits of the signature `text` and the answers of the model in Python."""
    texts = [PAIR] if name == REAL else [(text, "") for text in exported["texts"]]
    with Client(address, name) as client:
        found = client.read([first for first, _ in texts], [second for _, second in texts])
    return float(np.abs(found.logits - np.asarray(exported["models"][name]["answers"])).max())


def _latency(settings, served, addresses, given):
    """Times one sentence: each model in process and over both protocols, all taking turns."""
    with contextlib.ExitStack() as stack:
        called = {}
        for name in settings.positions:
            called[name, WAYS[0]] = InProcess(served / name)
            for way, address in addresses.items():
                called[name, way] = Served(address, name)
        for each in called.values():
            stack.callback(each.close)
        timed = {key: lambda model=model: model.predict(given) for key, model in called.items()}
        seconds = take_turns(timed, settings.rounds, WARMUP, PAUSE)
    found = {}
    for (name, way), own in seconds.items():
        summary = statistics.summary(own)
        del summary["samples"]
        if BASELINE in settings.positions:
            summary["ratio"] = statistics.ratio(own, seconds[BASELINE, way])
        found.setdefault(name, {})[way] = summary
    return found
