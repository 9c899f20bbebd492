"""The parameter counts of the DIET and TISA papers."""

import pytest

from keras_posenc.models import build, tables


def test_diet_table_6():
    counted = {(name, size): total for name, size, total, _ in tables.diet_table_6()}
    english = {name: total for (name, size), total in counted.items() if size == "bert_base"}
    assert english == {
        "learned": 110_104_890,
        "DIET-REL": 109_858_026,
        "DIET-REL, shared by layers": 109_722_462,
        "DIET-ABS, d_p=128": 128_585_082,
        "DIET-ABS, d_p=128, shared by layers": 111_283_050,
    }
    multilingual = [total for (_, size), total in counted.items() if size == "bert_base_multilingual"]
    assert [round(total / 1e6, 1) for total in multilingual] == [178.9, 178.7, 178.5, 197.4, 180.1]
    # 120,000 instead of 30,522 rows of embeddings, and as many biases of the masked-LM head.
    assert [m - e for m, e in zip(multilingual, english.values())] == [(120_000 - 30_522) * 769] * 5


def test_tisa_table_2():
    counted = {(model, name): (here, paper) for model, name, here, _, paper in tables.tisa_table_2()}
    widths = {"Longformer": (4096, 768), "BERT": (512, 768), "ALBERT": (512, 128)}
    for model, (n, d) in widths.items():
        assert counted[model, "standard"] == (n * d, n * d)
        assert counted[model, "TISA, S=5"] == (2160, 2160)
        # The projections of positions are as wide as the attention, which in ALBERT is not d.
        tied = n * d + 2 * d * 768
        assert counted[model, "TUPE, tied [CLS]"] == (tied, n * d + 2 * d * d)
        assert counted[model, "TUPE"][0] == tied + 2 * d


def test_tupe_of_an_albert_with_attention_as_wide_as_its_positions():
    found = tables.count("albert_base", hidden_dim=128, num_heads=8, position="tupe", sharing="layer", untie_cls=False)
    assert found.positions == 512 * 128 + 2 * 128**2 == 98_304


@pytest.mark.parametrize("options", [{}, {"position": "diet_abs", "rank": 16, "segments": "per_head"}])
def test_counting_without_values_counts_what_is_built(options):
    model = build("bert_tiny", task="masked_lm", **options)
    counted = tables.count("bert_tiny", task="masked_lm", **options)
    assert counted.total == model.count_params() == sum(w.numpy().size for w in model.weights)
    assert counted.positions == model.position_summary(None).positions


def test_the_command_prints_both_tables(capsys):
    tables.main()
    printed = capsys.readouterr().out
    assert "110,104,890   110.1M     +0.004%" in printed
    assert "2,160       3SHL      2,160          +0" in printed
