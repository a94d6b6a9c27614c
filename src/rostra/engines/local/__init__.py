"""The local engine: models that run in this process, on transformers."""
