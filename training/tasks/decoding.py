"""Translating texts with a trained encoder-decoder: batches of similar lengths, in the order of the texts again."""

import itertools

import numpy as np

from keras_posenc import models

EXTRA = 50  # tokens that a translation may have more than its source, as Vaswani et al. do


def translate(model, tokenizer, texts, batch=32, beam=10, penalty=0.6):
    """A translation of each text, by beam search; that of an empty text is empty.

    Args:
        model: `EncoderDecoder`.
        tokenizer: `JointTokenizer` it was trained with.
        texts: list.
        batch: texts that are translated together.
        beam, penalty: number of hypotheses and exponent of the length penalty; a beam of 1 is greedy.

    Returns: list of texts, and the number of sources that were cut to what the model can read.
    """
    found = [""] * len(texts)
    filled = [index for index, text in enumerate(texts) if text.strip()]
    ids = dict(zip(filled, tokenizer.tokenize([texts[index] for index in filled])))
    limit, cut = model.max_length - 1, count_cut(model, ids.values())
    order = sorted(filled, key=lambda index: len(ids[index]))
    for begin in range(0, len(order), batch):
        rows = order[begin : begin + batch]
        sources = [[*ids[index][:limit], tokenizer.eos_id] for index in rows]
        longest = len(sources[-1])
        token_ids = np.full((len(rows), longest), tokenizer.pad_id, "int32")
        for row, source in enumerate(sources):
            token_ids[row, : len(source)] = source
        mask = np.arange(longest) < np.array([[len(source)] for source in sources])
        outputs = models.generate(
            model,
            token_ids,
            mask,
            bos_id=tokenizer.bos_id,
            eos_id=tokenizer.eos_id,
            # A multiple of 16, so that few searches are compiled.
            max_length=min(model.max_length, -(-(longest + EXTRA) // 16) * 16),
            method="greedy" if beam == 1 else "beam",
            beam_size=beam,
            length_penalty=penalty,
        )["token_ids"]
        for index, text in zip(rows, tokenizer.decode(outputs)):
            found[index] = text
    return found, cut


def count_cut(model, ids):
    """How many of some sources, lists of ids, are longer than the model reads."""
    return sum(len(each) > model.max_length - 1 for each in ids)


def translate_lines(model, tokenizer, lines, write, chunk=1024, **options):
    """Translates lines as they come, `chunk` of them at a time, and writes each translation as a line.

    Args:
        lines: iterable of texts, with or without line ends.
        write: function of a text, called in the order of the lines.
        chunk: lines that are read before any is written; within them batches are made by length.
        **options: of `translate`.

    Returns: numbers of lines, and of those that were cut.
    """
    total = cut = 0
    lines = iter(lines)
    while True:
        some = [line.rstrip("\r\n") for line in itertools.islice(lines, chunk)]
        if not some:
            return total, cut
        found, shortened = translate(model, tokenizer, some, **options)
        for text in found:
            write(text + "\n")
        total, cut = total + len(some), cut + shortened
