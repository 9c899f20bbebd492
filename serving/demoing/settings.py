"""What the demo makes. Nothing here imports TensorFlow: a demo that is finished says so at once."""

import dataclasses

TASK = "word_order:acceptability"
ENCODINGS = ("learned", "shaw", "t5", "tupe_rel", "tisa", "diet_rel", "diet_abs")
BASELINE = "learned"  # that latency is a ratio to
REAL = "minilm"  # a pretrained model, exported and studied where its package is installed

# Two texts of the real model, together longer than its heads are wide (32).
PAIR = (
    "The committee that reviewed the proposal last spring decided to postpone the vote until every new member had "
    "read the report.",
    "Because the new members had not read it, the vote on the proposal was put off by the committee.",
)


@dataclasses.dataclass(frozen=True)
class Settings:
    """What results depend on: a folder holds results of one of these.

    Attributes:
        positions: the encodings, the first of them the one that step times are compared with.
        runs: seeds of each encoding.
        training: further flags of `training.compare`.
        bag_of_words: whether the row that does not see the order is made too.
        texts: sentences of each split whose attention is studied.
        rounds: timed requests of each model and way.
        real: whether the real model is exported and studied, if it is installed.
    """

    positions: tuple = ENCODINGS
    runs: int = 1
    training: tuple = ("--per_length=200", "--timing_rounds=0")
    bag_of_words: bool = True
    texts: int = 120
    rounds: int = 150
    real: bool = True


def quick(settings):
    """A demo of seconds, to try the machinery: models that have learned nothing."""
    small = "--model_options=num_layers=1,num_heads=2,hidden_dim=16,intermediate_dim=16"
    return dataclasses.replace(
        settings,
        positions=("learned", "diet_rel"),
        training=("--steps=4", "--eval_every=2", "--per_length=0", "--timing_rounds=0", small),
        bag_of_words=False,
        texts=8,
        rounds=3,
        real=False,
    )
