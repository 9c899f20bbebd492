"""The engine: trains a task on one device, several, several machines or a TPU, and survives being killed.

`run(task, options, output)` is all that a binary needs; `flags` makes the options.
"""

from training.engine.checkpoints import newest, newest_steps, restore, restore_average
from training.engine.loop import diverged, finished, run, start
from training.engine.options import TrainOptions
from training.engine.trainer import Diverged

# What ends a binary with a line instead of a trace: wrong flags and files, and a training that cannot go on.
ERRORS = (ValueError, OSError, Diverged)

__all__ = [
    "ERRORS",
    "Diverged",
    "TrainOptions",
    "diverged",
    "finished",
    "newest",
    "newest_steps",
    "restore",
    "restore_average",
    "run",
    "start",
]
