"""The parameter counts of two papers, beside those of the models built here.

`python -m keras_posenc.models.tables` prints table 6 of DIET (Chen et al., 2021, arXiv:2104.08698), the parameters of
BERT-base with different position encodings, and table 2 of TISA (Wennberg & Henter, 2021, arXiv:2106.01950), the
position parameters alone. Every count is that of a model whose layers were all created; only their values were not.
"""

import concurrent.futures

import keras

from keras_posenc.models.presets import build
from keras_posenc.models.summary import PositionSummary

# DIET, table 6: (name, options, millions of parameters in the paper: English, multilingual).
DIET_TABLE_6 = (
    ("learned", dict(position="learned"), 110.1, 178.9),
    ("DIET-REL", dict(position="diet_rel", segments="per_head"), 109.9, 178.7),
    ("DIET-REL, shared by layers", dict(position="diet_rel", segments="per_head", sharing="layer"), 109.7, 178.5),
    ("DIET-ABS, d_p=128", dict(position="diet_abs", segments="per_head", rank=128), 128.6, 197.4),
    (
        "DIET-ABS, d_p=128, shared by layers",
        dict(position="diet_abs", segments="per_head", rank=128, sharing="layer"),
        111.3,
        180.1,
    ),
)

# TISA, table 2: models of 12 layers and 12 heads; `n` positions of width `d`.
TISA_SHAPES = (
    ("Longformer", "bert_base", dict(max_length=4096), 4096, 768),
    ("BERT", "bert_base", {}, 512, 768),
    ("ALBERT", "albert_base", {}, 512, 128),
)

# (name, options, the paper's formula as text and as a function of n and d).
TISA_ENCODINGS = (
    ("standard", dict(position="learned"), "nd", lambda n, d: n * d),
    ("TUPE", dict(position="tupe", sharing="layer"), "nd + 2d^2", lambda n, d: n * d + 2 * d * d),
    (
        "TUPE, tied [CLS]",
        dict(position="tupe", sharing="layer", untie_cls=False),
        "nd + 2d^2",
        lambda n, d: n * d + 2 * d * d,
    ),
    ("TISA, S=5", dict(position="tisa", kernels=5), "3SHL", lambda n, d: 3 * 5 * 12 * 12),
)

NOTES = """\
TUPE has two rows more here, the vectors of [CLS] that its text describes: 2d parameters that the formula leaves out.
The formula takes the projections of positions to be d x d. ALBERT's positions have d=128, but its attention is 768
wide, and so are the projections in a model that can be run: 2 * 128 * 768."""


def count(name, **options):
    """A `PositionSummary` of a model that has no values: its weights know their shapes and take no memory."""

    def run():
        with keras.StatelessScope(initialize_variables=False):
            return PositionSummary(build(name, **options))

    # Keras keeps a list, per thread, of the variables that wait for their values. This one goes with its thread.
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(run).result()


def diet_table_6():
    """Rows `(encoding, size, parameters, millions in the paper)`; masked-LM head and pooler are counted."""
    return [
        (name, size, count(size, task="masked_lm", **options).total, paper)
        for name, options, *papers in DIET_TABLE_6
        for size, paper in zip(("bert_base", "bert_base_multilingual"), papers)
    ]


def tisa_table_2():
    """Rows `(model, encoding, position parameters, the paper's formula, its value)`."""
    rows = []
    for model, size, shape, n, d in TISA_SHAPES:
        for name, options, formula, value in TISA_ENCODINGS:
            width = {"position_dim": d} if options["position"] == "tupe" else {}
            rows.append((model, name, count(size, **shape, **options, **width).positions, formula, value(n, d)))
    return rows


def main():
    print("DIET, table 6: parameters of BERT-base with pooler and masked-LM head\n")
    print(f"{'encoding':36} {'model':24} {'here':>12} {'paper':>8} {'difference':>11}")
    for name, size, here, paper in diet_table_6():
        print(f"{name:36} {size:24} {here:>12,} {paper:>7.1f}M {here / (paper * 1e6) - 1:>+11.3%}")
    print("\nTISA, table 2: position parameters\n")
    print(f"{'model':11} {'encoding':16} {'here':>10} {'paper':>10} {'its value':>10} {'difference':>11}")
    for model, name, here, formula, paper in tisa_table_2():
        print(f"{model:11} {name:16} {here:>10,} {formula:>10} {paper:>10,} {here - paper:>+11,}")
    print(f"\n{NOTES}")


if __name__ == "__main__":
    main()
