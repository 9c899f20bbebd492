"""A stand-in for TF-Serving on TensorFlow's own runtime: gRPC and REST, versions, batching, warm-up, metrics.

The same requests get the same answers and the same errors. `embedded.EmbeddedServer` puts the parts together.
"""
