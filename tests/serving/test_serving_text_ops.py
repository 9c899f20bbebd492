"""A process that knows nothing of tensorflow_text serves a model whose graph has its operations."""

import json
import subprocess
import sys

import pytest
from serving_export_subject import make, tokenizer

from keras_posenc.models import Classifier
from serving.exporting import export_model

pytestmark = pytest.mark.integration
SERVE = """
import json, sys
import numpy as np
from serving.server.servable import Servable

before = "tensorflow_text" in sys.modules
servable = Servable(sys.argv[1])
given = {name: np.array([text], object) for name, text in (("text", b"Hello world"), ("text_pair", b""))}
found = servable.run("text", given)
print(json.dumps([before, [token.decode() for token in found["tokens"][0]], found["logits"].tolist()]))
"""


def test_the_server_registers_operations_that_a_model_needs(tmp_path):
    model = make(head=lambda backbone: Classifier(backbone, 3))
    path = export_model(model, tmp_path / "tiny", tokenizer(), signatures=["text"], warmup_lengths=())
    ran = subprocess.run([sys.executable, "-c", SERVE, str(path)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    before, tokens, logits = json.loads(ran.stdout)
    assert not before
    assert tokens == ["[CLS]", "hello", "world", "[SEP]"]
    given = tokenizer().encode(["Hello world"], 12)
    expected = model({name: given[name] for name in ("token_ids", "segment_ids", "padding_mask")})["logits"]
    assert logits[0] == pytest.approx(expected.numpy()[0].tolist(), abs=1e-5)
