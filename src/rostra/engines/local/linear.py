"""Linear layers that are fast at few rows.

Decoding multiplies a handful of rows with every weight. There torch's own product reaches a third
to a half of what the machine can do; oneDNN with weights laid out beforehand reaches nearly twice
that at 8 rows. The copy costs as much memory as the weights, so it is made only when told to.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROWS = 128
"""Above this many rows torch's own product is as fast."""
SMALLEST = 1 << 16
"""Weights smaller than this live in the processor's cache; laying them out gains nothing."""


class FastLinear:
    """The forward pass of one nn.Linear."""

    def __init__(self, layer: nn.Linear) -> None:
        self._layer = layer
        self._packed: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        layer = self._layer
        rows = x.numel() // x.shape[-1]
        if torch.is_grad_enabled() or not 0 < rows <= ROWS:
            return F.linear(x, layer.weight, layer.bias)
        if self._packed is None:
            self._packed = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), 512)
        flat = x.reshape(rows, x.shape[-1])
        result = torch.ops.mkldnn._linear_pointwise(flat, self._packed, layer.bias, "none", [], "")
        return result.view(*x.shape[:-1], layer.out_features)  # type: ignore[no-any-return]

    def forget(self) -> None:
        """The weight has changed."""
        self._packed = None


def can_pack(module: nn.Module) -> bool:
    """Only where oneDNN computes in the same precision as the weights are in."""
    weight = next(module.parameters())
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def make_fast(module: nn.Module) -> list[FastLinear]:
    """Gives every large linear layer its fast forward pass."""
    found: list[FastLinear] = []
    for layer in module.modules():
        if type(layer) is nn.Linear and layer.weight.numel() >= SMALLEST:
            fast = FastLinear(layer)
            hidden: Any = layer
            hidden.forward = fast
            found.append(fast)
    return found
