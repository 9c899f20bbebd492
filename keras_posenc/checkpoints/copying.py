"""Copying named arrays into the weights of a model, all of them or none."""

import dataclasses
import math

import numpy as np


@dataclasses.dataclass(frozen=True)
class Copy:
    """One array and the weight it is for.

    Attributes:
        name: of the array.
        variable: the weight.
        shape: that the array must have. Its values, transposed if so asked and reshaped, are those of the weight.
        transpose: whether the array has outputs before inputs, as in torch.
    """

    name: str
    variable: object
    shape: tuple
    transpose: bool = False


def as_is(name, variable):
    """An array of the same shape as its weight."""
    return [Copy(name, variable, tuple(variable.shape))]


def dense(name, layer, inputs=1):
    """The kernel and bias of a torch linear layer, for a Dense or EinsumDense.

    Args:
        name: of the torch layer.
        layer: the Keras layer.
        inputs: number of leading axes of the kernel that are inputs: 2 where they are heads and head size.
    """
    shape = tuple(layer.kernel.shape)
    flat = (math.prod(shape[inputs:]), math.prod(shape[:inputs]))
    return [
        Copy(f"{name}.weight", layer.kernel, flat, transpose=True),
        Copy(f"{name}.bias", layer.bias, flat[:1]),
    ]


def norm(name, layer):
    """The scale and offset of a layer normalisation."""
    return as_is(f"{name}.weight", layer.gamma) + as_is(f"{name}.bias", layer.beta)


def copy_all(copies, tensors, ignored=(), source="The checkpoint"):
    """Copies every array into its weight. Nothing is written if one is missing, left over or of another shape.

    Args:
        copies: list of `Copy`.
        tensors: mapping from names to arrays, with a method `shape(name)`.
        ignored: names that may be left over.
        source: what the error calls the mapping.
    """
    wanted = {copy.name: copy for copy in copies}
    problems = []
    for name, copy in wanted.items():
        if name not in tensors:
            problems.append(f"missing: {name}, expected shape {copy.shape}")
        elif tensors.shape(name) != copy.shape:
            problems.append(f"wrong shape: {name}, expected {copy.shape}, found {tensors.shape(name)}")
    for name in sorted(set(tensors) - set(wanted) - set(ignored)):
        problems.append(f"unexpected: {name}, found shape {tensors.shape(name)}")
    if problems:
        count = f"{len(problems)} tensor{'s' if len(problems) > 1 else ''}"
        raise ValueError(f"{source} does not fit the model in {count}:\n  " + "\n  ".join(problems))
    for copy in copies:
        value = tensors[copy.name]
        value = value.T if copy.transpose else value
        copy.variable.assign(np.reshape(value, copy.variable.shape))
