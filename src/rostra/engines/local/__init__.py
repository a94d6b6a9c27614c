"""The local engine: models that run in this process, on torch and transformers."""

from rostra.engines.local.needs import need

need("torch")
need("transformers")
