"""`python -m serving.demo`: small models with several position encodings: trained, exported, served, studied; one page.

    python -m serving.demo --output=demo_output
    python -m serving.demo --output=demo_output --serve --port=8501

Trains one model for each encoding on the built-in word-order benchmark, exports them, serves them with one server,
compares accuracy, accuracy beyond the trained length, parameters and served latency, studies raw against effective
attention, of a real pretrained model too where one is installed, and writes `index.html`. Nothing is downloaded. A demo
that was stopped goes on where it was when it is started again; a finished one only says where its page is, unless the
real model has been installed since.
"""

import dataclasses
import os
from pathlib import Path

from absl import app, flags, logging

from serving.demoing import settings as demo_settings
from serving.demoing.console import native_messages_to
from serving.demoing.stages import NOISE, PAGE, Stages, clock
from training.files import alone

PORT = 8501
JOBS = min(os.cpu_count() or 1, 4)


def define(values):
    """Defines all flags of this binary in `values`, usually `absl.flags.FLAGS`."""
    named = dict(flag_values=values)
    flags.DEFINE_string("output", "demo_output", "Folder for everything that is made.", **named)
    flags.DEFINE_bool("fresh", False, "Remove what an earlier demo made there, and start over.", **named)
    flags.DEFINE_integer(
        "runs", 1, "Seeds of each encoding; each takes about four minutes more on two cores.", 1, **named
    )
    flags.DEFINE_integer("jobs", JOBS, "Models that are trained at one time, on a core each.", 1, **named)
    flags.DEFINE_bool("quick", False, "Two encodings and a few steps, to try the machinery.", **named)
    flags.DEFINE_bool("serve", False, "Serve the models of a finished demo instead.", **named)
    flags.DEFINE_integer("port", PORT, "With --serve: port of REST; gRPC has the one before it.", 2, 65535, **named)


def run(values):
    """Makes what is missing, as the parsed flags say. Returns the path of the page."""
    settings = dataclasses.replace(demo_settings.Settings(), runs=values.runs)
    settings = demo_settings.quick(settings) if values.quick else settings
    with alone(values.output):
        stages = Stages(values.output, settings, values.fresh)
        if stages.finished():
            taken = clock(sum(stages.seconds.values()))
            print(f"Finished before, in {taken}; --fresh (make demo ARGS=--fresh) starts over.")
            return stages.folder / PAGE
        print("Stop and start again at any time: what is finished is kept.", flush=True)
        from serving.demoing.run import run as run_stages  # TensorFlow

        return run_stages(stages, settings, values.jobs)


def main(arguments):
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # before TensorFlow is imported
    logging.set_verbosity(logging.ERROR)
    values = flags.FLAGS
    try:
        if len(arguments) > 1:
            raise ValueError(f"Unknown arguments: {' '.join(arguments[1:])}")
        if values.serve:
            from serving.demoing.serve import serve

            return serve(values.output, values.port)
        with native_messages_to(Path(values.output) / NOISE):
            path = Path(run(values)).resolve()
    except (ValueError, OSError, RuntimeError) as error:
        raise SystemExit(f"error: {error}") from error
    except KeyboardInterrupt:
        raise SystemExit("\nStopped. The same command goes on from here.") from None
    print(f"The page: {path}\nThe models: make serve", flush=True)


if __name__ == "__main__":
    define(flags.FLAGS)
    app.run(main)
