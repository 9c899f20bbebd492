"""A real masked language model, over chemical reactions, whose positions are converted without any training."""

import re

import numpy as np
import pytest

from keras_posenc import checkpoints
from keras_posenc.conversion import Yardstick, to_diet_abs, to_diet_rel, to_tisa

TOKENS = re.compile(r"\[[^\]]+]|Br?|Cl?|[NOSPFIbcnosp().=#\-+\\/:~@?*$]|>>?|%[0-9]{2}|[0-9]")
REACTIONS = [
    "CC(=O)O.OCC>>CC(=O)OCC",
    "O=C(Cl)c1ccccc1.NCc1ccccc1>>O=C(NCc1ccccc1)c1ccccc1",
    "CCOC(=O)c1ccccc1.[Na+].[OH-]>>O=C(O)c1ccccc1",
    "Brc1ccccc1.OB(O)c1ccccc1>>c1ccc(-c2ccccc2)cc1",
    "CC(C)(C)OC(=O)N1CCNCC1.Clc1ncccn1>>CC(C)(C)OC(=O)N1CCN(c2ncccn2)CC1",
    "O=Cc1ccccc1.NCCO>>OCCNCc1ccccc1",
    "CC(C)S.Fc1cccnc1F.O=C([O-])[O-].[K+].[K+]>>CC(C)Sc1ncccc1F",
    "COC(=O)c1ccc(O)cc1.BrCc1ccccc1>>COC(=O)c1ccc(OCc2ccccc2)cc1",
]


@pytest.mark.slow
def test_converted_positions_keep_the_masked_lm_loss():
    """Of the loss that comes with losing positions, every conversion avoids at least half."""
    pytest.importorskip("torch")
    path = checkpoints.installed.find("rxnmapper")
    if path is None:
        pytest.skip("rxnmapper is not installed")
    model = checkpoints.load(path).model
    ids = {token: index for index, token in enumerate((path / "vocab.txt").read_text().splitlines())}
    rows = [[ids["[CLS]"], *(ids[token] for token in TOKENS.findall(text)), ids["[SEP]"]] for text in REACTIONS]
    length = max(map(len, rows))
    token_ids = np.array([row + [0] * (length - len(row)) for row in rows])
    mask = np.array([[1] * len(row) + [0] * (length - len(row)) for row in rows])
    yardstick = Yardstick(model, {"token_ids": token_ids, "padding_mask": mask}, ids["[MASK]"])
    conversions = [(to_tisa, {"kernels": 5, "verbose": False}), (to_diet_rel, {}), (to_diet_abs, {"rank": 32})]
    for convert, options in conversions:
        _, report = convert(model, length=length, inputs=yardstick, **options)
        change = report.change
        lost = change["loss_without_positions"] - change["loss_original"]
        print(report)
        assert change["loss"] - change["loss_original"] < 0.5 * lost
