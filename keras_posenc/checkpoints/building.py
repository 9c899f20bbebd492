"""Creating weights that are about to be overwritten."""

import keras


def build_for_loading(model):
    """`model.build()`, with zeros where a checkpoint has the values.

    BERT-base has 110 million weights, and drawing them at random takes longer than reading them. Embeddings, attention
    and feed-forward networks, which every checkpoint has, are nearly all of them; the rest (heads, pooler, positions)
    begins as it always does, for it may be fresh.

    Args:
        model: a `Bert`, or a head around one; others are built as they are.
    """
    backbone = getattr(model, "backbone", model)
    swapped = []
    if not model.built and hasattr(backbone, "token_embedding"):
        places = [(vars(backbone.token_embedding), "embeddings_initializer")]
        for block in backbone.encoder.blocks:
            places += [(vars(layer), "kernel_initializer") for layer in (block.intermediate, block.output_dense)]
            if block.num_keys is None:  # a Linformer's compression is in no checkpoint of a BERT
                places.append((block.attention._projection_options, "kernel_initializer"))
        for place, key in places:
            swapped.append((place, key, place[key]))
            place[key] = keras.initializers.Zeros()
    try:
        model.build()
    finally:
        for place, key, initializer in swapped:
            place[key] = initializer
