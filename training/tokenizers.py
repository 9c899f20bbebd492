"""Vocabularies trained on the user's own text: word pieces, and sentence pieces of one or two languages."""

import io
from pathlib import Path

import numpy as np

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def train_word_pieces(texts, size, lowercase=True):
    """A `WordPiece` tokenizer with a vocabulary of at most `size` pieces.

    Args:
        texts: iterable of strings.
        size: number of pieces, with the special ones.
        lowercase: whether text is lowered, and accents are stripped as BERT does with lowered text.
    """
    import keras_hub
    import tensorflow as tf

    from keras_posenc.checkpoints import bert_text
    from keras_posenc.checkpoints.tokenizer import WordPiece

    def words():
        for text in texts:
            found = bert_text.words(text, lowercase, None, True, SPECIAL)
            if found:
                yield " ".join(found)

    data = tf.data.Dataset.from_generator(words, output_signature=tf.TensorSpec((), tf.string)).batch(256)
    # The text is in words already: cutting it at punctuation and lowering it again would change nothing.
    vocabulary = keras_hub.tokenizers.compute_word_piece_vocabulary(
        data, size, lowercase=False, strip_accents=False, reserved_tokens=SPECIAL
    )
    return WordPiece(vocabulary, lowercase=lowercase)


def train_sentence_pieces(texts, size, file, special=("[CLS]", "[SEP]", "[MASK]"), coverage=0.9995, words=False):
    """Trains a sentence-piece model and writes it.

    Args:
        texts: iterable of strings.
        size: number of pieces.
        file: where the model goes.
        special: pieces that stand for themselves. `<pad>`, `<unk>`, `<s>` and `</s>` are ids 0 to 3.
        coverage: share of characters that have a piece of their own.
        words: whether pieces are whole words, all of those in the texts (`size` must be large enough).

    Returns: the path.
    """
    import sentencepiece

    content = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_writer=content,
            vocab_size=size,
            character_coverage=coverage,
            model_type="word" if words else "unigram",
            use_all_vocab=words,
            pad_id=0,
            unk_id=1,
            bos_id=2,
            eos_id=3,
            pad_piece="<pad>",
            user_defined_symbols=list(special),
            hard_vocab_limit=False,
            num_threads=1,  # more threads give another vocabulary each time
            minloglevel=2,
        )
    except RuntimeError as error:
        raise ValueError(f"No sentence pieces could be trained, vocabulary size {size}: {error}") from error
    file = Path(file)
    partial = file.with_name(file.name + ".part")
    partial.write_bytes(content.getvalue())
    partial.replace(file)
    return file


class JointTokenizer:
    """Sentence pieces of source and target together, for translation.

    Args:
        file: a sentence-piece model with `<pad>`, `<unk>`, `<s>` and `</s>`.
    """

    def __init__(self, file):
        import sentencepiece

        self.file = Path(file)
        try:
            self.processor = sentencepiece.SentencePieceProcessor(model_proto=self.file.read_bytes())
        except RuntimeError as error:
            raise ValueError(f"'{file}' is no sentence-piece model: {error}") from error
        self.size = self.processor.get_piece_size()
        self.pad_id, self.bos_id, self.eos_id = (
            self.processor.pad_id(),
            self.processor.bos_id(),
            self.processor.eos_id(),
        )
        missing = [n for n in ("pad_id", "bos_id", "eos_id") if getattr(self, n) < 0]
        if missing:
            raise ValueError(f"'{file}' was trained without {', '.join(missing)}, which a translation model needs.")

    def tokenize(self, texts):
        """A list of ids for each text."""
        return self.processor.encode(list(texts))

    def decode(self, ids):
        """A text for each row of ids, which ends where `</s>` is."""
        rows = []
        for row in np.asarray(ids).tolist():
            row = row[: row.index(self.eos_id)] if self.eos_id in row else row
            rows.append([i for i in row if i not in (self.pad_id, self.bos_id)])
        return self.processor.decode(rows)

    def save(self, folder):
        """Writes the model as `spiece.model`."""
        (Path(folder) / "spiece.model").write_bytes(self.file.read_bytes())
