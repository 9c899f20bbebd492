"""The progress of a training run: one line that moves on a terminal, plain lines now and then elsewhere."""

import sys
import time

INTERVAL = 10.0  # seconds between plain lines


class Progress:
    """Says where a run is.

    Args:
        total: number of steps.
        done: steps made before.
        stream: where to write, standard error by default; `False` for silence.
    """

    def __init__(self, total, done=0, stream=None):
        self.total, self.done, self.stream = total, done, sys.stderr if stream is None else stream
        self.begin, self.first, self.said = time.monotonic(), done, float("-inf")
        self.bar = None
        if self.stream and self.stream.isatty():
            try:
                from tqdm import tqdm

                self.bar = tqdm(total=total, initial=done, file=self.stream, unit="step", dynamic_ncols=True)
            except ImportError:
                self.bar = None

    def update(self, step, figures):
        """Shows the figures of the loop that ended at `step`."""
        if not self.stream:
            return
        text = f"loss {figures['loss']:.4g}, lr {figures['learning_rate']:.3g}, "
        text += f"{figures['examples_per_second']:.1f} examples/s"
        if self.bar is not None:
            self.bar.set_postfix_str(text, refresh=False)
            self.bar.update(step - self.done)
        elif time.monotonic() - self.said >= INTERVAL or step == self.total:
            self.said = time.monotonic()
            self._print(f"step {step}/{self.total}, {text}, {self._left(step)} left")
        self.done = step

    def say(self, text):
        """A line that stays."""
        if self.bar is not None:
            self.bar.write(text, file=self.stream)
        elif self.stream:
            self._print(text)

    def close(self):
        if self.bar is not None:
            self.bar.close()

    def _left(self, step):
        seconds = (time.monotonic() - self.begin) / max(step - self.first, 1) * (self.total - step)
        hours, rest = divmod(int(seconds), 3600)
        return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"

    def _print(self, text):
        print(text, file=self.stream, flush=True)
