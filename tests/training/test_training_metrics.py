"""Metrics against scipy and scikit-learn, against cases worked out by hand, and sacreBLEU's signature."""

import numpy as np
import pytest

from training.data.records import Question
from training.metrics import glue, squad, translation


@pytest.mark.parametrize("seed", range(5))
def test_correlations_are_scipys_with_ties(seed):
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 6, 50).astype("float32")
    y = np.round(x + rng.normal(0, 2, 50)).astype("float32")
    assert len(np.unique(x)) < 50 and len(np.unique(y)) < 50
    np.testing.assert_allclose(glue.pearson(x, y), stats.pearsonr(x, y).statistic, rtol=1e-6)
    np.testing.assert_allclose(glue.spearman(x, y), stats.spearmanr(x, y).statistic, rtol=1e-6)
    np.testing.assert_array_equal(glue.ranks(x), stats.rankdata(x))


@pytest.mark.parametrize("seed", range(5))
def test_classes_are_scored_as_scikit_learn_does(seed):
    theirs = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(seed)
    labels = (rng.random(200) < 0.3).astype("int32")
    predictions = np.where(rng.random(200) < 0.7, labels, 1 - labels)
    np.testing.assert_allclose(glue.accuracy(predictions, labels), theirs.accuracy_score(labels, predictions))
    np.testing.assert_allclose(glue.f1(predictions, labels), theirs.f1_score(labels, predictions))
    np.testing.assert_allclose(glue.matthews(predictions, labels), theirs.matthews_corrcoef(labels, predictions))


def test_matthews_does_not_overflow():
    """A product of four counts of 2**17 is 2**68."""
    labels = np.tile(np.array([0, 1], "int32"), 1 << 17)
    assert glue.matthews(labels, labels) == 1.0 and glue.matthews(1 - labels, labels) == -1.0


def test_collapsed_predictions_are_zero_and_nothing_overflows():
    labels = np.array([0, 1, 1])
    assert glue.matthews(np.ones(3, int), labels) == 0.0
    assert glue.f1(np.zeros(3, int), np.array([0, 0, 0])) == 0.0
    assert glue.pearson(np.full(3, 2.5), labels) == glue.spearman(np.full(3, 2.5), labels) == 0.0
    assert glue.pearson(labels * 1e-200, labels) == pytest.approx(1.0)


def test_wrong_arguments():
    with pytest.raises(ValueError, match=r"\(2,\), \(3,\)"):
        glue.accuracy([0, 1], [0, 1, 1])
    with pytest.raises(ValueError, match="at least one"):
        glue.accuracy([], [])
    with pytest.raises(ValueError, match="two classes, 0 and 1. Received also: .2."):
        glue.f1([0, 2], [0, 1])


def test_what_each_task_reports():
    """Table 1 of GLUE; the primary metric is that of BERT's table."""
    reported = {
        "cola": {"matthews"},
        "sst2": {"accuracy"},
        "mrpc": {"accuracy", "f1"},
        "stsb": {"pearson", "spearman"},
        "qqp": {"accuracy", "f1"},
        "mnli": {"accuracy"},
        "qnli": {"accuracy"},
        "rte": {"accuracy"},
    }
    assert {task: set(glue.names(task)) for task in reported} == reported
    assert [glue.names(task)[0] for task in ("mrpc", "qqp", "stsb")] == ["f1", "f1", "spearman"]
    assert glue.names("custom:x", ("a", "b")) == ("accuracy", "f1")
    assert glue.names("custom:x", ("a", "b", "c")) == ("accuracy",)
    assert glue.names("custom:x") == ("spearman", "pearson")
    scores = glue.evaluate("mrpc", [1, 1, 0, 1], [1, 0, 0, 1])
    assert scores == {"f1": pytest.approx(0.8), "accuracy": 0.75}


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("en", "The  Panthers' a-team, an (old) one!", "panthers ateam old one"),
        ("en", "another theme", "another theme"),
        ("de", "Die Straße der «Öffnung»", "straße öffnung"),
        ("de", "the Haus", "the haus"),
        ("es", "¿La casa de los unos?", "casa de"),
        ("vi", "Những con của anh", "con anh"),
        ("ar", "الكتاب، الجديد؟", "كتاب جديد"),
        ("hi", "एक किताब।", "एक किताब"),
        ("zh", "北京。大学 NBA2016年", "北 京 大 学 nba2016 年"),
        ("ru", "«Пантеры», the", "пантеры the"),
        ("en", "— $5.00 “x” …", "500 x"),
    ],
)
def test_normalisation_of_mlqa(language, text, expected):
    assert squad.normalise(text, language) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Panthers' a-team, an (old) one!", "panthers ateam old one"),
        ("der Hund, «the» Öffnung", "der hund « » öffnung"),
        ("北京。大学", "北京。大学"),
        ("الكتاب،", "الكتاب،"),
    ],
)
def test_normalisation_of_squad_whatever_the_language(text, expected):
    assert squad.normalise(text) == expected


def test_f1_and_exact_match_by_hand():
    """Precision 2/4, recall 2/3: F1 is 4/7. Repeated words count as often as both have them."""
    assert squad.f1("red blue green green", "the red green sea") == pytest.approx(4 / 7)
    assert squad.f1("no no", "no") == pytest.approx(2 / 3)
    assert squad.f1("x", "y") == 0.0 and squad.f1("", "y") == 0.0
    assert squad.exact_match("The cat.", "cat") == 1.0
    assert squad.f1("北京大学", "北京", "zh") == pytest.approx(2 * 2 / 6)
    assert squad.f1("北京大学", "北京") == 0.0


def test_evaluation_takes_the_best_answer_of_each_question():
    questions = [
        Question("1", "?", "", [("the red sea", 0), ("sea", 0)]),
        Question("2", "?", "", [("blue sky", 0)]),
        Question("3", "?", "", [("unseen", 0)]),
        Question("4", "?", "", []),
    ]
    scores = squad.evaluate(questions, {"1": "sea", "2": "sky", "4": ""})
    assert scores == {"f1": pytest.approx(100 * (1 + 2 / 3 + 0 + 1) / 4), "exact_match": pytest.approx(50.0)}
    assert squad.evaluate(questions[3:], {"4": "something"}) == {"f1": 0.0, "exact_match": 0.0}
    assert squad.evaluate(questions[3:], {}) == {"f1": 0.0, "exact_match": 0.0}
    # SQuAD's script compares an empty text too, with what normalisation leaves of the answer; without words F1 is 0.
    nothing = [Question("5", "?", "", [("The", 0)])]
    assert squad.evaluate(nothing, {"5": ""}) == {"f1": 0.0, "exact_match": 100.0}
    assert squad.evaluate(nothing, {}) == {"f1": 0.0, "exact_match": 0.0}
    with pytest.raises(ValueError, match="1 ids that are no question's, such as '9'"):
        squad.evaluate(questions, {"9": "x"})


def test_bleu_by_hand():
    """Six words of which one differs: precisions 5/6, 3/5, 2/4, 1/3 and no brevity penalty."""
    pytest.importorskip("sacrebleu")
    scores = translation.evaluate(["the cat sat on a mat"], ["the cat sat on the mat"])
    expected = 100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25
    assert scores["bleu"] == pytest.approx(expected)
    assert scores["brevity_penalty"] == 1.0
    assert "tok:13a" in scores["bleu_signature"] and "case:mixed" in scores["bleu_signature"]


def test_bleu_of_a_short_corpus_case_and_chrf():
    pytest.importorskip("sacrebleu")
    reference = "A dog runs in the green park today ."
    assert translation.evaluate([reference.lower()], [reference], lowercase=True)["bleu"] == pytest.approx(100)
    short = translation.evaluate(["A dog runs in the green park"], [reference], chrf=True)
    assert short["brevity_penalty"] == pytest.approx(np.exp(1 - 9 / 7))
    assert short["bleu"] == pytest.approx(100 * np.exp(1 - 9 / 7))
    assert 0 < short["chrf"] < 100 and "nc:6" in short["chrf_signature"]
    two = translation.evaluate(["b c d e f"], [["x x x x x"], ["b c d e f"]])
    assert two["bleu"] == pytest.approx(100) and "nrefs:2" in two["bleu_signature"]
    with pytest.raises(ValueError, match=r"Received: \[1\] for 2"):
        translation.evaluate(["a", "b"], ["a"])
