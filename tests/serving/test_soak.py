"""Memory of a server that is kept busy: flat over answers, maps, mistakes, new connections and new versions.

Twenty seconds by default; KERAS_POSENC_SOAK_SECONDS=300 for longer. Figures are printed (`pytest -s`).
"""

import os
import random
import statistics
import threading
import time

import numpy as np
import pytest
from serving_models import add_version, until
from serving_process_subject import Process, resident

from keras_posenc import models
from serving.client import Client, ClientError, Retry
from serving.exporting import export_model

pytestmark = pytest.mark.integration
SECONDS = float(os.environ.get("KERAS_POSENC_SOAK_SECONDS", "20"))
WARM, RELOADS, LENGTH = max(8.0, SECONDS / 4), 3, 24
VOCABULARY = 60_000  # of 128 numbers: a version is 30 MiB, and one that stays behind is seen
MEBIBYTES = 20  # that memory may differ by: less than a version, more than what an allocator keeps back


@pytest.fixture(scope="module")
def version(tmp_path_factory):
    """Folder of a version."""
    model = models.build("bert_tiny", position="diet_abs", vocab_size=VOCABULARY, max_length=LENGTH)
    signatures = ["effective_attention"]
    return export_model(model, tmp_path_factory.mktemp("soak") / "m", signatures=signatures, warmup_lengths=(8,))


class Users:
    """Threads that ask for all kinds of things until `stop`, each over connections that it closes and opens again."""

    def __init__(self, addresses, count=4):
        self.addresses, self.stopped = addresses, threading.Event()
        self.answered, self.refused, self.failures = 0, 0, []
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self._run, args=(seed,)) for seed in range(count)]
        for thread in self.threads:
            thread.start()

    def stop(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join(120)
        assert not self.failures, self.failures[:3]

    def _run(self, seed):
        chance = random.Random(seed)
        while not self.stopped.is_set():
            address = self.addresses[chance.choice(["rest", "grpc"])]
            with Client(address, "m", retry=Retry(1), timeout=120.0) as client:
                for _ in range(chance.randrange(1, 20)):
                    self._ask(client, chance)

    def _ask(self, client, chance):
        ids = np.full((chance.randrange(1, 5), chance.randrange(1, LENGTH + 1)), 7, "int32")
        given = {"token_ids": ids, "segment_ids": ids * 0, "padding_mask": ids * 0 + 1}
        kind = chance.randrange(8)
        if kind == 0:
            given["token_ids"] = ids + VOCABULARY  # a mistake that the model finds
        elif kind == 1:
            del given["segment_ids"]  # one that the server finds
        elif kind == 2:
            given["token_ids"] = ids.astype("float32") + 0.5
        try:
            found = client.predict(given, chance.choice(["serving_default", "effective_attention"]))
            assert np.isfinite(found["logits"]).all()
            with self.lock:
                self.answered += 1
        except ClientError as error:
            with self.lock:
                self.refused += 1
                if kind > 2 or error.code != "INVALID_ARGUMENT":
                    self.failures.append(str(error))


def test_memory_is_flat(version, tmp_path):
    base = tmp_path / "base"
    base.mkdir()
    add_version(version, base, 1)
    server = Process(tmp_path, base, "--file_system_poll_wait_seconds=1")
    with server.running(1) as process:

        def keep_busy(seconds, *new):
            """Memory in mebibytes, median of the time with the last one, after new versions came and old ones went."""
            users = Users(server.addresses)
            for number in new:
                add_version(version, base, number)
                until(lambda number=number: server.available() == [number], 120)
                samples, end = [], time.monotonic() + seconds / len(new)
                while time.monotonic() < end:
                    time.sleep(0.25)
                    samples.append(resident(process.pid))
            users.stop()
            # Under load it goes up and down by what the allocator keeps back; a leak raises all of it.
            return statistics.median(samples), users

        # One version takes the place of another in the warm-up, so that both have been in memory at once.
        before, _ = keep_busy(WARM, 2)
        after, users = keep_busy(SECONDS, *range(3, 3 + RELOADS))
    print(f"\n{users.answered} answers, {users.refused} refusals, {RELOADS} new versions in {SECONDS:g} s and more:")
    print(f"{before:.1f} MiB after the warm-up, {after:.1f} MiB at the end")
    assert users.answered > 0 and users.refused > 0
    assert after - before < MEBIBYTES
