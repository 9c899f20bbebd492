"""Some processes at a time, and how far they are."""

import subprocess
import sys
import time
from pathlib import Path

POLL = 0.2  # seconds between looks at the processes
SAY = 60.0  # seconds between plain lines of progress


class Pool:
    """Runs the processes of a comparison.

    Args:
        command: function of the name of a run to a list of arguments.
        count: how many at once.
        environment: of the processes.
    """

    def __init__(self, command, count, environment):
        self.command, self.count, self.environment = command, count, environment
        self.running = {}

    def run(self, jobs, progress):
        """Runs all jobs and returns the names of those that failed.

        Args:
            jobs: dict of names to log files.
            progress: `Progress`.
        """
        waiting, failed = list(jobs), []
        try:
            while waiting or self.running:
                while waiting and len(self.running) < self.count:
                    name = waiting.pop(0)
                    self.running[name] = self._start(name, jobs[name])
                time.sleep(POLL)
                for name, process in list(self.running.items()):
                    if process.poll() is not None:
                        del self.running[name]
                        if process.returncode:
                            failed.append(name)
                        progress.ended(name, process.returncode, jobs[name])
                progress.show(self.running)
        finally:
            for process in self.running.values():
                process.kill()
                process.wait()
        return failed

    def _start(self, name, log):
        log = Path(log)
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "a", encoding="utf-8") as file:
            # The process ends when the other end of its standard input is gone.
            return subprocess.Popen(
                self.command(name), stdin=subprocess.PIPE, stdout=file, stderr=subprocess.STDOUT, env=self.environment
            )


class Progress:
    """How far all runs are together: a line that moves on a terminal, plain lines now and then elsewhere.

    Args:
        runs: dict of names to functions that say which share of a run is done.
        stream: where to write.
    """

    def __init__(self, runs, stream=None):
        self.runs, self.stream = runs, sys.stderr if stream is None else stream
        self.begin, self.said, self.finished = time.monotonic(), time.monotonic(), 0
        self.before = self._sum()

    def _sum(self):
        return sum(share() for share in self.runs.values())

    def ended(self, name, code, log):
        self.finished += 1
        minutes = (time.monotonic() - self.begin) / 60
        text = f"{name} done" if not code else f"{name} FAILED, exit code {code}; the end of {log}:\n{_end(log)}"
        self._print(f"[{self.finished}/{len(self.runs)}, {minutes:.1f} min] {text}{self._left()}")

    def show(self, running):
        terminal = self.stream.isatty()
        if time.monotonic() - self.said < (1.0 if terminal else SAY):
            return
        self.said = time.monotonic()
        shares = ", ".join(f"{name} {self.runs[name]():.0%}" for name in running)
        text = f"{self.finished} of {len(self.runs)} runs done; {shares}{self._left()}"
        if terminal:
            print(f"\r\033[K{text}", end="", file=self.stream, flush=True)
        else:
            self._print(text)

    def _left(self):
        done = self._sum()
        if done - self.before < 0.1:
            return ""
        seconds = (time.monotonic() - self.begin) / (done - self.before) * (len(self.runs) - done)
        return f"; about {seconds / 60:.0f} min left" if seconds > 90 else f"; about {seconds:.0f} s left"

    def _print(self, text):
        start = "\r\033[K" if self.stream.isatty() else ""
        print(start + text, file=self.stream, flush=True)


def _end(log, lines=6):
    return "\n".join(Path(log).read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
