"""keras-hub's `BertBackbone`."""

from serving.peering.peers.tensorflow_runtime import start, versions


class Peer:
    """
    Args:
        xla: compile with XLA.
    """

    def __init__(self, folder, work, threads, xla=False):
        self.tf = start(threads)
        import keras
        import keras_hub

        self.model = keras_hub.models.BertBackbone.from_preset(str(folder))
        for block in self.model.transformer_layers:  # its own gelu is the tanh approximation, whatever the folder says
            block._feedforward_intermediate_dense.activation = keras.activations.gelu
        self.notes = "with exact gelu, as the others"
        self.xla = xla
        self.versions = versions("tensorflow", "keras", "keras-hub")

    def prepare(self, inputs):
        given = {name: self.tf.constant(value) for name, value in inputs.items()}
        function = self.tf.function(
            lambda values: self.model(values, training=False), jit_compile=self.xla, autograph=False
        ).get_concrete_function(given)

        def call():
            found = function(given)
            return {name: found[name].numpy() for name in ("sequence_output", "pooled_output")}

        return call
