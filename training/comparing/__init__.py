"""One task, several encodings and seeds: the runs of `training.compare`, and the table made of them."""
