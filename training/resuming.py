"""Whether an output folder is that of this run, asked before any data is read."""

from training import engine
from training.engine.folder import RunFolder


def finished(name, known, options, output):
    """Results of the run in `output` if it is finished, else `None`.

    Raises a `ValueError` if the folder is that of another run, as far as can be told from what is known without the
    data. `engine.run` compares the rest.

    Args:
        name: of the task.
        known: the part of the task's `config()` that is known.
        options: `TrainOptions`.
        output: folder of the run.
    """
    before = RunFolder(output, {}).run.get("config", {})
    ours = {*options.that_matter(), "task"}
    assumed = {key: value for key, value in before.items() if key not in ours}
    return engine.finished(name, {**assumed, **known}, options, output)
