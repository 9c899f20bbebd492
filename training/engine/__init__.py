"""The engine: trains a task on one device, several, several machines or a TPU, and survives being killed.

`run(task, options, output)` is all that a binary needs; `flags` makes the options.
"""

from training.engine.checkpoints import restore, restore_average
from training.engine.loop import finished, run, start
from training.engine.options import TrainOptions

__all__ = ["TrainOptions", "finished", "restore", "restore_average", "run", "start"]
