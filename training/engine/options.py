"""What a training run can be told, checked before anything expensive happens."""

import dataclasses
import math

SCHEDULES = ("linear", "constant", "inverse_sqrt", "noam")
STRATEGIES = ("one_device", "mirrored", "multi_worker_mirrored", "tpu")
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")


def _option(default, help, matters=True):
    return dataclasses.field(default=default, metadata={"help": help, "matters": matters})


@dataclasses.dataclass
class TrainOptions:
    """Options of `engine.run`. The common flags of the binaries are made from these fields (`engine.flags`).

    A field that `matters` changes what a run computes: an output folder with another value belongs to another run.
    """

    steps: int | None = _option(None, "Number of training steps; or give epochs.")
    epochs: float | None = _option(None, "Number of passes over the training examples; or give steps.")
    batch: int = _option(32, "Examples of one step, over all devices and all micro-batches.")
    learning_rate: float = _option(1e-4, "Peak learning rate; for the schedule 'noam' the factor before it.")
    schedule: str = _option("linear", f"How the learning rate goes after the warm-up: {', '.join(SCHEDULES)}.")
    warmup: float = _option(0.0, "Warm-up: steps, or below 1 a share of all steps.")
    model_width: int | None = _option(None, "Width of the model, for the schedule 'noam'.")
    weight_decay: float = _option(0.01, "Decoupled weight decay, not of norms, biases and position scalars.")
    beta_2: float = _option(0.999, "Decay of AdamW's second moments.")
    epsilon: float = _option(1e-6, "Epsilon of AdamW.")
    clip_norm: float | None = _option(1.0, "Largest global norm of the gradient; 0 not to clip.")
    accumulation: int = _option(1, "Micro-batches that a device computes a step in, to save memory.")
    ema: float | None = _option(None, "Momentum of an average of the weights, which is then what is evaluated.")
    precision: str | None = _option(None, f"{', '.join(PRECISIONS)}; mixed_bfloat16 on TPU and float32 elsewhere.")
    seed: int = _option(0, "Of initial weights, order of examples, dropout and masks.")
    xla: bool = _option(False, "Compile the step with XLA, which draws other dropout masks.")
    strategy: str = _option("one_device", f"Where to train: {', '.join(STRATEGIES)}.")
    eval_every: int | None = _option(
        None, "Steps between evaluations; each epoch if epochs are given, else at the end."
    )
    patience: int | None = _option(None, "Stop after so many evaluations without a better one.")
    tpu: str | None = _option(None, "Name or address of the TPU.", matters=False)
    virtual_devices: int = _option(0, "Split the CPU into so many devices, to try strategies.", matters=False)
    steps_per_loop: int = _option(20, "Steps in one call of the compiled loop.", matters=False)
    checkpoint_every: int | None = _option(None, "Steps between checkpoints; at evaluations if not set.", matters=False)
    keep: int = _option(2, "Number of newest checkpoints to keep; the best is kept besides.", matters=False)
    deterministic: bool = _option(False, "Deterministic kernels, on GPUs that have faster ones.", matters=False)

    def validate(self, replicas=1, examples=None):
        """Raises a `ValueError` that says which option to change; returns the options.

        Args:
            replicas: number of devices, where it is known already.
            examples: number of training examples, where it is known already.
        """
        if (self.steps is None) == (self.epochs is None):
            raise ValueError(f"Give either steps or epochs. Received: steps={self.steps}, epochs={self.epochs}")
        for name, value in vars(self).items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{name} must be a finite number. Received: {name}={value}")
        positive = "steps epochs batch learning_rate model_width epsilon accumulation eval_every patience"
        for name in (positive + " steps_per_loop checkpoint_every keep").split():
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} must be positive. Received: {name}={value}")
        for name in "warmup weight_decay clip_norm virtual_devices seed".split():
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{name} must not be negative. Received: {name}={value}")
        for name, known in (("schedule", SCHEDULES), ("strategy", STRATEGIES), ("precision", PRECISIONS)):
            value = getattr(self, name)
            if value not in known and not (name == "precision" and value is None):
                raise ValueError(f"{name} must be one of {', '.join(known)}. Received: {name}={value!r}")
        if not 0 <= self.beta_2 < 1:
            raise ValueError(f"beta_2 is from 0 to below 1, e.g. 0.999. Received: beta_2={self.beta_2}")
        if self.ema is not None and not 0 < self.ema < 1:
            raise ValueError(f"ema is a momentum between 0 and 1, e.g. 0.999. Received: ema={self.ema}")
        if self.schedule == "noam" and self.model_width is None:
            raise ValueError("The schedule 'noam' depends on the width of the model: give model_width.")
        if self.schedule in ("noam", "inverse_sqrt") and self.warmup == 0:
            raise ValueError(f"The schedule {self.schedule!r} starts with a warm-up: give warmup, e.g. warmup=4000.")
        if self.strategy == "tpu" and self.virtual_devices:
            raise ValueError("virtual_devices splits the CPU, and strategy='tpu' does not use it. Leave one out.")
        self._validate_batch(replicas, examples)
        return self

    def _validate_batch(self, replicas, examples):
        if self.batch % (replicas * self.accumulation):
            raise ValueError(
                f"A batch of {self.batch} cannot be divided over {replicas} device(s) in {self.accumulation} "
                f"micro-batch(es) each. Choose a multiple of {replicas * self.accumulation}, e.g. "
                f"batch={-(-self.batch // (replicas * self.accumulation)) * replicas * self.accumulation}"
            )
        if examples is not None and examples < self.batch:
            raise ValueError(
                f"There are {examples} training examples, fewer than batch={self.batch}. Choose a smaller batch."
            )
        total = self.total_steps(examples) if self.steps or examples else None
        if total is not None and self.warmup_steps(total) > total:
            raise ValueError(f"warmup={self.warmup:g} is longer than the whole training of {total} steps.")

    def steps_per_epoch(self, examples):
        """Whole batches in one pass; the rest of the examples is left out, other ones in each pass."""
        return examples // self.batch

    def total_steps(self, examples=None):
        if self.steps is not None:
            return self.steps
        if examples is None:
            raise ValueError("The task does not know its number of examples: give steps instead of epochs.")
        return max(1, round(self.epochs * self.steps_per_epoch(examples)))

    def warmup_steps(self, total):
        return round(self.warmup * total) if self.warmup < 1 else round(self.warmup)

    def evaluation_steps(self, examples=None):
        """The steps after which to evaluate, in order; the last step is one of them."""
        total = self.total_steps(examples)
        every = self.eval_every
        if every is None and self.epochs is not None:
            every = self.steps_per_epoch(examples)
        return sorted({*range(every or total, total, every or total), total})

    def that_matter(self):
        """The options that a resumed run must share with the one that it continues."""
        fields = dataclasses.fields(self)
        return {field.name: getattr(self, field.name) for field in fields if field.metadata["matters"]}
