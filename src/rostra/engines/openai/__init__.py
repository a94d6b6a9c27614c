"""Models behind an OpenAI-compatible endpoint: they speak and judge, and are not trained."""

from rostra.needs import need

INSTALL = "pip install 'rostra[openai]'"

need("httpx2", INSTALL)
