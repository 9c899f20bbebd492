"""Export to SavedModels, the model server, its client, latency comparison and attention viewer."""
