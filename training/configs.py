"""Named recipes of pretraining. Flags override what they say."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Config:
    """A recipe.

    Attributes:
        reproduces: what it is the recipe of.
        model: size of the model, a name of `keras_posenc.models.list()`.
        length: tokens of a row.
        vocabulary, vocabulary_size: kind and size, if one is trained.
        lowercase: whether text is lowered.
        train: options of the training.
    """

    reproduces: str
    model: str
    length: int
    vocabulary: str
    vocabulary_size: int
    lowercase: bool
    train: dict

    def flags(self):
        """Defaults of flags."""
        names = ("model", "length", "vocabulary", "vocabulary_size", "lowercase")
        return {**{name: getattr(self, name) for name in names}, **self.train}


# DIET, Table 7, both columns. The optimizer is not stated there: these are BERT's, AdamW with decay 0.01 and clipping.
_DIET = dict(batch=4096, learning_rate=0.0018, warmup=0.025, schedule="linear", checkpoint_every=20000)

CONFIGS = {
    "diet_english": Config(
        "DIET (Chen et al., 2021), Table 7, English pretraining: BERT-base on Wikipedia and BooksCorpus. "
        "The paper's models are --positions=diet_rel, and --positions=diet_abs --model_options=rank=128 "
        "--sharing=layer, with --segments=none.",
        model="bert_base",
        length=128,
        vocabulary="word_pieces",
        vocabulary_size=30522,
        lowercase=True,
        train=dict(steps=500_000, eval_every=20_000, steps_per_loop=500, **_DIET),
    ),
    "diet_multilingual": Config(
        "DIET (Chen et al., 2021), Table 7, multilingual pretraining: BERT-base with 120,000 sentence pieces on "
        "Wikipedia in 100 languages.",
        model="bert_base_multilingual",
        length=512,
        vocabulary="sentence_pieces",
        vocabulary_size=120_000,
        lowercase=False,
        train=dict(steps=125_000, eval_every=20_000, steps_per_loop=500, **_DIET),
    ),
    "bert_small": Config(
        "DIET's English recipe for one machine: BERT-small, text of some megabytes. The learning rate is "
        "smaller with the batch.",
        model="bert_small",
        length=128,
        vocabulary="word_pieces",
        vocabulary_size=8000,
        lowercase=True,
        train=dict(steps=2000, batch=32, learning_rate=5e-4, warmup=0.05, eval_every=500),
    ),
    "bert_tiny": Config(
        "The same for BERT-tiny.",
        model="bert_tiny",
        length=128,
        vocabulary="word_pieces",
        vocabulary_size=8000,
        lowercase=True,
        train=dict(steps=3000, batch=32, learning_rate=1e-3, warmup=0.05, eval_every=500),
    ),
    "word_order": Config(
        "BERT-tiny on --task=word_order, the text of the benchmark that is made by code.",
        model="bert_tiny",
        length=64,
        vocabulary="word_pieces",
        vocabulary_size=0,
        lowercase=True,
        train=dict(steps=2000, batch=64, learning_rate=1e-3, warmup=0.05, eval_every=500),
    ),
}
