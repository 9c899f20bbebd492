"""A study of one model on one file of texts: the files, the order of the analyses, what is kept of them, the report."""
