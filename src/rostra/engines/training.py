"""What goes into a trainer and what comes out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from rostra.engines.arrays import FloatArray, IntArray
from rostra.engines.sampling import Sampler

Loss = Literal["cross_entropy", "importance_sampling", "ppo", "cispo"]


@dataclass(frozen=True, slots=True, eq=False)
class Datum:
    """A token-level training example, already shifted: position t predicts `targets[t]`.

    All arrays have the same length. What an engine consumes is `inputs`, `targets`, `logprobs`
    and `weights`; `mask` and `streams` stay behind for metrics.
    """

    inputs: IntArray
    targets: IntArray
    logprobs: FloatArray
    """Sampler log-probabilities (log q); 0 on prompt tokens."""
    weights: FloatArray
    """Advantages for the policy losses, weights for cross-entropy; 0 on prompt tokens."""
    mask: FloatArray
    """1 on response tokens, 0 on prompt tokens."""
    streams: IntArray
    """The credit stream of each token, as an index into a list of names; -1 on prompt tokens."""
    temperature: float = 1.0
    """The temperature the response tokens were sampled at; the trainer scores at the same one."""


@dataclass(frozen=True, slots=True)
class Adam:
    """One step of AdamW."""

    learning_rate: float = 3e-5
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.0
    clip_norm: float = 1.0
    """The gradient is scaled down to this norm; 0 leaves it alone."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainOutput:
    """What a forward pass saw."""

    loss: float
    """Summed over tokens."""
    logprobs: Sequence[FloatArray]
    """Log-probabilities of each datum's targets under today's weights (log p)."""


class Trainer(Protocol):
    """Holds weights and changes them."""

    async def forward(self, data: Sequence[Datum]) -> Sequence[FloatArray]: ...

    async def forward_backward(self, data: Sequence[Datum], loss: Loss) -> TrainOutput: ...

    async def optim_step(self, adam: Adam) -> Mapping[str, float]: ...

    async def sampler(self) -> Sampler:
        """A sampler with today's weights."""
        ...

    async def save(self, name: str) -> None: ...

    async def load(self, name: str) -> None: ...
