"""Linear layers that are fast at few rows.

Decoding multiplies a handful of rows with every weight. There torch's own product stays far below
what the machine can do; oneDNN with weights laid out beforehand comes closer. The copy costs as
much memory as the weights, so it is made only when told to.
"""

from collections.abc import Sequence
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


class FusedLinear:
    """Several layers with one input as one product, where no gradient is needed.

    Few rows: one product with all weights side by side. Many rows: one product each, and no copy
    of large weights. What an adapter adds comes on top of each part.
    """

    def __init__(self, layers: Sequence[Any], pack: bool) -> None:
        self._layers = layers
        self._bases: list[nn.Linear] = [getattr(layer, "base_layer", layer) for layer in layers]
        self._sizes = [base.out_features for base in self._bases]
        self._large = sum(base.weight.numel() for base in self._bases) >= SMALLEST
        self._pack = pack
        self._packed: Tensor | None = None

    def __call__(self, x: Tensor) -> Sequence[Tensor]:
        rows = len(x)
        if self._large and not (self._pack and 0 < rows <= ROWS):
            return [layer.forward(x) for layer in self._layers]
        if self._packed is None:
            whole = torch.cat([base.weight.detach() for base in self._bases])
            if self._large:
                whole = torch.ops.mkldnn._reorder_linear_weight(whole, 512)
            self._packed = whole
        if self._large:
            y = torch.ops.mkldnn._linear_pointwise(x, self._packed, None, "none", [], "")
        else:
            y = F.linear(x, self._packed)
        parts = y.split(self._sizes, -1)
        for layer, part in zip(self._layers, parts, strict=True):
            add = getattr(layer.forward, "add_low_rank", None)
            if add is not None:
                add(x, part)
        return parts  # type: ignore[no-any-return]

    def forget(self) -> None:
        """The weights have changed."""
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
