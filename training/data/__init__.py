"""Data sets as plain Python records: official files, TensorFlow Datasets, and the built-in word-order benchmark."""
