"""Learning rates as functions of the step."""

import keras
from keras import ops


class Warmup(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up, then one of four ways to go on. With `t` the number of steps made before this one:

    | schedule       | `t < w`            | afterwards                        |
    |----------------|--------------------|-----------------------------------|
    | `constant`     | `lr (t + 1) / w`   | `lr`                              |
    | `linear`       | `lr (t + 1) / w`   | `lr (T - t) / (T - w)`            |
    | `inverse_sqrt` | `lr (t + 1) / w`   | `lr sqrt(w / (t + 1))`            |
    | `noam`         | `lr d^-0.5 min((t + 1)^-0.5, (t + 1) w^-1.5)` | the same |

    No step of the training has a learning rate of 0, neither the first nor the last.

    Args:
        peak: `lr`.
        kind: name of the schedule.
        warmup: `w`, in steps.
        total: `T`, number of steps of the training, for `linear`.
        width: `d`, width of the model, for `noam`.

    Reference: Vaswani et al., 2017, section 5.3 (noam); Devlin et al., 2018 (linear).
    """

    def __init__(self, peak, kind="linear", warmup=0, total=None, width=None):
        self.peak, self.kind, self.warmup, self.total, self.width = peak, kind, warmup, total, width

    def __call__(self, step):
        done = ops.cast(step, "float32")
        number = done + 1.0
        warmup = float(max(self.warmup, 1))
        if self.kind == "noam":
            return self.peak * self.width**-0.5 * ops.minimum(ops.rsqrt(number), number * warmup**-1.5)
        if self.kind == "inverse_sqrt":
            after = ops.sqrt(warmup / number)
        elif self.kind == "linear":
            after = ops.maximum((self.total - done) / max(self.total - self.warmup, 1), 0.0)
        else:
            after = ops.ones_like(done)
        return self.peak * ops.where(done < self.warmup, number / warmup, after)

    def get_config(self):
        return {
            "peak": self.peak,
            "kind": self.kind,
            "warmup": self.warmup,
            "total": self.total,
            "width": self.width,
        }


def make(options, total):
    """The schedule of a training of `total` steps."""
    return Warmup(
        options.learning_rate, options.schedule, options.warmup_steps(total), total, width=options.model_width
    )
