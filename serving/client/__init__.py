"""A client for TF-Serving and for the embedded server: text or token ids in, labels, logits and attention out.

    from serving.client import Client

    with Client("localhost:8501", model="mrpc", labels=["different", "same"]) as client:
        result = client.read("A first sentence.", "A second one.", attention="effective", layer=3)
        print(result.labels, result.tokens[0], result.effective_attention().shape)

`Client("grpc://localhost:8500")` is the same over gRPC, which is the protocol for large maps. Over REST neither
TensorFlow nor tensorflow-serving-api is imported.
"""

from serving.client.client import Client
from serving.client.errors import ClientError
from serving.client.results import Result
from serving.client.retries import Retry

__all__ = ["Client", "ClientError", "Result", "Retry"]
