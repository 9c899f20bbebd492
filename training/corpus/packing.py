"""Rows of whole sentences, as RoBERTa's FULL-SENTENCES and DIET's pretraining have them."""

import numpy as np


class Packer:
    """Fills rows of one length with sentences.

    A row is `[CLS] sentence sentence ... [SEP]`, then padding. Sentences go on in their order; the one that does not
    fit begins the next row. Where a document ends inside a row, a `[SEP]` follows it and the next document goes on in
    the same row: `[CLS] a1 a2 [SEP] b1 [SEP]`. No sentence is cut, but for one that is longer than a row by itself:
    it fills rows of its own, and what is left of it is packed like a sentence.

    Args:
        length: tokens of a row.
        cls_id, sep_id, pad_id: of the tokenizer.

    Reference: Liu et al., 2019 (RoBERTa, arXiv:1907.11692), section 4.2.
    """

    def __init__(self, length, cls_id, sep_id, pad_id):
        if length < 4:
            raise ValueError(f"Rows have at least 4 tokens, of which 2 are special. Received: length={length}")
        self.length, self.cls_id, self.sep_id, self.pad_id = length, cls_id, sep_id, pad_id

    def rows(self, documents):
        """Packs documents, lists of lists of token ids, one after the other. Yields int32 arrays `(length,)`."""
        row = [self.cls_id]
        for document in documents:
            begins = True
            for sentence in document:
                for part in self._parts(sentence):
                    separator = [self.sep_id] if begins and len(row) > 1 else []
                    if len(row) + len(separator) + len(part) + 1 > self.length:
                        yield self._finished(row)
                        row, separator = [self.cls_id], []
                    row += [*separator, *part]
                    begins = False
        if len(row) > 1:
            yield self._finished(row)

    def _parts(self, sentence):
        room = self.length - 2
        return [sentence[first : first + room] for first in range(0, len(sentence), room)]

    def _finished(self, row):
        return np.array([*row, self.sep_id] + [self.pad_id] * (self.length - len(row) - 1), "int32")
