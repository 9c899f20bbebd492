"""The flags that say which text to prepare, and how; in common to preparing a corpus and to training on plain text."""

import tempfile
import unicodedata
from pathlib import Path

from absl import flags

from training import tokenizers
from training.corpus import inputs, shards
from training.corpus.preparing import Job

WORD_ORDER = "word_order"
WORD_PIECES, SENTENCE_PIECES = "word_pieces", "sentence_pieces"


def define(flag_values=flags.FLAGS):
    """Defines the flags. `--tokenizer`, a folder with a vocabulary, is the binary's own."""
    named = dict(flag_values=flag_values)
    flags.DEFINE_list("input", [], "Text files, globs, gzip or not; a blank line ends a document.", **named)
    flags.DEFINE_list("tfds", [], "Data sets of TensorFlow Datasets, e.g. wikipedia/20230601.en.", **named)
    flags.DEFINE_string("split", "train", "Their split.", **named)
    flags.DEFINE_string("data_dir", None, "Where they are prepared.", **named)
    flags.DEFINE_bool("download", False, "Let TensorFlow Datasets download what is not prepared.", **named)
    flags.DEFINE_enum("task", None, [WORD_ORDER], "Text of the word-order benchmark, made by code.", **named)
    flags.DEFINE_integer("documents", None, "Number of its documents.", lower_bound=1, **named)
    flags.DEFINE_integer("length", 128, "Tokens of a row.", lower_bound=4, **named)
    flags.DEFINE_integer("shards", 8, "Number of files.", lower_bound=1, **named)
    flags.DEFINE_float("dev_share", 0.01, "Share of documents that are held out to evaluate on.", **named)
    flags.DEFINE_bool("train_vocabulary", False, "Train a vocabulary on the text.", **named)
    flags.DEFINE_enum("vocabulary", WORD_PIECES, [WORD_PIECES, SENTENCE_PIECES], "Its kind.", **named)
    flags.DEFINE_integer("vocabulary_size", 30522, "Number of its pieces.", **named)
    flags.DEFINE_integer(
        "vocabulary_sentences", 2_000_000, "Sentences to train it on, from all files in equal numbers.", **named
    )
    flags.DEFINE_bool("lowercase", True, "Lower the text, and take accents off.", **named)
    flags.DEFINE_bool("skip_bad_lines", False, "Leave out lines that are not UTF-8, instead of stopping.", **named)
    flags.DEFINE_integer("workers", 0, "Processes that tokenize; 0 for this one.", lower_bound=0, **named)


def preparing_names():
    """Flags that only matter while a corpus is made: all but those that name the text, and the length of rows."""
    own = flags.FlagValues()
    define(own)
    return sorted(set(own) - {"input", "tfds", "task", "length"})


def given(values):
    """Whether the flags name any text."""
    return bool(values.input or values.tfds or values.task)


def read_inputs(values):
    """The inputs that the flags name, and their description."""
    kinds = [name for name in ("input", "tfds", "task") if values[name].value]
    if len(kinds) != 1:
        raise ValueError(
            f"Name the text with one of --input, --tfds and --task. Received: {', '.join(kinds) or 'none'}"
        )
    if values.task:
        return [inputs.WordOrder("train", values.documents)], (values.task, str(values.documents or "all"))
    if values.input:
        found = inputs.text_files(values.input, values.skip_bad_lines)
        return found, tuple(item.path for item in found)
    found = inputs.data_sets(values.tfds, values.split, values.data_dir, values.download)
    return found, tuple(f"{name}[{values.split}]" for name in values.tfds)


def make_tokenizer(values, read, folder=None):
    """The tokenizer that the flags ask for.

    Args:
        values: parsed flags.
        read: inputs, to train it on.
        folder: of a given vocabulary.
    """
    from keras_posenc.checkpoints.tokenizer import SentencePiece, WordPiece, load_tokenizer
    from training.data import word_order

    if folder is not None:
        if values.train_vocabulary:
            raise ValueError("--tokenizer is a vocabulary, and --train_vocabulary makes one. Give one of the two.")
        return load_tokenizer(folder)
    if not values.train_vocabulary:
        if values.task == WORD_ORDER:
            return WordPiece(word_order.vocabulary())
        raise ValueError("Name a vocabulary with --tokenizer=FOLDER, or have one made with --train_vocabulary.")
    texts = inputs.sample(read, values.vocabulary_sentences)
    if values.vocabulary == WORD_PIECES:
        return tokenizers.train_word_pieces(texts, values.vocabulary_size, values.lowercase)
    texts = (_plain(text) if values.lowercase else text for text in texts)
    file = Path(tempfile.mkdtemp(prefix="pieces-")) / "spiece.model"
    tokenizers.train_sentence_pieces(texts, values.vocabulary_size, file)
    return SentencePiece(file, lowercase=values.lowercase, keep_accents=not values.lowercase)


def _plain(text):
    """Text as `SentencePiece(lowercase=True)` sees it."""
    parts = unicodedata.normalize("NFKD", text)
    return "".join(char for char in parts if not unicodedata.combining(char)).lower()


def make_job(values, output, tokenizer, source):
    """The `Job` that the flags describe."""
    files, trained = shards.files_of(tokenizer), trained_vocabulary(values)
    return Job(str(output), values.length, files, values.shards, values.dev_share, source, trained)


def trained_vocabulary(values):
    """How the vocabulary is trained, or `None` if it is given."""
    names = ("vocabulary", "vocabulary_size", "vocabulary_sentences", "lowercase")
    return {name: values[name].value for name in names} if values.train_vocabulary else None
