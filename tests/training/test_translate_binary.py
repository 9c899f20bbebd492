"""`training.translate` from flags to files: what it learns, what it refuses, and that it can be stopped anywhere."""

import gzip
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from absl import flags

from training import engine, parallel_flags, translate
from training.data import word_order
from training.data.records import Parallel
from training.tasks import decoding
from training.tasks.translate import Translate, smoothed
from training.tokenizers import JointTokenizer, train_sentence_pieces

TINY = "num_layers=1,num_heads=2,hidden_dim=64,intermediate_dim=128"


def run(*arguments):
    values = flags.FlagValues()
    translate.define(values)
    values(["translate", *arguments])
    return translate.run(values)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """16 pairs of the verb-final language, as files; the source of the test set is packed."""
    folder = tmp_path_factory.mktemp("corpus")
    data = word_order.load("translation", "train", size=16, lengths=(5, 7))
    for split in ("train", "dev", "test"):
        (folder / f"{split}.vso").write_text("\n".join(data.target) + "\n")
        (folder / f"{split}.svo").write_text("\n".join(data.source) + "\n")
    (folder / "test.svo").unlink()
    (folder / "test.svo.gz").write_bytes(gzip.compress("\n".join(data.source).encode() + b"\n"))
    words = sorted({word for text in data.source + data.target for word in text.split()})
    train_sentence_pieces(words, len(words) + 4, folder / "words.model", special=(), words=True)
    return folder, data


def arguments(folder, output, *more):
    return (
        f"--data_dir={folder}",
        "--source=svo",
        "--target=vso",
        "--test=test",
        f"--vocabulary={folder / 'words.model'}",
        f"--model_options={TINY}",
        "--positions=diet_rel",
        "--dropout=0",
        "--max_length=16",
        "--batch=16",
        "--bleu_sample=4",
        f"--output={output}",
        *more,
    )


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    output = tmp_path_factory.mktemp("run") / "out"
    asked = arguments(
        corpus[0], output, "--steps=160", "--eval_every=80", "--learning_rate=5e-3", "--average=2", "--beam=4"
    )
    return output, asked, run(*asked)


def test_label_smoothing_is_the_cross_entropy_with_smoothed_labels(rng):
    logits, labels, s = rng.normal(size=(5, 7)).astype("float32"), rng.integers(0, 7, 5), 0.1
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    wanted = (1 - s) * np.eye(7)[labels] + s / 7
    plain = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    np.testing.assert_allclose(smoothed(plain, logits, s), -(wanted * log_p).sum(1), rtol=1e-5)
    np.testing.assert_allclose(smoothed(plain, logits, 0.0), -log_p[np.arange(5), labels], rtol=1e-5)


def test_targets_are_moved_right_by_one(corpus):
    tokenizer = JointTokenizer(corpus[0] / "words.model")
    words = corpus[1].target[0].split()[:3]
    texts = [" ".join(words[:2]), " ".join(words)]
    a, b, c = tokenizer.tokenize([texts[1]])[0]
    bos, eos, pad = tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id
    task = Translate(tokenizer, None, {"dev": Parallel(texts[::-1], texts)}, "transformer_tiny", max_length=5, batch=2)
    (batch,) = task.eval_data()["dev"]
    batch = {name: value.numpy()[np.argsort(batch["row"])].tolist() for name, value in batch.items()}
    # As long as the longest of the batch, no longer.
    assert batch["token_ids"] == [[a, b, c, eos], [a, b, eos, pad]]
    assert batch["padding_mask"] == [[1, 1, 1, 1], [1, 1, 1, 0]]
    assert batch["target_ids"] == [[bos, a, b, pad], [bos, a, b, c]]
    assert batch["labels"] == [[a, b, eos, pad], [a, b, c, eos]]
    assert batch["target_padding_mask"] == [[1, 1, 1, 0], [1, 1, 1, 1]]


def test_a_vocabulary_is_trained_once_for_its_data(corpus, tmp_path):
    def tokenizer(size, limit=16):
        values = flags.FlagValues()
        translate.define(values)
        asked = ("--source=svo", "--target=vso", f"--vocabulary_size={size}", f"--limit={limit}")
        values(["translate", f"--data_dir={corpus[0]}", *asked])
        data = parallel_flags.Data(values)
        return data.tokenizer(tmp_path, data.load("train"))

    first = tokenizer(60)
    texts = corpus[1].source + corpus[1].target
    assert first.size <= 60 and first.decode(first.tokenize(texts)[:1]) == texts[:1]
    written = (tmp_path / "vocabulary.model").stat().st_mtime_ns
    tokenizer(60)
    assert (tmp_path / "vocabulary.model").stat().st_mtime_ns == written
    assert tokenizer(70).size > first.size
    assert tokenizer(70, limit=2).size < 70  # other data: trained again, and two sentences have fewer pieces


def test_word_order_needs_no_files(tmp_path):
    values = flags.FlagValues()
    translate.define(values)
    values(["translate", "--task=word_order", "--limit=20"])
    data = parallel_flags.Data(values)
    train, longer = data.load("train"), data.load("test_longer")
    tokenizer = data.tokenizer(tmp_path, train)
    assert len(train) == 20
    for text in (*longer.source[:50], *longer.target[:50]):
        assert len(tokenizer.tokenize([text])[0]) == len(text.split())  # a piece a word, and none unknown
        assert tokenizer.decode(tokenizer.tokenize([text])) == [text]


def test_pairs_that_are_too_long_are_not_trained_on(corpus):
    tokenizer = JointTokenizer(corpus[0] / "words.model")
    word = corpus[1].source[0].split()[0]
    data = Parallel([word, " ".join([word] * 4), " ".join([word] * 5)], [" ".join([word] * 4), word, word])
    task = Translate(tokenizer, data, {}, "transformer_tiny", max_length=5, batch=2, static=True)
    assert (task.num_examples, task.left_out) == (2, 1)
    batch = next(iter(task.train_data(0)))
    assert {name: tuple(value.shape) for name, value in batch.items()} == {name: (2, 5) for name in batch}


@pytest.mark.integration
def test_learns_sixteen_sentences_by_heart(trained, corpus):
    output, _, found = trained
    for name in ("dev", "test"):
        assert found["sets"][name]["exact"] == 1.0
        np.testing.assert_allclose(found["sets"][name]["bleu"], 100, rtol=1e-6)
        assert "tok:13a" in found["sets"][name]["bleu_signature"]
        assert Path(found["sets"][name]["translations"]).read_text().splitlines() == corpus[1].target
    curve = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in curve] == [80, 160]
    assert curve[-1]["eval"]["dev_sample"]["exact"] == 1.0


@pytest.mark.integration
def test_a_finished_run_is_not_trained_again(trained):
    output, asked, found = trained
    assert run(*asked) == found
    # As if it had been killed between training and the end.
    (output / "results.json").unlink()
    Path(found["sets"]["test"]["translations"]).unlink()
    assert run(*asked) == found
    assert json.loads((output / "run.json").read_text())["starts"] == 1


@pytest.mark.integration
def test_decode_keeps_order_and_empty_lines(trained, corpus, tmp_path):
    output, (_, data) = trained[0], corpus
    order = [3, None, 0, 7, None, None, 3, 12]
    pick = [["" if i is None else side[i] for i in order] for side in (data.source, data.target)]
    (tmp_path / "in.txt").write_text("\n".join(pick[0]))  # the last line has no end
    asked = (f"--decode={tmp_path / 'in.txt'}", f"--decode_to={tmp_path / 'out.txt'}", "--decode_batch=3")
    assert run(f"--output={output}", *asked) == {"lines": 8, "cut": 0}
    assert (tmp_path / "out.txt").read_text() == "".join(text + "\n" for text in pick[1])


@pytest.mark.integration
def test_goes_on_after_being_stopped(corpus, tmp_path, monkeypatch):
    more = (
        "--steps=6",
        "--eval_every=2",
        "--steps_per_loop=2",
        "--beam=1",
        "--dropout=0.1",
        "--bleu_sample=0",
        "--positions=sinusoidal",
    )
    whole = run(*arguments(corpus[0], tmp_path / "whole", *more))
    metrics, calls = Translate.metrics, []

    def stopped(self, name, outputs):
        calls.append(name)
        if len(calls) == 2:  # in the second evaluation
            raise KeyboardInterrupt
        return metrics(self, name, outputs)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Translate, "metrics", stopped)
        run(*arguments(corpus[0], tmp_path / "stopped", *more))
    found = run(*arguments(corpus[0], tmp_path / "stopped", *more))
    assert found["training"] == whole["training"]
    texts = [Path(each["sets"]["test"]["translations"]).read_text() for each in (found, whole)]
    assert texts[0] == texts[1]


@pytest.mark.integration
def test_patience_may_leave_fewer_checkpoints_to_average(corpus, tmp_path, capsys):
    """A model that does not learn is as good after the second evaluation as after the first, and stops."""
    more = ("--steps=6", "--eval_every=2", "--average=3", "--patience=1", "--learning_rate=1e-12", "--beam=1")
    found = run(*arguments(corpus[0], tmp_path / "out", *more, "--bleu_sample=0"))
    assert found["training"]["steps"] == 4 and found["averaged"] == 2
    assert "--average=3: training ended early, with 2 checkpoint(s) to average" in capsys.readouterr().out


@pytest.mark.integration
def test_only_checkpoints_of_evaluations_are_averaged(corpus, tmp_path):
    """The first loop of steps ends before the first evaluation, with weights that have hardly been trained."""
    more = ("--steps=6", "--eval_every=2", "--steps_per_loop=1", "--average=3", "--patience=1", "--beam=1")
    found = run(*arguments(corpus[0], tmp_path / "out", *more, "--learning_rate=1e-12", "--bleu_sample=0"))
    assert found["averaged"] == 2 and engine.newest_steps(tmp_path / "out") == [2, 4]


def test_checkpoints_between_evaluations_count_for_the_average():
    options = engine.TrainOptions(steps=100, batch=1, checkpoint_every=30, steps_per_loop=20, eval_every=100)
    task = SimpleNamespace(num_examples=10)
    translate._check_average(2, options, task)  # at 40 and 80, or more often
    with pytest.raises(ValueError, match="--average=3 needs as many checkpoints, and this run is going to have 2"):
        translate._check_average(3, options, task)


@pytest.mark.integration
@pytest.mark.parametrize("more", [(), ("--patience=1", "--keep=1")])
def test_checkpoints_that_were_dropped_are_not_left_out_of_the_average(corpus, tmp_path, more):
    """Two of four are there, or one of the two that patience left: the run did not end with so few."""
    asked = arguments(corpus[0], tmp_path, "--steps=8", "--eval_every=2", "--learning_rate=1e-12", "--beam=1", *more)
    run(*asked, "--bleu_sample=0")
    with pytest.raises(ValueError, match="are to be averaged. Train with keep=3"):
        run(*asked, "--bleu_sample=0", "--average=3")


def test_a_switch_that_is_off_asks_for_nothing(corpus):
    values = flags.FlagValues()
    translate.define(values)
    values(["translate", f"--data_dir={corpus[0]}", "--source=svo", "--target=vso", "--nodownload"])
    assert set(parallel_flags.Data(values).sets) == {"train", "dev"}


def test_sources_that_are_longer_than_the_model_reads_are_counted():
    """One token is that of the end."""
    assert decoding.count_cut(SimpleNamespace(max_length=4), [[1, 2, 3], [1, 2, 3, 4], []]) == 1


@pytest.mark.integration
def test_another_run_in_the_same_folder_is_refused(trained):
    output, asked, _ = trained
    with pytest.raises(ValueError, match="another run: label_smoothing was 0.1 and is 0.2"):
        run(*asked, "--label_smoothing=0.2")


def test_bad_flags_are_named_before_anything_is_done(corpus, tmp_path):
    folder, output = corpus[0], tmp_path / "never"
    asked = arguments(folder, output, "--steps=4")
    cases = [
        (("--steps=4",), "--output is needed"),
        ((f"--output={output}", "--steps=4"), "Received: none"),
        ((*asked, "--task=word_order"), "Received: --task, --data_dir"),
        ((*asked, "--source="), "give --source and --target"),
        ((*asked, "--test=nothing"), "nothing.svo"),
        ((*asked, "--vocabulary=nothing.model"), "No file 'nothing.model'"),
        ((f"--output={output}", "--train_source=x", "--steps=4"), "--train_source and --train_target go together"),
        ((*asked, "--schedule=noam"), "warmup=4000 is longer"),
        ((*asked, "--positions=diet_abs_lin"), "compressed keys of a Linformer"),
        ((*asked, "--positions=synthesizer", f"--model_options={TINY},bidirectional=true"), "from cached keys"),
        ((*asked, "--decoder_positions=nothing"), "nothing"),
        ((*asked, "--model_options=rank=4"), "rank"),
        ((*asked, "--vocabulary=", "--strategy=multi_worker_mirrored"), "same vocabulary"),
        ((*asked, "--average=3"), "--average=3 needs as many checkpoints"),
        ((*asked, "--average=2", "--checkpoint_every=2", "--ema=0.9"), "--average and --ema"),
        ((*asked, "--dev=test", "--test=dev"), "--test=dev: the dev set of this run is another"),
        ((*asked, "--batch=17"), "16 training examples"),
        ((*asked, "--dev_source=x", "--download"), "--data_dir does not go with --dev_source, --download: leave one"),
        ((*asked, "--vocabulary_size=99"), "--vocabulary does not go with --vocabulary_size"),
        ((f"--output={output}", "--train_source=x", "--train_target=x", "--test=t"), "--train_source does not go with"),
        ((f"--output={output}", "--train_source=x", f"--data_dir={folder}"), "does not go with --data_dir"),
        ((f"--output={output}", "--task=word_order", "--source=en"), "--task does not go with --source"),
        ((f"--output={output}", "--decode=-"), "no trained model"),
        (("--output=gs://bucket/run", "--decode=-"), "on a file system of this machine. Received: --output=gs://"),
    ]
    for given, message in cases:
        with pytest.raises((ValueError, OSError), match=message):
            run(*given)
    assert not output.exists()
