"""From text to shards: packing, the order of things, and what a killed process leaves."""

import gzip
import json
import multiprocessing
import os
import signal

import numpy as np
import pytest
import tensorflow as tf
from absl import flags

from keras_posenc.checkpoints.tokenizer import WordPiece
from training import prepare_corpus
from training.corpus import inputs, shards
from training.corpus.packing import Packer
from training.corpus.preparing import Job
from training.corpus.reading import RowStream
from training.corpus.running import prepare, run_here
from training.data import word_order
from training.data.word_order.lexicon import PERIOD

CLS, SEP, PAD = 2, 3, 0


def packed(length, *documents):
    return [row.tolist() for row in Packer(length, CLS, SEP, PAD).rows(documents)]


def test_whole_sentences_up_to_the_length():
    # 11 12 13 and 21 22 fill a row of 7 exactly; 31 32 does not fit any more.
    assert packed(7, [[11, 12, 13], [21, 22], [31, 32]]) == [[2, 11, 12, 13, 21, 22, 3], [2, 31, 32, 3, 0, 0, 0]]


def test_a_separator_between_documents():
    assert packed(8, [[11, 12]], [[21], [22]]) == [[2, 11, 12, 3, 21, 22, 3, 0]]
    # With its separator the second document does not fit, and a row does not begin with one.
    assert packed(7, [[11, 12, 13]], [[21, 22]]) == [[2, 11, 12, 13, 3, 0, 0], [2, 21, 22, 3, 0, 0, 0]]
    # Within a document a new row has none either.
    assert packed(5, [[11, 12], [13, 14]], [[21]]) == [[2, 11, 12, 3, 0], [2, 13, 14, 3, 0], [2, 21, 3, 0, 0]]


def test_only_a_sentence_longer_than_a_row_is_cut():
    assert packed(5, [[11], [21, 22, 23, 24, 25, 26, 27], [31]]) == [
        [2, 11, 3, 0, 0],
        [2, 21, 22, 23, 3],
        [2, 24, 25, 26, 3],
        [2, 27, 31, 3, 0],
    ]


def test_no_token_is_lost_doubled_or_moved(rng):
    for length in (4, 9, 32):
        documents = [
            [rng.integers(5, 99, rng.integers(1, 14)).tolist() for _ in range(rng.integers(1, 6))] for _ in range(30)
        ]
        rows = packed(length, *documents)
        assert {len(row) for row in rows} == {length}
        kept = [token for row in rows for token in row if token not in (CLS, SEP, PAD)]
        assert kept == [token for document in documents for sentence in document for token in sentence]
        for row in rows:
            end = row.index(PAD) if PAD in row else length
            assert row[0] == CLS and row[end - 1] == SEP and not any(row[end:])
            assert row.count(CLS) == 1 and [SEP, SEP] not in [row[i : i + 2] for i in range(length)]


def test_rows_that_hold_nothing_are_an_error():
    with pytest.raises(ValueError, match="length=3"):
        Packer(3, CLS, SEP, PAD)


@pytest.fixture(scope="module")
def tokenizer():
    return WordPiece(word_order.vocabulary())


@pytest.fixture(scope="module")
def documents():
    return word_order.load("text", "train", 150)


def write(folder, documents, names, packed=False):
    """Text files, a part of the documents in each."""
    folder.mkdir()
    for number, name in enumerate(names):
        text = "\n\n".join("\n".join(document) for document in documents[number :: len(names)]) + "\n"
        (folder / name).write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    return inputs.text_files([str(folder / "*")])


def job(output, tokenizer, **changed):
    return Job(str(output), tokenizer_files=shards.files_of(tokenizer), **{"length": 40, "num_shards": 3, **changed})


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, tokenizer, documents):
    folder = tmp_path_factory.mktemp("corpus")
    found = write(folder / "text", documents, ["a.txt", "b.txt"])
    return prepare(job(folder / "corpus", tokenizer, dev_share=0.1), found)


def contents(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_the_same_documents_give_the_same_shards(tmp_path, tokenizer, documents, corpus):
    others = write(tmp_path / "text", documents[::-1], ["z.gz", "y.gz", "x.gz"], packed=True)
    prepare(job(tmp_path / "corpus", tokenizer, dev_share=0.1), others[::-1])
    assert contents(tmp_path / "corpus") == contents(type(tmp_path)(corpus.folder))


def test_every_sentence_is_in_one_row_of_one_split(tokenizer, documents, corpus):
    rows = np.concatenate([corpus.array(split) for split in ("train", "dev")])
    assert corpus.rows("dev") > 0
    found = [tokenizer.decode(row).split(f" {PERIOD}") for row in rows]
    found = sorted(text.strip() for texts in found for text in texts if text.strip())
    assert found == sorted(sentence.removesuffix(f" {PERIOD}") for document in documents for sentence in document)
    assert corpus.about["sentences"] == len(found)
    assert corpus.about["rows"] == len(rows) == sum(shard["rows"] for shard in corpus.about["shards"])
    assert corpus.about["tokens"] == (rows > 4).sum()


def test_any_reader_of_tfrecords_reads_the_rows(corpus):
    files = [corpus.path(shard) for shard in corpus.shards("train")]
    rows = []
    for record in tf.data.TFRecordDataset(files):
        feature = tf.train.Example.FromString(record.numpy()).features.feature["token_ids"]
        rows.append(np.frombuffer(feature.bytes_list.value[0], "<i4"))
    np.testing.assert_array_equal(rows, corpus.array("train"))


def test_an_epoch_is_a_permutation_and_any_step_can_be_reached(corpus):
    stream = RowStream(corpus, "train", batch=7, seed=2, block=4, window=3)
    assert len(stream) == corpus.rows("train") and len(stream) % 7
    steps = -(-2 * len(stream) // 7)
    batches = [batch["token_ids"].numpy() for batch in stream().take(steps)]
    rows = np.concatenate(batches)
    first, second = rows[: len(stream)], rows[len(stream) : 2 * len(stream)]
    everything = sorted(map(tuple, corpus.array("train")))
    assert sorted(map(tuple, first)) == sorted(map(tuple, second)) == everything
    assert (first != second).any(axis=1).mean() > 0.9
    assert (first != corpus.array("train")).any(axis=1).mean() > 0.9
    for start in (1, 2, len(stream) // 7 - 1, len(stream) // 7, len(stream) // 7 + 1, steps - 2):
        again = [batch["token_ids"].numpy() for batch in stream(start).take(2)]
        np.testing.assert_array_equal(again, batches[start : start + 2])
    other = next(iter(RowStream(corpus, "train", batch=7, seed=3)()))["token_ids"].numpy()
    assert (other != batches[0]).any()


class Dying(inputs.WordOrder):
    """Kills its process in the middle of the documents, or while the second shard is written."""

    def documents(self):
        for number, document in enumerate(super().documents()):
            if self.seed == 1 and number == 40:
                os.kill(os.getpid(), signal.SIGKILL)
            yield document
        if self.seed == 2:
            write_shard = shards.write_shard

            def dying(path, rows):
                def read():
                    for number, row in enumerate(rows):
                        if "00001-of" in path and number == 3:
                            os.kill(os.getpid(), signal.SIGKILL)
                        yield row

                return write_shard(path, read())

            shards.write_shard = dying


@pytest.mark.integration
def test_a_killed_run_leaves_nothing_to_train_on_and_can_be_repeated(tmp_path, tokenizer):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    for seed in (1, 2):
        child = context.Process(target=prepare, args=(job(tmp_path / "killed", tokenizer), [Dying(size=60, seed=seed)]))
        child.start()
        child.join(120)
        assert child.exitcode == -signal.SIGKILL
        with pytest.raises(FileNotFoundError, match="no corpus.json"):
            shards.Corpus.open(tmp_path / "killed")
    assert [name for name in os.listdir(tmp_path / "killed") if name.endswith(".part")]
    documents = [inputs.WordOrder(size=60, seed=2)]
    prepare(job(tmp_path / "killed", tokenizer), documents)
    prepare(job(tmp_path / "whole", tokenizer), documents)
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


def test_a_finished_corpus_and_folders_with_other_files_are_refused(tmp_path, tokenizer, corpus):
    with pytest.raises(FileExistsError, match="finished corpus"):
        prepare(job(corpus.folder, tokenizer), [])
    (tmp_path / "thesis.tex").write_text("x")
    (tmp_path / "train-00000-of-00001.tfrecord").write_text("x")
    with pytest.raises(FileExistsError, match="thesis.tex"):
        prepare(job(tmp_path, tokenizer), [])
    assert len(list(tmp_path.iterdir())) == 2


def test_wrong_flags_are_errors_before_a_vocabulary_is_trained(tmp_path, monkeypatch, corpus):
    monkeypatch.setattr(prepare_corpus.corpus_flags, "make_tokenizer", lambda *_: pytest.fail("a vocabulary is made"))
    (tmp_path / "text.txt").write_text("a b.")
    for given, message in (
        ([f"--output={corpus.folder}"], "finished corpus"),
        ([f"--output={tmp_path / 'new'}", "--dev_share=1"], "from 0 to below 1"),
    ):
        values = flags.FlagValues()
        prepare_corpus.define(values)
        values(["prepare_corpus", f"--input={tmp_path / 'text.txt'}", "--train_vocabulary", *given])
        monkeypatch.setattr(prepare_corpus, "FLAGS", values)
        with pytest.raises((ValueError, FileExistsError), match=message):
            prepare_corpus._run(None)


def test_a_bad_line_is_reported_with_file_and_line(tmp_path, tokenizer):
    (tmp_path / "bad.txt").write_bytes(b"good line.\n\nbad \xff line.\nafter it.\n")
    with pytest.raises(ValueError, match=r"bad\.txt:3: expected UTF-8, received the bytes b'\\xff' at byte 5"):
        prepare(job(tmp_path / "corpus", tokenizer), inputs.text_files([str(tmp_path / "bad.txt")]))
    assert not (tmp_path / "corpus" / shards.INDEX).exists()
    (read,) = inputs.text_files([str(tmp_path / "bad.txt")], skip=True)
    assert list(read.documents()) == [["good line."], ["after it."]]


def test_errors_say_what_is_missing(tmp_path, tokenizer, corpus):
    with pytest.raises(FileNotFoundError, match="No file matches"):
        inputs.text_files([str(tmp_path / "*.nothing")])
    with pytest.raises(ValueError, match="no documents"):
        run_here(job(tmp_path, tokenizer), [])
    copied = tmp_path / "copied"
    copied.mkdir()
    for name, content in contents(type(tmp_path)(corpus.folder)).items():
        (copied / name).parent.mkdir(exist_ok=True)
        (copied / name).write_bytes(content)
    broken = copied / corpus.about["shards"][1]["file"]
    broken.write_bytes(broken.read_bytes()[:-100])
    with pytest.raises(ValueError, match="should have"):
        shards.Corpus.open(copied)
    (copied / shards.INDEX).write_text(json.dumps({"format": 99}))
    with pytest.raises(ValueError, match="format 99"):
        shards.Corpus.open(copied)


def test_a_vocabulary_is_sampled_from_all_inputs():
    texts = list(inputs.sample([inputs.WordOrder(size=20), inputs.WordOrder(size=20, seed=1)], 10))
    assert len(texts) == 10
    first, second = (next(inputs.WordOrder(size=1, seed=seed).documents()) for seed in (0, 1))
    assert texts[0] == first[0] and texts[5] == second[0]


@pytest.mark.integration
def test_a_data_set_is_read_shard_by_shard(tmp_path):
    theirs = pytest.importorskip("tensorflow_datasets")
    version = theirs.builder("wiki40b/en", data_dir=tmp_path).version  # the one that is looked for
    with theirs.core.registered.skip_registration():

        class Wiki40b(theirs.core.GeneratorBasedBuilder):
            VERSION = version
            BUILDER_CONFIGS = [theirs.core.BuilderConfig(name="en")]

            def _info(self):
                names = ("text", "wikidata_id", "version_id")
                features = theirs.features.FeaturesDict({name: theirs.features.Text() for name in names})
                return theirs.core.DatasetInfo(builder=self, features=features)

            def _split_generators(self, dl_manager):
                return {"train": self._generate_examples()}

            def _generate_examples(self):
                for number in range(40):
                    text = f"One {number}. Two.\n\nThree."
                    yield number, {"text": text, "wikidata_id": "", "version_id": ""}

    options = theirs.download.DownloadConfig(num_shards=3)
    Wiki40b(data_dir=tmp_path, config="en").download_and_prepare(download_config=options)
    found = inputs.data_sets(["wiki40b/en"], data_dir=str(tmp_path))
    assert [part.split for part in found] == ["train[0shard]", "train[1shard]", "train[2shard]"]
    documents = [document for part in found for document in part.documents()]
    assert sorted(documents) == sorted([f"One {number}.", "Two.", "Three."] for number in range(40))
    assert len(inputs.data_sets(["wiki40b/en"], "train[:10]", str(tmp_path))) == 1


@pytest.mark.integration
def test_beam_makes_the_same_shards(tmp_path, tokenizer, documents, corpus):
    pytest.importorskip("apache_beam")
    found = write(tmp_path / "text", documents, ["a.txt", "b.txt", "c.txt"])
    made = prepare(job(tmp_path / "corpus", tokenizer, dev_share=0.1), found, beam=["--runner=BundleBasedDirectRunner"])
    assert made.about["rows"] == corpus.about["rows"]
    assert contents(tmp_path / "corpus") == contents(type(tmp_path)(corpus.folder))
