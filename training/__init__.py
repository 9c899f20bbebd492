"""Training binaries over keras_posenc: pretraining, GLUE, cross-lingual transfer, translation, comparisons."""
