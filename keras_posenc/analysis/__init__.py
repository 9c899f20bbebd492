"""What the attention of a model means: effective attention, identifiability, attribution, patterns, positions.

Functions take arrays and models, and accumulators (`add` a batch, `merge`, `result`) take more texts than fit into
memory. `python -m keras_posenc.analysis` runs all of it on a model and a file of texts.
"""

from keras_posenc.analysis.alternatives import alternative_attention
from keras_posenc.analysis.attribution import HiddenTokenAttribution, hidden_token_attribution
from keras_posenc.analysis.effective import effective_attention, null_attention, null_dimension
from keras_posenc.analysis.identifiability import Identifiability
from keras_posenc.analysis.norms import attention_norms, output_kernels, summed_norms
from keras_posenc.analysis.patterns import PatternClassifier, PatternCounts
from keras_posenc.analysis.ranks import attention_ranks, positional_ranks
from keras_posenc.analysis.running import Runner
from keras_posenc.analysis.similarity import CorrelationByLength, SimilarityOfModels
from keras_posenc.analysis.structure import position_cosines, position_gram, position_shifts, positional_sections
from keras_posenc.analysis.tagging import ProbeTagger, read_conllu
from keras_posenc.analysis.token_types import AttentionByType

__all__ = [
    "AttentionByType",
    "CorrelationByLength",
    "HiddenTokenAttribution",
    "Identifiability",
    "PatternClassifier",
    "PatternCounts",
    "ProbeTagger",
    "Runner",
    "SimilarityOfModels",
    "alternative_attention",
    "attention_norms",
    "attention_ranks",
    "effective_attention",
    "hidden_token_attribution",
    "null_attention",
    "null_dimension",
    "output_kernels",
    "position_cosines",
    "position_gram",
    "position_shifts",
    "positional_ranks",
    "positional_sections",
    "read_conllu",
    "summed_norms",
]
