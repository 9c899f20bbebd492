"""Which layers an analysis looks at."""

import numpy as np


def check_layers(layers, num_layers, name="layers"):
    """A list of layers, 1 to `num_layers` for `None`; an error if one is not an integer from 0 to `num_layers`."""
    chosen = list(range(1, num_layers + 1) if layers is None else layers)
    if not chosen or not all(isinstance(n, (int, np.integer)) and 0 <= n <= num_layers for n in chosen):
        raise ValueError(f"`{name}` must be a list of integers from 0 to {num_layers}. Received: {name}={layers!r}")
    return [int(layer) for layer in chosen]
