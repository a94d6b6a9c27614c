"""The layers of a model, from tokens to hidden states, over a packed batch.

Any model runs through its own code (`PlainTrunk`). Models of Llama's shape, which the two built-in
ones are, run through `LlamaTrunk`: the same weights and the same arithmetic in far fewer
operations, with gradients written out by hand. At a million weights an operation costs more than
its arithmetic; at a hundred million, every pass over the activations that is saved counts.
"""

from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rostra.engines.local.attention import Plan, Rule
from rostra.engines.local.linear import FusedLinear


class Trunk(Protocol):
    """Turns packed tokens, each with its place in its sequence, into hidden states."""

    checkpointing: bool

    def __call__(self, tokens: Tensor, places: Tensor, plan: Plan) -> Tensor: ...

    def forget(self) -> None:
        """The weights have changed."""
        ...


class PlainTrunk:
    """As transformers computes it."""

    def __init__(self, decoder: Any) -> None:
        self._decoder = decoder
        self.checkpointing = False

    def __call__(self, tokens: Tensor, places: Tensor, plan: Plan) -> Tensor:
        found = self._decoder(
            input_ids=tokens[None], position_ids=places[None], use_cache=False, packed=plan
        )
        hidden: Tensor = found.last_hidden_state[0]
        return hidden

    def forget(self) -> None:
        """Nothing is kept."""


class RmsNorm(torch.autograd.Function):
    """weight * x / sqrt(mean(x^2) + eps)"""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        inverse = x.square().mean(-1, keepdim=True).add_(eps).rsqrt_()
        ctx.save_for_backward(x, weight, inverse)
        return (x * inverse).mul_(weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, inverse = ctx.saved_tensors
        grad = grads[0]
        weighted = grad * weight
        dot = torch.linalg.vecdot(weighted, x)[:, None]
        gx = weighted.mul_(inverse).addcmul_(x, dot * inverse.pow(3) / x.shape[-1], value=-1)
        gw = None
        if ctx.needs_input_grad[1]:
            gw = (grad * x).mul_(inverse).sum(0)
        return gx, gw, None


class Rotary(torch.autograd.Function):
    """x cos + swap(x) sin, where swap exchanges the halves of each head and `sin` is negative on
    the first; x as (tokens, heads, width)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return rotate(x, cos, sin)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        return swap(grads[0] * sin).addcmul_(grads[0], cos), None, None


def swap(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return torch.cat([x[..., half:], x[..., :half]], -1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return swap(x).mul_(sin).addcmul_(x, cos)


class SwiGlu(torch.autograd.Function):
    """silu(gate) * up; keeps nothing but the two."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return F.silu(gate).mul_(up)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        grad = grads[0]
        # With s = sigmoid(gate): silu' = s + silu (1 - s)
        s = torch.sigmoid(gate)
        silu = gate * s
        slope = torch.addcmul(silu, silu, s, value=-1).add_(s)
        return slope.mul_(up).mul_(grad), silu.mul_(grad)


class LlamaTrunk:
    """A transformers LlamaModel, computed with fewer operations."""

    def __init__(self, decoder: Any, *, pack: bool) -> None:
        self._decoder = decoder
        self._layers = [_Layer(layer, pack) for layer in decoder.layers]
        self._eps = float(decoder.norm.variance_epsilon)
        self._rule = Rule(self._layers[0].scaling, None, None)
        self.checkpointing = False

    def __call__(self, tokens: Tensor, places: Tensor, plan: Plan) -> Tensor:
        decoder = self._decoder
        x: Tensor = decoder.embed_tokens(tokens)
        cos, sin = decoder.rotary_emb(x, position_ids=places[None])
        half = sin.shape[-1] // 2
        cos, sin = cos[0][:, None], torch.cat([-sin[0, :, :half], sin[0, :, half:]], -1)[:, None]
        if torch.is_grad_enabled():
            for index, layer in enumerate(self._layers):
                values = (x, index, cos, sin, plan, self._rule)
                if self.checkpointing:
                    x = checkpoint(layer.train, *values, use_reentrant=False)
                else:
                    x = layer.train(*values)
            return _norm(x, decoder.norm.weight, self._eps)
        for index, layer in enumerate(self._layers):
            layer.run(x, index, cos, sin, plan, self._rule)
        return _norm_now(x, decoder.norm.weight, self._eps)

    def forget(self) -> None:
        for layer in self._layers:
            layer.inputs.forget()
            layer.gates.forget()


class _Layer:
    def __init__(self, layer: Any, pack: bool) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.scaling = float(attention.scaling)
        self._width = int(attention.head_dim)
        self._first, self._second = layer.input_layernorm, layer.post_attention_layernorm
        self._eps = float(self._first.variance_epsilon)
        self._query, self._key = attention.q_proj, attention.k_proj
        self._value, self._out = attention.v_proj, attention.o_proj
        self._gate, self._up, self._down = mlp.gate_proj, mlp.up_proj, mlp.down_proj
        self.inputs = FusedLinear([self._query, self._key, self._value], pack)
        self.gates = FusedLinear([self._gate, self._up], pack)

    def run(self, x: Tensor, index: int, cos: Tensor, sin: Tensor, plan: Plan, rule: Rule) -> None:
        """Without gradients; `x` is changed in place."""
        count = len(x)
        mixed = self.inputs(_norm_now(x, self._first.weight, self._eps))
        query, key, value = (part.view(count, -1, self._width) for part in mixed)
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        found = plan.attend(
            index, query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1), rule
        )
        x += self._out.forward(found.reshape(count, -1))
        gate, up = self.gates(_norm_now(x, self._second.weight, self._eps))
        x += self._down.forward(F.silu(gate).mul_(up))

    def train(
        self, x: Tensor, index: int, cos: Tensor, sin: Tensor, plan: Plan, rule: Rule
    ) -> Tensor:
        count = len(x)
        mixed = _norm(x, self._first.weight, self._eps)
        query, key, value = (
            part.forward(mixed).view(count, -1, self._width)
            for part in (self._query, self._key, self._value)
        )
        query, key = _rotary(query, cos, sin), _rotary(key, cos, sin)
        found = plan.attend(
            index, query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1), rule
        )
        x = x + self._out.forward(found.reshape(count, -1))
        mixed = _norm(x, self._second.weight, self._eps)
        inner: Tensor = SwiGlu.apply(self._gate.forward(mixed), self._up.forward(mixed))  # type: ignore[no-untyped-call]
        return x + self._down.forward(inner)  # type: ignore[no-any-return]


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return RmsNorm.apply(x, weight, eps)  # type: ignore[no-any-return,no-untyped-call]


def _norm_now(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    inverse = x.square().mean(-1, keepdim=True).add_(eps).rsqrt_()
    return (x * inverse).mul_(weight)


def _rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return Rotary.apply(x, cos, sin)  # type: ignore[no-any-return,no-untyped-call]


def make_trunk(module: Any, *, pack: bool) -> Trunk:
    """The fastest trunk that computes what the model computes."""
    decoder = module.get_decoder()
    config = module.config
    plain = (
        type(decoder).__name__ == "LlamaModel"
        and config.hidden_act == "silu"
        and not getattr(config, "attention_bias", False)
        and not getattr(config, "mlp_bias", False)
        and next(module.parameters()).dtype == torch.float32
    )
    return LlamaTrunk(decoder, pack=pack) if plain else PlainTrunk(decoder)
