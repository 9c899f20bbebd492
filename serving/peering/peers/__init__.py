"""One module for each library: a class `Peer` that loads a Hugging Face folder.

`Peer(folder, work, threads, **options)` has `versions`, a dict, and `prepare(inputs)`: a function of no arguments that
computes `sequence_output` and `pooled_output` of these inputs and returns them as NumPy arrays. What can be done before
the first request is done in the constructor. A missing library is an `ImportError`.
"""
