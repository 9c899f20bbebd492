"""Text for masked language models: from documents to packed rows of token ids in shards, and back as batches."""
