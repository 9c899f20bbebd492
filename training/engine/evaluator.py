"""Evaluation on all replicas, as orbit's controller wants it."""

import numpy as np
import orbit
import tensorflow as tf

from training.engine.optimizer import averaged_weights


class Evaluator(orbit.AbstractEvaluator):
    """Predicts every evaluation set and asks the task for its figures.

    Outputs are gathered from the replicas in the order of the rows, and those of padding rows are left out.

    Args:
        task: a `Task`.
        model, optimizer: the averages of the optimizer are evaluated, if it keeps any.
        options: `TrainOptions`.
        strategy: where to predict.
        on_result: called with the dict of figures per set, while the evaluated weights are in place.
    """

    def __init__(self, task, model, optimizer, options, strategy, on_result=None):
        self.task, self.model, self.optimizer, self.options = task, model, optimizer, options
        self.strategy, self.on_result = strategy, on_result
        self.sets = task.eval_data()
        self._predict = tf.function(self._predict_all, reduce_retracing=True)  # batches may differ in length

    def evaluate(self, num_steps):
        with averaged_weights(self.model, self.optimizer, self.options.ema is not None):
            figures = {}
            for name, data in self.sets.items():
                found = self.task.metrics(name, self.outputs(data))
                figures[name] = {key: float(value) for key, value in found.items()}
            if self.on_result is not None:
                self.on_result(figures)
        return figures

    def outputs(self, data):
        """Outputs of all real rows of a data set, a dict of NumPy arrays."""
        found = []
        for batch in data:
            rows = next(iter(batch.values())).shape[0]
            weight = batch.get("weight")
            outputs = {name: value.numpy()[:rows] for name, value in self._gathered(batch, rows).items()}
            if weight is not None and weight.shape.rank == 1:
                outputs = {name: value[weight.numpy() != 0] for name, value in outputs.items()}
            found.append(outputs)
        return {name: np.concatenate([outputs[name] for outputs in found]) for name in found[0]}

    def _gathered(self, batch, rows):
        replicas = self.strategy.num_replicas_in_sync
        if replicas == 1:
            return self._predict(batch)
        each = -(-rows // replicas)
        # Rows that the replicas cannot share evenly: the last one is repeated.
        indices = tf.minimum(tf.range(each * replicas), rows - 1)
        padded = {name: tf.gather(value, indices) for name, value in batch.items()}

        def part(context):
            first = context.replica_id_in_sync_group * each
            return {name: value[first : first + each] for name, value in padded.items()}

        return self._predict(self.strategy.experimental_distribute_values_from_function(part))

    def _predict_all(self, batch):
        outputs = self.strategy.run(self._predict_one, args=(batch,))
        if self.strategy.num_replicas_in_sync == 1:
            return outputs
        return {name: self.strategy.gather(value, axis=0) for name, value in outputs.items()}

    def _predict_one(self, batch):
        return self.task.predict(self.model, batch)
