"""What the binaries with absl flags have in common."""

import sys

from absl import app, flags, logging


def start(define, run, errors=(ValueError, OSError), quiet=False):
    """Parses the command line and runs; what is wrong with the input ends the program with one line that says so.

    Args:
        define: function that defines flags in the `FlagValues` it is given.
        run: function of the parsed flags.
        errors: what wrong flags and files raise. Anything else is a fault of the program, and shown with its trace.
        quiet: whether TensorFlow keeps to itself what is no warning.
    """

    def main(arguments):
        if quiet:
            logging.set_verbosity(logging.WARNING)
        try:
            if len(arguments) > 1:
                raise ValueError(f"Unknown arguments: {' '.join(arguments[1:])}. Flags are written as --name=value.")
            run(flags.FLAGS)
        except errors as error:
            raise SystemExit(f"error: {error}") from error

    before = set(flags.FLAGS)
    define(flags.FLAGS)
    for name in set(flags.FLAGS) - before:  # for --help, which else leaves out those that other modules define
        flags.FLAGS.register_key_flag_for_module(sys.argv[0], flags.FLAGS[name])
    app.run(main)
