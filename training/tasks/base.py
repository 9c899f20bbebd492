"""What the engine asks of a task."""


class Task:
    """A model, its data, its loss and its metrics. Subclasses override the methods; the engine calls them.

    Attributes:
        name: short name, part of the run's identity.
        primary: the metric that the best checkpoint is chosen by, higher is better: `"metric"` of the first
            evaluation set that has it, or `"set/metric"`.
        num_examples: number of training examples, if training goes by epochs.
    """

    name = "task"
    primary = None
    num_examples = None

    def config(self):
        """What makes this run different from others, as JSON: files, model, positions, lengths.

        An output folder whose run had another configuration is refused.
        """
        return {}

    def build_model(self):
        """A built Keras model. Called in the strategy's scope, under the precision's policy and a set seed."""
        raise NotImplementedError

    def train_data(self, start_step, pipeline):
        """Batches from step `start_step` on, without end.

        The batch of a step must be a function of the seed and the step alone, randomness of masks included, so that
        a resumed run sees what an uninterrupted one would (`engine.pipeline.batches_of` does that for arrays).

        Args:
            start_step: number of steps made already.
            pipeline: `engine.pipeline.Pipeline`, with `batch`, `seed` and the part of this host.

        Returns: a `tf.data.Dataset` of dicts of static shape `(pipeline.batch, ...)`. Of these every host takes its
        rows, `pipeline.rows`; a data set of only those rows, `(pipeline.host_batch, ...)`, saves it the rest.
        """
        raise NotImplementedError

    def loss(self, model, batch, training):
        """Loss of a part of a batch.

        Returns: `(sum of losses, sum of weights, {name: (sum, weight)})`. The loss of a step is the first over the
        second, summed over all devices and micro-batches before the division; so are the other figures.
        """
        raise NotImplementedError

    def eval_data(self):
        """Dict of name to a finite `tf.data.Dataset` of batches of static shape, e.g. `engine.pipeline.eval_batches`.

        Rows that are there for the shape only have 0 in `weight`, float32 `(batch,)`; their outputs are dropped.
        """
        return {}

    def predict(self, model, batch):
        """Dict of tensors, batch first, that `metrics` needs."""
        raise NotImplementedError

    def metrics(self, name, outputs):
        """Dict of figures, from the outputs of `predict` for all rows of the set `name`, in order, as NumPy arrays."""
        raise NotImplementedError
