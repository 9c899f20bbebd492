"""Which server runs: the real one from the PATH, the real one from Docker, or the embedded one."""

from typing import NamedTuple

from serving.backends import docker, embedded, native

AUTO, NATIVE, DOCKER, EMBEDDED = BACKENDS = ("auto", "native", "docker", "embedded")


class Choice(NamedTuple):
    """
    Args:
        backend: `NATIVE`, `DOCKER` or `EMBEDDED`.
        reasons: why it and not another, in words.
        program: path of what is to be run, `None` for the embedded server.
    """

    backend: str
    reasons: list
    program: str | None = None


def choose(backend, given, image=docker.IMAGE):
    """
    Args:
        backend: one of `BACKENDS`.
        given: dict of TF-Serving's flags on the command line.
        image: Docker image.

    Raises:
        ValueError: if the server asked for is not there, or the embedded one, asked for or left, cannot do what a flag
            says.
    """
    reasons = []
    if backend in (AUTO, NATIVE):
        program, reason = native.find()
        if program:
            return Choice(NATIVE, [*reasons, reason], program)
        if backend == NATIVE:
            raise ValueError(f"--backend=native: {reason}.")
        reasons.append(reason)
    if backend in (AUTO, DOCKER):
        program, reason = docker.find(image)
        if program:
            return Choice(DOCKER, [*reasons, reason], program)
        if backend == DOCKER:
            raise ValueError(f"--backend=docker: {reason}.")
        reasons.append(reason)
    refused = embedded.refused(given)
    if refused:
        others = f" ({'; '.join(reasons)})" if reasons else ""
        raise ValueError(f"The embedded server cannot do this{others}. " + " ".join(refused))
    return Choice(EMBEDDED, reasons or ["asked for"])
