"""`python -m serving.inspect DIR`: what an exported model takes and gives, its positions, sizes and warm-up requests.

DIR is a version folder, or the folder of a model, of which the newest version is shown. Any SavedModel will do; of
those that keras_posenc did not export there is less to say. Nothing is loaded or run.
"""

import json

from absl import app, flags

from serving.exporting.reading import inspect, report


def define(values):
    """Defines all flags of this binary in `values`, usually `absl.flags.FLAGS`."""
    flags.DEFINE_bool("json", False, "Print JSON instead of text.", flag_values=values)


def run(values, arguments):
    """Prints the report on the folder named in `arguments`. Returns what was found."""
    if len(arguments) != 1:
        raise ValueError("Name one folder: python -m serving.inspect DIR")
    found = inspect(arguments[0])
    print(json.dumps(found, indent=2, ensure_ascii=False) if values.json else report(found))
    return found


def main(arguments):
    try:
        run(flags.FLAGS, arguments[1:])
    except (ValueError, OSError, ImportError) as error:
        raise SystemExit(f"error: {error}") from error


if __name__ == "__main__":
    define(flags.FLAGS)
    app.run(main)
