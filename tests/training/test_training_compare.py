"""`training.compare`: which encodings, what is refused, the table, and the order of its runs."""

import itertools
import json

import numpy as np
import pytest
from absl import flags

from keras_posenc import checkpoints, encodings, models
from keras_posenc.checkpoints.tokenizer import WordPiece
from training import compare
from training.comparing import page, plots, recipes, runs, sources, subjects, tables, timing
from training.data import word_order
from training.engine import flags as train_flags
from training.engine import pipeline


def parsed(tmp_path, *arguments, task="word_order:acceptability"):
    values = flags.FlagValues()
    compare.define(values)
    values(["compare", f"--task={task}", f"--output={tmp_path / 'out'}", *arguments])
    return values


def subject_of(values):
    compare.set_defaults(values)
    return subjects.make(values, train_flags.options(values))


def test_all_are_the_registered_encodings_that_can_do_the_task(tmp_path):
    """All but DIET-ABS-LIN, whose keys are those of a Linformer; learned first, those without order last."""
    found, left_out = compare.choose(subject_of(parsed(tmp_path)), ["all"])
    assert found[0] == "learned" and found[-2:] == ["none", "bag_of_words"]
    assert {*found, *left_out} == {*encodings.names(), "bag_of_words"} and set(left_out) == {"diet_abs_lin"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--positions=learned,tizsa"], "Unknown position encoding: 'tizsa'. Known: .*tisa"),
        (["--positions=learned,learned"], "different encodings"),
        (["--positions=bag_of_words"], "at least one"),
        (["--positions=all,tisa"], "Received also: tisa"),
        (["--positions=diet_abs_lin"], "num_keys"),
        (["--batch=31"], "groups of 2"),
        (["--task=word_order:else"], "no task 'else'"),
        (["--task=mrpc", "--model=bert_tiny"], "tokenizer"),
        (["--task=mrpc", "--positions=tisa"], "--model"),
        (["--task=mrpc", "--positions=tisa", "--checkpoint=model"], "{positions}"),
        (["--positions=tisa", "--batch=20000"], "fewer than batch=20000"),
        (["--task=mrpc", "--positions=tisa", "--checkpoint=no/{positions}"], "no/tisa"),
        (["--task=mrpc", "--checkpoint=no/{positions}", "--sharing=layer"], "--checkpoint does not go with --sharing"),
        (["--task=word_order:questions", "--positions=bag_of_words,tisa"], "acceptability and"),
        (["--positions=tisa", "--model_options=kernel=3"], "kernel"),
    ],
)
def test_wrong_flags_are_named_before_any_run(tmp_path, arguments, message):
    with pytest.raises((ValueError, OSError), match=message):
        compare.run(parsed(tmp_path, *arguments))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("task", list(recipes.RECIPES))
def test_every_task_of_the_benchmark_has_a_model_that_reads_its_longest_example(tmp_path, task):
    values = parsed(tmp_path, "--positions=learned,diet_abs", task=f"word_order:{task}")
    subject = subject_of(values)
    assert compare.choose(subject, values.positions)[0] == ["learned", "diet_abs"]
    assert subject.max_length >= word_order.TASKS[task].longer_max_length
    assert set(recipes.lengths(task).values()) == {"test", "test_longer"}


def test_options_go_to_the_encodings_that_take_them(tmp_path):
    values = parsed(tmp_path, "--model_options=rank=3,kernels=2,hidden_dim=32")
    subject = subject_of(values)
    assert {"rank", "kernels"} & set(subject.source("diet_abs").options) == {"rank"}
    assert {"rank", "kernels"} & set(subject.source("tisa+diet_abs").options) == {"rank", "kernels"}
    assert subject.source("t5").options["hidden_dim"] == 32
    assert subject.source("t5").build("classify", 2).backbone.hidden_dim == 32


def test_a_named_size_is_taken_as_it_is(tmp_path):
    values = parsed(tmp_path, "--model=bert_tiny")
    assert "num_layers" not in subject_of(values).source("t5").options
    small = subject_of(parsed(tmp_path)).source("t5")
    assert small.preset in models.list() and small.options["num_layers"] == recipes.SMALL["num_layers"]


def test_a_checkpoint_has_its_own_vocabulary(tmp_path):
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "dog", "##s"]
    model = models.Bert(len(vocabulary), 1, 2, 16, 32, max_length=64)
    model.build()
    checkpoints.save(model, tmp_path / "t5", WordPiece(vocabulary))
    subject = subject_of(parsed(tmp_path, f"--checkpoint={tmp_path}/{{positions}}"))
    assert subject.source("t5").tokenizer.vocabulary == vocabulary


def test_given_flags_win_over_the_recipe(tmp_path):
    values = parsed(tmp_path, "--epochs=2", "--learning_rate=0.5")
    compare.set_defaults(values)
    options = train_flags.options(values)
    assert (options.steps, options.epochs, options.learning_rate) == (None, 2.0, 0.5)
    assert options.batch == recipes.RECIPES["acceptability"].flags["batch"]


def test_a_run_folder_of_other_options_is_refused(tmp_path):
    values = parsed(tmp_path, "--positions=tisa", "--runs=1")
    subject = subject_of(values)
    (run,) = runs.plan(["tisa"], [0], values.output)
    run.folder.mkdir(parents=True)
    config = {**train_flags.options(values).that_matter(), "task": "classify", **subject.known("tisa")[1]}
    (run.folder / "run.json").write_text(json.dumps({"config": config, "state": "running"}))
    run.check(subject, train_flags.options(values))
    values.batch = 64
    with pytest.raises(ValueError, match="batch was 32 and is 64"):
        run.check(subject, train_flags.options(values))


def result(position, seed, score, longer, best_step=10, lengths=((6, 0.9), (14, 0.6))):
    sets = {"dev": {"accuracy": score}, "test": {"accuracy": score}, "longer": {"accuracy": longer}}
    sets |= {f"length {length}": {"accuracy": value} for length, value in lengths}
    about = dict(task="word_order:acceptability", primary="dev/accuracy", per_length=400)
    counts = dict(parameters=100, position_parameters=7)
    return dict(position=position, seed=seed, score=score, sets=sets, best_step=best_step, **counts, **about)


RESULTS = [result("tisa", seed, *of) for seed, of in enumerate([(0.9, 0.7), (0.95, 0.5), (0.91, 0.8)])]
RESULTS += [result("bag_of_words", 0, 0.5, 0.5, None)]
TIMES = {"tisa": {"ratio": 1.5, "quartiles": [1.4, 1.7], "milliseconds": 10.0}}


def test_rows_are_medians_with_their_spread():
    tisa, bag, empty = tables.rows(RESULTS, ["tisa", "bag_of_words", "t5"], "accuracy", TIMES)
    assert (tisa["score"], tisa["score_min"], tisa["score_max"], tisa["longer"]) == (0.91, 0.9, 0.95, 0.7)
    assert tisa["score_std"] == pytest.approx(np.std([0.9, 0.95, 0.91], ddof=1))
    assert (tisa["step_time_ratio"], tisa["step_time_low"], tisa["runs"]) == (1.5, 1.4, 3)
    assert bag["step_time_ratio"] is None and bag["score"] == 0.5
    assert empty["runs"] == 0 and empty["score"] is None
    text = tables.text([tisa, bag, empty]).splitlines()
    assert text[1].split()[:4] == ["tisa", "0.910", "0.900..0.950", "0.026"] and "1.40..1.70" in text[1]
    assert text[3].split() == ["t5", "0"]


def test_curves_over_lengths():
    curves = tables.by_length(RESULTS, ["tisa", "t5"], "accuracy")
    assert curves == {"tisa": [(6, 0.9, 0.9, 0.9), (14, 0.6, 0.6, 0.6)]}
    assert tables.length_rows(curves)[1] == dict(positions="tisa", length=14, score=0.6, score_min=0.6, score_max=0.6)


def test_the_page_needs_no_other_file(tmp_path):
    values = parsed(tmp_path)
    subject = subject_of(values)
    planned = runs.plan(["tisa", "bag_of_words"], [0, 1, 2], values.output)
    planned[0].folder.mkdir(parents=True)
    entries = [{"step": step, "primary": 0.1 * step, "train": {"loss": 1.0 / step}, "eval": {}} for step in (1, 2)]
    (planned[0].folder / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    page.write(values.output, subject, planned, RESULTS, TIMES, ["tisa/seed9"], compare._about(values))
    html = (tmp_path / "out" / "index.html").read_text()
    assert html.count("data:image/png;base64,") == 6 and "tisa/seed9" in html
    assert "http" not in html.split("<script")[0]
    pictures = {path.name for path in (tmp_path / "out").glob("*.png") if path.read_bytes().startswith(b"\x89PNG")}
    assert pictures == {"scores.png", "lengths.png"}
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert found["curves"]["score"]["tisa"] == [[1, 0.1, 0.1, 0.1], [2, 0.2, 0.2, 0.2]]
    assert (tmp_path / "out" / "table.csv").read_text().splitlines()[1].startswith("tisa,3,0.91,0.9,0.95")


def test_scores_without_a_longer_set_are_drawn():
    plain = [{**each, "sets": {"dev": {}}} for each in RESULTS]
    assert plots.scores(plain, ["tisa"], "accuracy", "longer").startswith(b"\x89PNG")


def test_runs_go_seed_by_seed():
    planned = runs.plan(["a", "b"], [3, 4], "out")
    assert [run.name for run in planned] == ["a/seed3", "b/seed3", "a/seed4", "b/seed4"]


def test_times_of_other_settings_are_measured_again(tmp_path):
    values = parsed(tmp_path, "--positions=bag_of_words,learned,tisa")
    subject_of(values)
    (tmp_path / "out").mkdir()
    known = {"settings": timing.settings(values), "baseline": "learned", "times": {"learned": {"ratio": 1.0}}}
    (tmp_path / "out" / timing.FILE).write_text(json.dumps(known))
    assert timing.missing(values) == ["tisa"]
    values.batch = 64
    assert timing.missing(values) == ["learned", "tisa"]


def test_the_source_of_each_encoding_is_its_own_checkpoint(tmp_path):
    with pytest.raises(FileNotFoundError, match="pretrained/t5/model"):
        sources.source(parsed(tmp_path, "--checkpoint=pretrained/{positions}/model"), "t5")


@pytest.mark.parametrize("lengths", [None, np.repeat(np.arange(9) % 4, 4)])
def test_groups_stay_in_one_batch_whatever_the_first_step(lengths):
    """Batches of whole groups, each once an epoch, the same from any step on; without groups, as ever."""
    examples = {"number": np.arange(36)}

    def taken(count, start=0, **more):
        data = pipeline.batches_of(examples, 8, 3, start, lengths=lengths, **more)
        return np.array([batch["number"].numpy() for batch in itertools.islice(data, count)])

    whole = taken(12, group=4)
    groups = whole.reshape(-1, 4)
    assert (groups % 4 == np.arange(4)).all() and (groups // 4 == groups[:, :1] // 4).all()
    for epoch in whole.reshape(3, -1):
        assert len(set(epoch)) == 32
    assert len({tuple(epoch) for epoch in whole.reshape(3, -1)}) == 3
    for start in (1, 4, 6):
        np.testing.assert_array_equal(taken(5, start, group=4), whole[start : start + 5])
    assert any(set(batch) not in [set(other) for other in whole] for batch in taken(4))
    if lengths is not None:
        assert np.ptp(lengths[whole], axis=1).max() < 3


def test_batches_that_would_cut_groups_are_refused():
    with pytest.raises(ValueError, match="groups of 4.*batch=6"):
        pipeline.batches_of({"number": np.arange(12)}, 6, 0, group=4)
    with pytest.raises(ValueError, match="10 examples are no whole groups of 4"):
        pipeline.batches_of({"number": np.arange(10)}, 4, 0, group=4)
