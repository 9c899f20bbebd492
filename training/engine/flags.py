"""The flags that all training binaries have in common, made from the fields of `TrainOptions`."""

import dataclasses

from absl import flags

from training.engine.options import PRECISIONS, SCHEDULES, STRATEGIES, TrainOptions

_CHOICES = {"schedule": SCHEDULES, "strategy": STRATEGIES, "precision": PRECISIONS}


def define(flag_values=flags.FLAGS, **defaults):
    """Defines `--output` and a flag for every field of `TrainOptions`. Call it once, at the top of a binary.

    Args:
        flag_values: where to define them.
        **defaults: defaults of this binary that differ from those of `TrainOptions`.
    """
    fields = {field.name: field for field in dataclasses.fields(TrainOptions)}
    unknown = sorted(set(defaults) - set(fields))
    if unknown:
        raise ValueError(f"No such options: {', '.join(unknown)}. Known: {', '.join(fields)}")
    flags.DEFINE_string("output", None, "Folder of the run; the same command continues it.", flag_values=flag_values)
    for name, field in fields.items():
        default = defaults.get(name, field.default)
        given = dict(default=default, help=field.metadata["help"], flag_values=flag_values)
        kind = str(field.type if not isinstance(field.type, type) else field.type.__name__)
        if name in _CHOICES:
            flags.DEFINE_enum(name, enum_values=list(_CHOICES[name]), **given)
        elif kind.startswith("bool"):
            flags.DEFINE_bool(name, **given)
        elif kind.startswith("int"):
            flags.DEFINE_integer(name, **given)
        elif kind.startswith("float"):
            flags.DEFINE_float(name, **given)
        else:
            flags.DEFINE_string(name, **given)


def check_output(output):
    """Raises a `ValueError` if an output is not on this machine: Python's own files would be in a folder `gs:`."""
    if output is not None and "://" in output:
        raise ValueError(f"--output is on a file system of this machine. Received: --output={output}")


def options(flag_values=flags.FLAGS, remote=False, **changed):
    """The validated `TrainOptions` of the parsed flags, with `remote` also if `--output` is not on this machine.

    Where a binary has a default number of epochs and the user gives `--steps`, or the reverse, what was given counts.
    """
    if not remote:
        check_output(flag_values.output)
    values = {field.name: flag_values[field.name].value for field in dataclasses.fields(TrainOptions)}
    for given, other in (("steps", "epochs"), ("epochs", "steps")):
        if flag_values[given].present and not flag_values[other].present:
            values[other] = None
    return TrainOptions(**{**values, **changed}).validate()
