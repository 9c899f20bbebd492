"""What Keras is told about the outputs of a layer that may have several."""

import keras


class TracedOutputs:
    """For layers with `compute_output_shape`, e.g. for `TimeDistributed`: symbolic calls are traced all the same.

    Keras would take the one shape for all outputs, and miss those that a call asks for.
    """

    def compute_output_spec(self, *args, **kwargs):
        return keras.Operation.compute_output_spec(self, *args, **kwargs)
