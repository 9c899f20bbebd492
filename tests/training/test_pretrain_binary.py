"""Pretraining from flags: recipes, learning, going on after an interruption, and the model that comes out."""

import shutil

import numpy as np
import pytest
import tensorflow as tf
from absl import flags

from keras_posenc import checkpoints, models
from keras_posenc.checkpoints import load_tokenizer
from keras_posenc.checkpoints.tokenizer import WordPiece
from serving.exporting import sources
from training import configs, engine, pretrain
from training.corpus.reading import RowStream
from training.corpus.shards import Corpus
from training.data import word_order as word_order_text
from training.tasks.models import ModelSource

SMALL = "num_layers=1,num_heads=4,hidden_dim=64,intermediate_dim=128"


def parsed(**given):
    values = flags.FlagValues()
    pretrain.define(values)
    values(["pretrain", *(f"--{name}={value}" for name, value in given.items())])
    return values


def word_order(output, **changed):
    """Flags of a small training on the text of the word-order benchmark."""
    given = dict(
        task="word_order",
        documents=400,
        length=32,
        shards=2,
        dev_share=0.1,
        model="bert_tiny",
        model_options=SMALL,
        positions="diet_rel",
        segments="none",
        batch=32,
        output=output,
    )
    return {**given, **changed}


def test_recipes_are_those_of_table_7():
    for name, steps, length, vocabulary in (
        ("diet_english", 500_000, 128, 30522),
        ("diet_multilingual", 125_000, 512, 120_000),
    ):
        values = parsed(config=name, output="x")
        pretrain.apply_config(values)
        options = pretrain.train_flags.options(values)
        assert (options.steps, options.batch, options.learning_rate) == (steps, 4096, 0.0018)
        assert options.warmup_steps(steps) == 0.025 * steps and options.schedule == "linear"
        assert options.checkpoint_every == 20_000
        assert (values.length, values.vocabulary_size) == (length, vocabulary)


def test_every_recipe_is_valid_and_flags_change_it():
    for name in configs.CONFIGS:
        values = parsed(config=name, output="x", batch=8, epochs=2)
        pretrain.apply_config(values)
        options = pretrain.train_flags.options(values)
        assert (options.batch, options.epochs, options.steps) == (8, 2, None)
        assert options.learning_rate == configs.CONFIGS[name].train["learning_rate"]
        assert values.model == configs.CONFIGS[name].model


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Folder and results of a training that is long enough to learn something."""
    output = tmp_path_factory.mktemp("trained") / "run"
    values = parsed(**word_order(output, steps=300, learning_rate=3e-3, warmup=30, eval_every=100, dropout=0.0))
    return output, pretrain.run(values)


@pytest.mark.integration
def test_the_loss_falls_below_the_entropy_of_words_without_context(trained):
    output, results = trained
    rows = Corpus.open(output / "corpus").array("train")
    counts = np.bincount(rows[rows > 4])
    shares = counts[counts > 0] / counts.sum()
    entropy = -(shares * np.log(shares)).sum()
    assert 3.5 < entropy < 4.5
    assert results["last"]["dev"]["loss"] < entropy - 0.3


@pytest.mark.integration
def test_fine_tuning_reads_the_model(trained):
    output, _ = trained
    source = ModelSource(checkpoint=str(output / "model"))
    pretrained, classifier = source.build("masked_lm"), source.build("classify", num_classes=2)
    assert source.tokenizer.vocabulary == load_tokenizer(output / "corpus" / "tokenizer").vocabulary
    expected = pretrain.make_task(*_flags_and_options(output)).build_model()
    engine.restore(expected, str(output))
    for loaded, weight in zip(pretrained.weights, expected.weights):
        np.testing.assert_array_equal(loaded.numpy(), weight.numpy())
    for loaded, weight in zip(classifier.backbone.encoder.weights, expected.backbone.encoder.weights):
        np.testing.assert_array_equal(loaded.numpy(), weight.numpy())


@pytest.mark.integration
def test_a_run_behind_a_uri():
    """In TensorFlow's file system in memory, as it would be on `gs://`: corpus, checkpoints, model, fine-tuning."""
    output = "ram://pretrained/run"
    given = word_order(output, documents=60, steps=4, eval_every=2, steps_per_loop=2, checkpoint_every=2)
    results = pretrain.run(parsed(**given))
    assert results["steps"] == 4 and np.isfinite(results["last"]["dev"]["loss"])
    assert pretrain.run(parsed(**given)) == results  # it is finished
    source = ModelSource(checkpoint=f"{output}/model")
    loaded = source.build("masked_lm")
    expected = engine.restore(source.build("masked_lm"), output)
    for one, other in zip(loaded.weights, expected.weights):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    exported = sources.open_source(f"{output}/")  # a run has its model in a folder of that name
    assert exported.tokenizer.vocabulary == source.tokenizer.vocabulary
    with pytest.raises(FileNotFoundError, match="ram://pretrained/none"):
        ModelSource(checkpoint="ram://pretrained/none")


def _flags_and_options(output):
    values = parsed(**word_order(output, steps=300, dropout=0.0))
    return values, pretrain.train_flags.options(values), Corpus.open(output / "corpus")


@pytest.mark.integration
def test_an_interrupted_run_goes_on_as_if_it_had_not_been(trained, tmp_path, monkeypatch):
    corpus = trained[0] / "corpus"

    def run(name):
        """The newest weights, and the figures of both evaluations."""
        given = dict(corpus=corpus, model="bert_tiny", model_options=SMALL, whole_words=True, batch=16, seed=5)
        schedule = dict(steps=12, eval_every=6, checkpoint_every=4, steps_per_loop=2, learning_rate=1e-3)
        values = parsed(output=tmp_path / name, **given, **schedule)
        pretrain.run(values)
        task = pretrain.make_task(values, pretrain.train_flags.options(values), Corpus.open(corpus))
        model = engine.restore(task.build_model(), str(tmp_path / name), "newest")
        return [weight.numpy() for weight in model.weights], (tmp_path / name / "metrics.jsonl").read_text()

    weights, history = run("whole")
    with monkeypatch.context() as changed:
        call = RowStream.__call__
        changed.setattr(RowStream, "__call__", lambda stream, start_step=0: call(stream, start_step).take(9))
        with pytest.raises(tf.errors.OutOfRangeError):
            run("interrupted")
    resumed, resumed_history = run("interrupted")
    assert resumed_history == history and history.count("\n") == 2
    for before, after in zip(weights, resumed):
        np.testing.assert_array_equal(after, before)


def test_wrong_flags_are_errors_before_anything_is_read(tmp_path, trained):
    corpus = trained[0] / "corpus"
    with pytest.raises(ValueError, match="--corpus, or text with one of"):
        pretrain.run(parsed(output=tmp_path, steps=1, model="bert_tiny"))
    with pytest.raises(ValueError, match="--corpus, or text with one of"):
        pretrain.run(parsed(output=tmp_path, steps=1, model="bert_tiny", corpus=corpus, task="word_order"))
    with pytest.raises(ValueError, match="rows of 32 tokens. Received: --length=64"):
        pretrain.run(parsed(output=tmp_path, steps=1, model="bert_tiny", corpus=corpus, length=64))
    with pytest.raises(ValueError, match="Unknown position encoding: 'tissa'"):
        pretrain.run(parsed(output=tmp_path, steps=1, model="bert_tiny", corpus=corpus, positions="tissa"))
    (tmp_path / "text.txt").write_text("a b.")
    with pytest.raises(ValueError, match="--train_vocabulary"):
        pretrain.run(parsed(output=tmp_path / "run", steps=1, model="bert_tiny", input=tmp_path / "text.txt"))
    with pytest.raises(ValueError, match="was made with {'length': 32}"):
        pretrain.run(parsed(**word_order(trained[0], length=48, steps=300)))
    assert not (tmp_path / "run.json").exists()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (dict(positions="tissa"), "Unknown position encoding: 'tissa'"),
        (dict(model_options="width=3"), "width"),
        (dict(model="bert_none"), "bert_none"),
        (dict(mask_rate=3), "share of masked tokens must lie between 0 and 1. Received: 3"),
        (dict(dev_share=1), "share of held-out documents is from 0 to below 1. Received: 1"),
        (dict(model_options="max_length=64"), "128 tokens are too many: give a smaller --length.*max_length=64"),
    ],
)
def test_wrong_flags_are_errors_before_a_vocabulary_is_trained(tmp_path, monkeypatch, changed, message):
    monkeypatch.setattr(pretrain.corpus_flags, "make_tokenizer", lambda *_: pytest.fail("a vocabulary is made"))
    (tmp_path / "text.txt").write_text("a b.")
    given = dict(output=tmp_path / "run", steps=1, model="bert_tiny", input=tmp_path / "text.txt")
    with pytest.raises(ValueError, match=message):
        pretrain.run(parsed(**{**given, **changed}))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """Folder of a small model, and its vocabulary."""
    tokenizer = WordPiece(word_order_text.vocabulary())
    model = models.Bert(len(tokenizer.vocabulary), 1, 2, 16, 32, max_length=16, segments="none", position="learned")
    model.build()
    folder = tmp_path_factory.mktemp("checkpoint") / "model"
    checkpoints.save(model, folder, tokenizer)
    return folder, tokenizer


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (dict(length=32), "32 tokens are too many: give a smaller --length.*max_length=16"),
        (dict(length=16, model_options="width=3"), "width"),
    ],
)
def test_a_checkpoint_is_tried_before_text_is_tokenized(tmp_path, monkeypatch, checkpoint, changed, message):
    monkeypatch.setattr(pretrain, "open_corpus", lambda _: pytest.fail("text is tokenized"))
    given = dict(output=tmp_path / "run", steps=1, task="word_order", checkpoint=checkpoint[0])
    with pytest.raises(ValueError, match=message):
        pretrain.run(parsed(**given, **changed))


def test_what_a_prepared_corpus_makes_pointless_is_refused():
    for name in ("train_vocabulary", "vocabulary_size=99", "dev_share=0.5", "shards=2", "nolowercase", "workers=2"):
        values = flags.FlagValues()
        pretrain.define(values)
        values(["pretrain", "--corpus=never", "--model=bert_tiny", "--length=8", "--nodownload", f"--{name}"])
        shown = name.removeprefix("no").partition("=")[0]
        with pytest.raises(ValueError, match=f"--corpus does not go with --{shown}: leave one out"):
            pretrain.check_flags(values)


def test_a_vocabulary_that_cannot_be_read_does_not_stand_against_one_that_can(tmp_path, checkpoint):
    folder, tokenizer = checkpoint
    broken, good = tmp_path / "broken", tmp_path / "good"
    shutil.copytree(folder, broken)
    good.mkdir()
    tokenizer.save(good)
    given = dict(task="word_order", documents=20, length=16, dev_share=0, output=tmp_path / "run", steps=1, batch=2)
    for damage in ("vocab.txt", "spiece.model"):
        (broken / damage).write_bytes(b"\xff")
        values = parsed(**given, checkpoint=broken, tokenizer=good)
        pretrain.check_flags(values)
        task = pretrain.make_task(values, pretrain.train_flags.options(values), pretrain.open_corpus(values))
        assert task.source.tokenizer.vocabulary == tokenizer.vocabulary
    (broken / "spiece.model").unlink()
    with pytest.raises(ValueError, match="utf-8"):
        ModelSource(str(broken))


def test_a_corpus_with_another_vocabulary_is_not_trained_on(tmp_path):
    (tmp_path / "text.txt").write_text("one two three.\n\nfour five six.\n" * 30)
    given = dict(output=tmp_path / "run", input=tmp_path / "text.txt", length=16, dev_share=0)
    trained = dict(train_vocabulary=True, vocabulary_size=60, **given)
    corpus = pretrain.open_corpus(parsed(**trained))
    assert pretrain.open_corpus(parsed(**trained)).about == corpus.about
    for changed in (dict(vocabulary_size=70), dict(lowercase=False), dict(train_vocabulary=False)):
        with pytest.raises(ValueError, match="was made with {'trained_vocabulary': .*'vocabulary_size': 60"):
            pretrain.open_corpus(parsed(**{**trained, **changed}))
