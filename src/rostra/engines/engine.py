"""An engine: where tokens are made and, for some, weights change."""

from typing import Protocol

from rostra.engines.chat import ChatFormat
from rostra.engines.sampling import Sampler
from rostra.engines.training import Trainer


class Engine(Protocol):
    """A chat format, a sampler, and a trainer where the engine can train."""

    name: str

    @property
    def chat(self) -> ChatFormat: ...

    async def sampler(self) -> Sampler:
        """Of the model as it is, without an adapter."""
        ...

    async def policy(self) -> Sampler:
        """Of the model with the adapter it was opened with, if there is one."""
        ...

    async def trainer(self) -> Trainer:
        """Raises ConfigError on an engine that cannot train."""
        ...
