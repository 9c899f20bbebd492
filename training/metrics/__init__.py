"""Scores of predictions: GLUE's, SQuAD's in many languages, and of translations."""
