"""`training.cross_lingual` from flags to tables, on small files in two languages."""

import csv
import json
import os
import shutil
from types import SimpleNamespace

import engine_subject as subject
import numpy as np
import pytest
from absl import flags

from keras_posenc import checkpoints
from keras_posenc.checkpoints.tokenizer import WordPiece
from training import cross_lingual, engine, languages, sweep
from training.data import squad, tfds
from training.data.cross_lingual import BENCHMARKS, Source
from training.data.records import Classification, Question
from training.metrics import squad as squad_metrics
from training.tasks.span import Spans

WORDS = {"en": ("the dog runs", "a cat sleeps", "no bird sings"), "de": ("der hund rennt", "die katze", "kein vogel")}
PIECES = sorted({word for texts in WORDS.values() for text in texts for word in text.split()})
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *PIECES, "##s"]
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
    for split, count in (("train", 9), ("dev", 4)):
        (folder / "squad" / f"{split}-v1.1.json").write_text(json.dumps(questions("en", count)))
    WordPiece(PIECES).save(folder / "tokenizer")
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


@pytest.mark.parametrize(("planned", "line"), [(3, "medians of 2 of 3 runs"), (2, "medians of 2 runs")])
def test_a_table_says_of_how_many_runs_it_is(tmp_path, planned, line):
    languages.write({"a": {"en": {"f1": 1.0}}, "b": {"en": {"f1": 2.0}}}, tmp_path, planned)
    assert (tmp_path / "results.txt").read_text().splitlines()[-1] == line


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
    # The dev set of the training task has questions of XQuAD.
    assert found["chosen_on"].endswith("dev-v1.1.json (4 of its questions are reported, in English or translated)")
    rows = {}
    for language in WORDS:
        predicted = json.loads((output / "runs" / name / "predictions" / f"test-{language}.json").read_text())
        asked = squad.read(data / "xquad" / f"xquad.{language}.json")
        assert set(predicted) == {question.id for question in asked}
        assert all(predicted[question.id] in question.context for question in asked)
        rows[language] = squad_metrics.evaluate(asked, predicted)
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
    again = run(*evaluating(data, output, tmp_path))
    assert again["figures"]["de"] == pytest.approx(found["figures"]["de"])
    assert not (tmp_path / "runs").exists()
    with pytest.raises(ValueError, match="needs a model trained for 'classify'"):
        run(*evaluating(data, output, tmp_path / "other"), "--task=xnli")


def evaluating(folder, init_run, output):
    """Arguments for a model that is there already."""
    asked = (f"--data_dir={folder}", "--max_length=24", "--stride=8", "--batch=4", "--languages=de")
    return ("--task=xquad", f"--init_run={init_run}", f"--output={output}", *asked)


@pytest.mark.integration
def test_figures_are_not_those_of_another_model_in_the_same_place(answered, data, tmp_path):
    """Nor of another precision. What is kept is marked, to see whether it is used."""
    shutil.copytree(answered[0] / "model", tmp_path / "model")
    asked, kept = evaluating(data, tmp_path, tmp_path / "out"), tmp_path / "out" / "languages.json"
    true = run(*asked)["figures"]

    def marked():
        written = json.loads(kept.read_text())
        written["figures"]["de"]["f1"] = -1.0
        kept.write_text(json.dumps(written))

    marked()
    assert run(*asked)["figures"]["de"]["f1"] == -1.0
    assert run(*asked, "--precision=mixed_bfloat16")["figures"]["de"]["f1"] >= 0
    assert run(*asked)["figures"] == true
    marked()
    stored = checkpoints.load(tmp_path / "model")
    for weight in stored.model.weights:
        weight.assign(np.zeros(weight.shape))
    checkpoints.save(stored.model, tmp_path / "model", stored.tokenizer, overwrite=True)
    assert run(*asked)["figures"]["de"]["f1"] >= 0


@pytest.mark.integration
def test_a_trained_model_behind_a_uri(answered, data, tmp_path):
    """In TensorFlow's file system in memory, as it would be on `gs://`: the folder of a run, and of its model."""
    stored = checkpoints.load(answered[0] / "model")
    checkpoints.save(stored.model, "ram://cross_lingual/model", stored.tokenizer)
    for number, place in enumerate(("ram://cross_lingual/", "ram://cross_lingual/model")):
        found = run(*evaluating(data, place, tmp_path / str(number)))
        assert found["figures"]["de"] == pytest.approx(answered[2]["figures"]["de"])
    with pytest.raises(ValueError, match="--init_run=ram://nothing has no trained model"):
        run(*evaluating(data, "ram://nothing", tmp_path / "never"))


@pytest.mark.parametrize(
    "ignored",
    "checkpoint=x model=bert_tiny tokenizer=x positions=t5 model_options=rank=3 sharing=layer segments=none dropout=0 "
    "train_file=x dev_file=x limit=3 learning_rates=1e-3 runs=2 learning_rate=1 steps=3 epochs=1 seed=3".split(),
)
def test_flags_that_a_trained_model_makes_pointless_are_refused(data, tmp_path, ignored):
    with pytest.raises(ValueError, match=f"--init_run does not go with --{ignored.split('=')[0]}: leave one out"):
        run(*evaluating(data, tmp_path, tmp_path / "never"), f"--{ignored}")


@pytest.mark.integration
def test_runs_that_diverged_are_not_in_the_medians(data, tmp_path, monkeypatch):
    train = sweep._train

    def diverging(task, options, folder, strategy):
        if options.seed == 0:
            return {"best": None, "diverged": "The loss is not finite."}
        return train(task, options, folder, strategy)

    monkeypatch.setattr(sweep, "_train", diverging)
    found = run(*arguments(data, tmp_path, "xquad", "--runs=2", "--languages=de"))
    assert list(found["runs"]) == ["lr0.01-seed1"] and found["dev"]["lr0.01-seed0"] is None
    assert (tmp_path / "results.txt").read_text().endswith("medians of 1 of 2 runs\n")


def work(tf_config, arguments):
    """Body of a child process. The second worker dies of writing results, predictions or a model."""
    os.environ["TF_CONFIG"] = tf_config
    if json.loads(tf_config)["task"]["index"] == 1:
        for module, name in ((languages, "write_text"), (languages, "write"), (checkpoints, "save")):
            setattr(module, name, refuse)
    run(*arguments)


def refuse(*given, **named):
    raise AssertionError("This worker is not the one that writes.")


@pytest.mark.integration
def test_two_workers_evaluate_together_and_one_writes(data, tmp_path):
    asked = arguments(data, tmp_path / "out", "xquad", "--strategy=multi_worker_mirrored")
    children = [subject.spawn(work, tf_config=of, arguments=asked) for of in subject.cluster()]
    assert [subject.join(child) for child in children] == [0, 0]
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    for language in WORDS:
        predicted = json.loads(next((tmp_path / "out").glob(f"runs/*/predictions/test-{language}.json")).read_text())
        scores = squad_metrics.evaluate(squad.read(data / "xquad" / f"xquad.{language}.json"), predicted)
        assert found["figures"][language] == pytest.approx(scores)


@pytest.mark.integration
def test_another_run_in_the_same_folder_is_refused(answered):
    with pytest.raises(ValueError, match="another run: stride was 8 and is 9"):
        run(*answered[1], "--stride=9")


@pytest.mark.integration
@pytest.mark.parametrize("split", ["train", "dev"])
def test_other_questions_of_the_same_number_are_another_run(answered, data, tmp_path, split):
    given = (data / "squad" / f"{split}-v1.1.json").read_text()
    other = tmp_path / f"{split}-v1.1.json"
    other.write_text(given.replace("dog", "cat"))
    assert other.stat().st_size == len(given)
    with pytest.raises(ValueError, match="another run: data was {'train'"):
        run(*answered[1], f"--{split}_file={other}")
    other.write_text(given)
    assert run(*answered[1], f"--{split}_file={other}")["figures"] == answered[2]["figures"]


def test_scores_are_those_of_xtreme():
    """Its `evaluate.py` gives XQuAD and TyDi QA to SQuAD's script, MLQA to its own; Romanian is not in it."""
    scoring = {name: about.scoring for name, about in BENCHMARKS.items()}
    assert scoring == {"xnli": "accuracy", "xquad": "squad", "mlqa": "mlqa", "tydiqa": "squad"}
    assert sorted(BENCHMARKS["xquad"].languages) == sorted("en,es,de,el,ru,tr,ar,vi,th,zh,hi".split(","))
    source, asked = SimpleNamespace(tokenizer=WordPiece(PIECES)), [Question("1", "?", "x y", [("x", 0)])]
    values = SimpleNamespace(static=None, max_length=24, stride=8)
    for task, language in (("xquad", None), ("mlqa", "de")):
        values.task = task
        maker = cross_lingual.Maker(values, engine.TrainOptions(steps=1), source)
        assert maker(None, {"de": asked}, {"de": "de"}).languages.get("de") == language


def test_romanian_is_evaluated_if_it_is_asked_for(data, tmp_path):
    for language in ("en", "ro"):
        (tmp_path / f"xquad.{language}.json").write_text(json.dumps(questions("en", 2)))
    assert Source("xquad", tmp_path, train=False).languages == ["en"]
    assert Source("xquad", tmp_path, ["ro"], train=False).languages == ["ro"]
    with pytest.raises(ValueError, match="not in ro"):
        Source("xquad", tmp_path, ["ro"], use_tfds=True)


def test_checkpoints_are_not_chosen_on_what_is_reported(tmp_path):
    """Without a dev set of the training task it is the benchmark's own in English, if that is not what is reported."""
    train = tmp_path / "some.json"
    for name in ("some", "xquad.de", "test-context-de-question-de", "dev-context-de-question-de"):
        (tmp_path / f"{name}.json").write_text(json.dumps(questions("en", 2)))
    for name in ("xquad", "mlqa"):
        with pytest.raises(ValueError, match="Nothing to choose checkpoints on but what is reported.*--dev_file"):
            Source(name, tmp_path, train_file=train)
    dev = tmp_path / "dev-context-en-question-en.json"
    dev.write_text(json.dumps(questions("en", 3)))
    found, name = Source("mlqa", tmp_path, train_file=train).dev()
    assert len(found) == 3 and name == str(dev)
    with pytest.raises(ValueError, match=r"mlqa\[dev\]"):
        Source("mlqa", tmp_path, split="dev", train_file=train)
    Source("xquad", tmp_path, train_file=train, dev_file=dev)
    link = tmp_path / "link.json"
    for name, reported in (("xquad", "xquad.de.json"), ("mlqa", "test-context-de-question-de.json")):
        link.unlink(missing_ok=True)
        link.symlink_to(tmp_path / reported)
        for file in (tmp_path / reported, tmp_path / "." / reported, link):
            with pytest.raises(ValueError, match=f"chosen on what is reported: '.*' is the file of {name} in de"):
                Source(name, tmp_path, train_file=train, dev_file=file)


def test_a_split_that_is_not_there_is_not_recorded_as_if_it_were(tmp_path):
    for name in ("xquad.de", "dev-context-de-question-de"):
        (tmp_path / f"{name}.json").write_text(json.dumps(questions("de", 2)))
    assert Source("mlqa", tmp_path, split="dev", train=False).languages == ["de"]
    assert Source("xquad", tmp_path, split="test", train=False).split == "test"
    for use_tfds in (False, True):
        with pytest.raises(ValueError, match="xquad has one set, 'test'. Received: --split=dev"):
            Source("xquad", tmp_path, split="dev", train=False, use_tfds=use_tfds)


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([], "1 questions of de have no answer, such as 'q1'"),
        ([{"answer_start": 0, "text": ""}], "xquad.de.json:q1: .*XTREME's own test files hide the answers"),
    ],
)
def test_what_cannot_be_evaluated_is_found_before_training(data, tmp_path, answers, message):
    for folder in ("squad", "tokenizer", "xquad"):
        shutil.copytree(data / folder, tmp_path / folder)
    file = tmp_path / "xquad" / "xquad.de.json"
    written = json.loads(file.read_text())
    written["data"][0]["paragraphs"][1]["qas"][0]["answers"] = answers
    file.write_text(json.dumps(written))
    with pytest.raises(ValueError, match=message):
        run(*arguments(tmp_path, tmp_path / "never", "xquad", "--languages=en,de"))
    assert not (tmp_path / "never").exists()


def test_a_set_without_labels_cannot_be_evaluated():
    unlabelled = Classification(["a"], ["b"], None, LABELS)
    source = SimpleNamespace(name="xnli", split="test", languages=["sw"], load=lambda _: unlabelled)
    source.about = BENCHMARKS["xnli"]
    with pytest.raises(ValueError, match=r"xnli\[test\] has no labels in sw"):
        cross_lingual._check_languages(source)


def test_questions_without_answers_are_refused():
    """A span is predicted for each; that there is none would have to be learned as in SQuAD 2.0."""
    source = SimpleNamespace(tokenizer=WordPiece(PIECES))
    some, none = Question("1", "?", "the dog", [("dog", 4)]), Question("2", "?", "the dog", [])
    for train, dev, name in (([some, none], [some], "the training set"), ([some], [none], "dev")):
        with pytest.raises(ValueError, match=f"1 questions of {name} have no answer, such as '2'.*SQuAD 1.1"):
            Spans(source, train, {"dev": dev})


def test_of_a_table_of_all_languages_english_is_read(tmp_path):
    rows = [("language", "gold_label", "sentence1", "sentence2")]
    rows += [(language, "neutral", language, "b") for language in ("ar", "en", "de")]
    table = tmp_path / "xnli.dev.tsv"
    table.write_text("".join("\t".join(row) + "\n" for row in rows))
    (tmp_path / "xnli.test.tsv").write_text(table.read_text())
    source = Source("xnli", tmp_path, ["de"], train_file=table)
    assert source.train().texts == source.dev()[0].texts == [("en", "b")]


@pytest.mark.integration
def test_data_sets_by_name_are_looked_for_at_once(tmp_path, monkeypatch):
    pytest.importorskip("tensorflow_datasets")
    with pytest.raises(FileNotFoundError, match="xquad/ar is not prepared"):
        Source("xquad", tmp_path, use_tfds=True)
    asked = []
    monkeypatch.setattr(tfds, "builder", lambda name, split, *_: asked.append((name, split)))
    Source("tydiqa", tmp_path, ["sw", "fi"], use_tfds=True)
    goldp = [("tydi_qa/goldp", "validation-sw"), ("tydi_qa/goldp", "validation-fi")]
    assert asked == [*goldp, ("squad", "train"), ("squad", "validation")]


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
        ((*asked, "--learning_rates=1e-3,-1"), "learning_rate must be positive. Received: learning_rate=-1.0"),
        (evaluating(data, tmp_path, output), "no trained model"),
        ((*asked, "--split=dev"), "xquad has one set, 'test'"),
    ]
    for given, message in cases:
        with pytest.raises((ValueError, OSError), match=message):
            run(*given)
    assert not output.exists()
