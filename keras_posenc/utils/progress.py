"""A progress bar, or plain lines where tqdm is missing or the output is no terminal."""

import sys
import time


class Progress:
    """Counts finished measurements. `with Progress(total) as progress: progress.step("BERT_SMALL graph rotary")`."""

    def __init__(self, total, stream=None):
        self.total, self.done = total, 0
        self.stream = stream or sys.stderr
        self.begin = time.monotonic()
        self.bar = None
        if self.stream.isatty():
            try:
                from tqdm import tqdm

                self.bar = tqdm(total=total, file=self.stream, unit="cell", dynamic_ncols=True)
            except ImportError:
                self.bar = None

    def step(self, what, count=1):
        self.done += count
        if self.bar is not None:
            self.bar.set_description_str(what)
            self.bar.update(count)
        else:
            print(f"[{self.done}/{self.total}, {time.monotonic() - self.begin:.0f} s] {what}", file=self.stream)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.bar is not None:
            self.bar.close()
