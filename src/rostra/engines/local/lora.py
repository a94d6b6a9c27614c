"""Low-rank adapters: PEFT makes, saves and loads them; the arithmetic is done here.

y = x W' + scale (x A') B', with the second product added in place. PEFT's own layer makes two more
passes over y and, in training, keeps more of it for the way back.
"""

import warnings
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
        kind = a.dtype
        a, b = a.to(x.dtype), b.to(x.dtype)
        inner = flat @ a.t()
        y = F.linear(flat, weight, bias).addmm_(inner, b.t(), alpha=scale)
        ctx.save_for_backward(flat, weight, a, b, inner)
        ctx.kind = kind
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
        ga, gb = down.t() @ flat, (grad.t() @ inner).mul_(ctx.scale)
        return gx, None, None, ga.to(ctx.kind), gb.to(ctx.kind), None


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
        self.add_low_rank(x, y)
        return y  # type: ignore[no-any-return]

    def add_low_rank(self, x: Tensor, y: Tensor) -> None:
        """Adds what the adapter adds, in place."""
        if self._weights.adapter_on:
            a, b = self._a.weight.to(y.dtype), self._b.weight.to(y.dtype)
            flat = x.reshape(-1, x.shape[-1])
            target = y if y.dim() == 2 else y.view(-1, y.shape[-1])
            target.addmm_(flat @ a.t(), b.t(), alpha=self._scale)


def add_adapter(weights: Weights, lora: Lora | None, folder: Path | None, seed: int) -> Any:
    """Puts a new adapter on the module, or the one in a PEFT folder. Returns PEFT's model."""
    if folder is not None:
        adapted = _from_folder(weights.module, folder)
    else:
        assert lora is not None
        adapted = _new(weights.module, lora, seed)
    layer: Any
    for layer in weights.module.modules():
        if ADAPTER in getattr(layer, "lora_A", ()):
            layer.forward = LowRankForward(layer, weights)
    weights.has_adapter = True
    weights.rebuild()
    return adapted


def _new(module: nn.Module, lora: Lora, seed: int) -> Any:
    peft = need("peft")
    linear = {name.split(".")[-1] for name, part in module.named_modules() if _is_linear(part)}
    head: Any = module
    output = head.get_output_embeddings()
    linear -= {name.split(".")[-1] for name, part in module.named_modules() if part is output}
    targets = [lora.targets] if isinstance(lora.targets, str) else list(lora.targets)
    if targets == ["all-linear"]:
        targets = sorted(linear)
    if unknown := [name for name in targets if name.split(".")[-1] not in linear]:
        raise ConfigError(
            f"targets = {unknown}: the model has no such linear layers to adapt; it has "
            f"{', '.join(sorted(linear))}"
        )
    config = peft.LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        target_modules=targets,
        lora_dropout=0.0,
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return peft.get_peft_model(module, config)


def _from_folder(module: nn.Module, folder: Path) -> Any:
    """An adapter that was saved by anybody, if it is one that the engine can compute."""
    peft = need("peft")
    safetensors = need("safetensors.torch")
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        if not (folder / name).exists():
            raise DataError(f"{folder}: not an adapter folder: it has no {name}")
    try:
        config = peft.PeftConfig.from_pretrained(folder)
        kept = safetensors.load_file(folder / "adapter_model.safetensors")
    except Exception as error:  # PEFT raises whatever its parts raise
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{folder}: not an adapter that PEFT reads: {reason}") from error
    if config.peft_type is None:
        raise DataError(f"{folder}: adapter_config.json names no kind of adapter")
    more = ("use_dora", "lora_bias", "modules_to_save", "lora_dropout")
    odd = config.peft_type != "LORA" or config.bias != "none"
    if odd or any(getattr(config, name) for name in more):
        raise ConfigError(
            f"{folder}: the local engine runs plain LoRA: no DoRA, bias, dropout or whole layers"
        )
    if any(".lora_A." not in key and ".lora_B." not in key for key in kept):
        raise ConfigError(f"{folder}: the local engine adapts linear layers only")
    try:
        # Quiet about keys that do not fit: they are compared below.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            adapted = peft.PeftModel.from_pretrained(module, folder, is_trainable=True)
        found = peft.get_peft_model_state_dict(adapted)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{folder}: this adapter does not fit the model: {reason}") from error
    if found.keys() != kept.keys():
        odd = min(found.keys() ^ kept.keys())
        raise DataError(f"{folder}: this adapter does not fit the model: {odd} is on one side only")
    return adapted


def _is_linear(part: nn.Module) -> bool:
    return type(part) is nn.Linear
