"""`training.cross_lingual` from flags to tables, on small files in two languages."""

import csv
import json

import numpy as np
import pytest
from absl import flags

from keras_posenc.checkpoints.tokenizer import WordPiece
from training import cross_lingual, languages
from training.data import squad
from training.data.records import Classification
from training.metrics import squad as squad_metrics

WORDS = {"en": ("the dog runs", "a cat sleeps", "no bird sings"), "de": ("der hund rennt", "die katze", "kein vogel")}
LABELS = ("entailment", "neutral", "contradiction")
TINY = "num_layers=1,num_heads=2,hidden_dim=32,intermediate_dim=32,max_length=32"


def run(*arguments):
    values = flags.FlagValues()
    cross_lingual.define(values)
    values(["cross_lingual", *arguments])
    return cross_lingual.run(values)


def questions(language, count):
    """In the format of SQuAD. The context of every third question is longer than a window."""
    paragraphs = []
    for number in range(count):
        first, second, third = np.roll(WORDS[language], number)
        context = " . ".join([first, second, third] * (4 if number % 3 == 0 else 1))
        answers = [{"text": second, "answer_start": context.index(second)}]
        paragraphs.append({"context": context, "qas": [{"id": f"q{number}", "question": first, "answers": answers}]})
    return {"data": [{"paragraphs": paragraphs}]}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with files as they are downloaded, and a vocabulary."""
    folder = tmp_path_factory.mktemp("data")
    for name in ("MNLI", "xnli", "squad", "xquad", "tokenizer"):
        (folder / name).mkdir()
    rng = np.random.default_rng(0)

    def rows(language, count):
        words = WORDS[language]
        return [(words[i % 3], words[(i // 3) % 3], LABELS[rng.integers(3)]) for i in range(count)]

    header = "sentence1\tsentence2\tgold_label\n"
    for name, count in (("train", 16), ("dev_matched", 6)):
        text = header + "".join("\t".join(row) + "\n" for row in rows("en", count))
        (folder / "MNLI" / f"{name}.tsv").write_text(text)
    for language in WORDS:
        text = "".join("\t".join(row) + "\n" for row in rows(language, 11))
        (folder / "xnli" / f"test-{language}.tsv").write_text(text)
        (folder / "xquad" / f"xquad.{language}.json").write_text(json.dumps(questions(language, 5)))
    (folder / "squad" / "train-v1.1.json").write_text(json.dumps(questions("en", 9)))
    pieces = sorted({word for texts in WORDS.values() for text in texts for word in text.split()})
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *pieces, "##s"]
    WordPiece(vocabulary).save(folder / "tokenizer")
    return folder


def arguments(folder, output, task, *more):
    return (
        f"--task={task}",
        f"--data_dir={folder}",
        f"--tokenizer={folder / 'tokenizer'}",
        "--model=bert_tiny",
        f"--model_options={TINY}",
        "--max_length=24",
        "--stride=8",
        "--batch=4",
        "--steps=3",
        "--learning_rate=1e-2",
        f"--output={output}",
        *more,
    )


@pytest.fixture(scope="module")
def classified(data, tmp_path_factory):
    output = tmp_path_factory.mktemp("xnli") / "out"
    asked = arguments(data, output, "xnli", "--runs=2")
    return output, asked, run(*asked)


@pytest.fixture(scope="module")
def answered(data, tmp_path_factory):
    output = tmp_path_factory.mktemp("xquad") / "out"
    asked = arguments(data, output, "xquad", "--positions=t5")
    return output, asked, run(*asked)


def test_medians_over_runs_and_averages_over_languages():
    runs = {
        "a": {"en": {"f1": 80.0}, "de": {"f1": 40.0}, "sw": {"f1": 9.0}},
        "b": {"en": {"f1": 70.0}, "de": {"f1": 50.0}, "sw": {"f1": 3.0}},
        "c": {"en": {"f1": 10.0}, "de": {"f1": 60.0}, "sw": {"f1": 1.0}},
    }
    middle = languages.medians(runs)
    assert middle == {"en": {"f1": 70.0}, "de": {"f1": 50.0}, "sw": {"f1": 3.0}}
    assert languages.averages(middle) == {"average": {"f1": 41.0}, "average without en": {"f1": 26.5}}
    assert list(languages.averages({"de": {"f1": 1.0}})) == ["average"]


def test_first_examples():
    some = Classification(["a", "b"], None, np.array([0, 1]), LABELS)
    assert languages.first(some, 1).first == ["a"] and languages.first(some, 1).label_names == LABELS
    assert languages.first([1, 2, 3], 2) == [1, 2]


@pytest.mark.integration
def test_accuracy_is_that_of_the_predictions_written(classified, data):
    output, _, found = classified
    assert found["languages"] == ["de", "en"]
    assert found["chosen_on"].endswith("dev_matched.tsv")
    for name, figures in found["runs"].items():
        for language in WORDS:
            rows = (data / "xnli" / f"test-{language}.tsv").read_text().splitlines()
            labels = [row.split("\t")[2] for row in rows]
            predicted = (output / "runs" / name / "predictions" / f"test-{language}.tsv").read_text().splitlines()
            right = [one == other for one, other in zip(predicted, labels)]
            assert len(predicted) == len(labels)
            np.testing.assert_allclose(figures[language]["accuracy"], 100 * np.mean(right))
    each = [[figures[language]["accuracy"] for figures in found["runs"].values()] for language in ("de", "en")]
    assert len(each[0]) == 2
    np.testing.assert_allclose(found["averages"]["average"]["accuracy"], np.mean(each))  # a median of two is a mean


@pytest.mark.integration
def test_answers_are_in_the_official_form_and_scored_right(answered, data):
    output, _, found = answered
    (name,) = found["runs"]
    rows = {}
    for language in WORDS:
        predicted = json.loads((output / "runs" / name / "predictions" / f"test-{language}.json").read_text())
        asked = squad.read(data / "xquad" / f"xquad.{language}.json")
        assert set(predicted) == {question.id for question in asked}
        assert all(predicted[question.id] in question.context for question in asked)
        rows[language] = squad_metrics.evaluate(asked, predicted, language)
        assert found["figures"][language] == pytest.approx(rows[language])
    table = {row["language"]: row for row in csv.DictReader((output / "results.csv").open())}
    assert list(table) == ["de", "en", "average", "average without en"]
    mean = (rows["en"]["f1"] + rows["de"]["f1"]) / 2
    assert float(table["average"]["f1"]) == pytest.approx(mean, abs=1e-4)
    assert float(table["average without en"]["f1"]) == pytest.approx(rows["de"]["f1"], abs=1e-4)
    assert f"{mean:.2f}" in (output / "results.txt").read_text()


@pytest.mark.integration
def test_a_finished_run_is_not_trained_again(answered):
    output, asked, found = answered
    assert run(*asked) == found
    (state,) = output.glob("runs/*/run.json")
    assert json.loads(state.read_text())["starts"] == 1


@pytest.mark.integration
def test_a_trained_model_is_only_evaluated(answered, data, tmp_path):
    output, _, found = answered
    asked = (f"--data_dir={data}", "--max_length=24", "--stride=8", "--batch=4", "--steps=3")
    again = run("--task=xquad", f"--init_run={output}", f"--output={tmp_path}", "--languages=de", *asked)
    assert again["figures"]["de"] == pytest.approx(found["figures"]["de"])
    assert not (tmp_path / "runs").exists()
    with pytest.raises(ValueError, match="needs a model trained for 'classify'"):
        run("--task=xnli", f"--init_run={output}", f"--output={tmp_path / 'other'}", *asked)


@pytest.mark.integration
def test_another_run_in_the_same_folder_is_refused(answered):
    with pytest.raises(ValueError, match="another run: stride was 8 and is 9"):
        run(*answered[1], "--stride=9")


def test_bad_flags_are_named_before_anything_is_done(data, tmp_path):
    output = tmp_path / "never"
    asked = arguments(data, output, "xquad")
    cases = [
        ((f"--data_dir={data}", "--steps=3"), "--task and --output"),
        (("--task=xquad", f"--output={output}", "--steps=3"), "--data_dir"),
        ((*asked, "--languages=en,xx"), "not in xx"),
        ((*asked, "--languages=en,ru"), "xquad.ru.json"),
        ((*asked, "--train_file=nothing.json"), "No file 'nothing.json'"),
        ((*asked, "--positions=nothing"), "nothing"),
        (arguments(data / "xquad", output, "xquad"), "Nothing to train on"),
        (arguments(data, output, "mlqa"), "No language of mlqa"),
        ((*asked, "--batch=10"), "9 training examples"),
        ((*asked, f"--init_run={tmp_path}"), "no trained model"),
    ]
    for given, message in cases:
        with pytest.raises((ValueError, OSError), match=message):
            run(*given)
    assert not output.exists()
