"""Low-rank adapters: PEFT makes, saves and loads them; the arithmetic is done here.

y = x W' + scale (x A') B', with the second product added in place. PEFT's own layer makes two more
passes over y and, in training, keeps more of it for the way back.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rostra.engines.local.needs import need
from rostra.engines.local.weights import Weights
from rostra.errors import ConfigError, DataError

ADAPTER = "default"


@dataclass(frozen=True, slots=True)
class Lora:
    """Which adapter to train."""

    rank: int = 16
    alpha: float = 32.0
    targets: str | tuple[str, ...] = "all-linear"
    """Names of layers, or all-linear: every one but the output layer."""

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ConfigError(f"rank = {self.rank}: an adapter has at least rank 1")
        if not self.targets:
            raise ConfigError("targets is empty: name layers, or use all-linear")


class LowRank(torch.autograd.Function):
    """x W' + scale (x A') B'; W and its bias stand still."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, b: Tensor, scale: float
    ) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        inner = flat @ a.t()
        y = F.linear(flat, weight, bias).addmm_(inner, b.t(), alpha=scale)
        ctx.save_for_backward(flat, weight, a, b, inner)
        ctx.scale = scale
        return y.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        flat, weight, a, b, inner = ctx.saved_tensors
        grad = grads[0].reshape(-1, grads[0].shape[-1])
        down = (grad @ b).mul_(ctx.scale)
        gx = None
        if ctx.needs_input_grad[0]:
            gx = (grad @ weight).addmm_(down, a).view(*grads[0].shape[:-1], -1)
        return gx, None, None, down.t() @ flat, (grad.t() @ inner).mul_(ctx.scale), None


class LowRankForward:
    """The forward pass of one adapted layer."""

    def __init__(self, layer: Any, weights: Weights) -> None:
        self._base: nn.Linear = layer.base_layer
        self._a: nn.Linear = layer.lora_A[ADAPTER]
        self._b: nn.Linear = layer.lora_B[ADAPTER]
        self._scale = float(layer.scaling[ADAPTER])
        self._weights = weights

    def __call__(self, x: Tensor) -> Tensor:
        if not self._weights.adapter_on:
            return self._base(x)  # type: ignore[no-any-return]
        a, b = self._a.weight, self._b.weight
        if torch.is_grad_enabled():
            return LowRank.apply(x, self._base.weight, self._base.bias, a, b, self._scale)  # type: ignore[no-any-return,no-untyped-call]
        y = self._base(x)
        flat = x.reshape(-1, x.shape[-1]).to(a.dtype)
        y.view(-1, y.shape[-1]).addmm_(
            (flat @ a.t()).to(y.dtype), b.t().to(y.dtype), alpha=self._scale
        )
        return y  # type: ignore[no-any-return]


def add_adapter(weights: Weights, lora: Lora | None, folder: Path | None, seed: int) -> Any:
    """Puts a new adapter on the module, or the one in a PEFT folder. Returns PEFT's model."""
    peft = need("peft")
    module = weights.module
    if folder is not None:
        if not (folder / "adapter_config.json").exists():
            raise DataError(f"{folder}: not an adapter: it has no adapter_config.json")
        if not (folder / "adapter_model.safetensors").exists():
            raise DataError(f"{folder}: holds no adapter_model.safetensors")
        try:
            adapted = peft.PeftModel.from_pretrained(module, folder, is_trainable=True)
        except (RuntimeError, ValueError, OSError) as error:
            reason = " ".join(str(error).split())[:200]
            raise DataError(f"{folder}: this adapter does not fit the model: {reason}") from error
    else:
        assert lora is not None
        targets = lora.targets if isinstance(lora.targets, str) else list(lora.targets)
        config = peft.LoraConfig(
            r=lora.rank,
            lora_alpha=lora.alpha,
            target_modules=targets,
            lora_dropout=0.0,
            task_type="CAUSAL_LM",
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            try:
                adapted = peft.get_peft_model(module, config)
            except ValueError as error:
                names = sorted(
                    {n.split(".")[-1] for n, m in module.named_modules() if type(m) is nn.Linear}
                )
                raise ConfigError(
                    f"targets = {targets}: the model has no such layers; it has {', '.join(names)}"
                ) from error
    config = adapted.peft_config[ADAPTER]
    if config.use_dora or config.bias != "none" or config.modules_to_save or config.lora_dropout:
        raise ConfigError(
            "the local engine trains plain LoRA: no DoRA, bias, dropout or whole layers"
        )
    layer: Any
    for layer in module.modules():
        if ADAPTER in getattr(layer, "lora_A", ()):
            if type(layer.base_layer) is not nn.Linear:
                raise ConfigError(f"LoRA on {type(layer.base_layer).__name__} is not supported")
            layer.forward = LowRankForward(layer, weights)
    weights.has_adapter = True
    return adapted
