"""What the attention of a model means: effective attention, identifiability, attribution, patterns, positions."""
