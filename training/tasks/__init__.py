"""Tasks of the engine: model, data, loss and metrics of each."""
