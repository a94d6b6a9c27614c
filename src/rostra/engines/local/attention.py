"""Attention over a packed batch: sequences of any length, one after the other in one row.

transformers calls the function registered here in place of its own and hands it queries, keys and
values after rotation. Who may look at whom is up to the plan that the caller passes along with the
batch: one plan reads and writes the kept keys and values (sampling), another keeps to the sequences
at hand (training). So one forward pass serves any mixture of lengths, without padding, for every
architecture that routes its attention through transformers' interface.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface

from rostra.errors import EngineError

NAME = "rostra"


class Plan(Protocol):
    """Knows where the sequences of a packed batch begin and end."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, rule: "Rule") -> Tensor:
        """Query, key, value as (heads, tokens, width); the result as (tokens, heads, width)."""
        ...


class Rule:
    """What a layer asks of its attention."""

    __slots__ = ("scaling", "softcap", "window")

    def __init__(self, scaling: float, window: int | None, softcap: float | None) -> None:
        self.scaling = scaling
        self.window = window
        self.softcap = softcap


def attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    packed: Plan | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """What transformers calls in every layer."""
    if packed is None or others.get("s_aux") is not None or key.shape != value.shape:
        raise EngineError(f"{type(module).__name__}: the local engine does not know this attention")
    rule = Rule(scaling or query.shape[-1] ** -0.5, sliding_window, softcap)
    return packed.attend(module.layer_idx, query[0], key[0], value[0], rule)[None], None


def no_mask(*args: Any, **kwargs: Any) -> None:
    """The plan knows; transformers need not build a mask."""


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, no_mask)


def causal_mask(queries: int, keys: int, window: int | None, device: torch.device) -> Tensor:
    """True where a query may look; the last query is at the last key."""
    allowed = torch.ones(queries, keys, dtype=torch.bool, device=device)
    allowed = allowed.tril(keys - queries)
    return allowed if window is None else allowed.triu(keys - queries - window + 1)


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, rule: Rule) -> Tensor:
    """Attention of whole sequences, as (..., heads, tokens, width). No mask means causal."""
    if rule.softcap is None:
        return F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=mask,
            is_causal=mask is None,
            scale=rule.scaling,
            enable_gqa=key.shape[-3] != query.shape[-3],
        )
    if mask is None:
        mask = causal_mask(query.shape[-2], key.shape[-2], None, query.device)
    groups = query.shape[-3] // key.shape[-3]
    key, value = (x.repeat_interleave(groups, -3) for x in (key, value))
    scores = torch.tanh(query @ key.transpose(-1, -2) * (rule.scaling / rule.softcap))
    scores = (scores * rule.softcap).masked_fill(~mask, -torch.inf)
    return scores.softmax(-1) @ value


class Segments:
    """Sequences that are all here, one after the other: each looks at itself, backwards only.

    Sequences of nearly one length go through attention together, padded at the end: a causal
    sequence never looks at what comes after it, so the padding needs no mask.
    """

    def __init__(
        self, lengths: Sequence[int], device: torch.device, check: Callable[[], None] | None = None
    ) -> None:
        self._check = check
        self._groups: list[tuple[int, int, Tensor | None]] = []
        """(sequences, length, places of their tokens), None where they lie back to back."""
        starts = [0]
        for length in lengths:
            starts.append(starts[-1] + length)
        order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
        back: list[Tensor] = []
        at = first = 0
        while first < len(order):
            longest = lengths[order[first]]
            last = first
            while last < len(order) and lengths[order[last]] >= 0.8 * longest:
                last += 1
            group = order[first:last]
            first = last
            tokens = torch.arange(longest)
            places = torch.stack([starts[i] + tokens.clamp(max=lengths[i] - 1) for i in group])
            for row, i in enumerate(group):
                spot = torch.arange(starts[i], starts[i + 1])
                back.append(torch.stack([spot, at + row * longest + torch.arange(lengths[i])]))
            at += len(group) * longest
            self._groups.append((len(group), longest, places.flatten().to(device)))
        if len(order) == 1:
            self._groups = [(1, lengths[0], None)]
        pairs = torch.cat(back, 1)
        self._back = pairs[1][pairs[0].argsort()].to(device)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, rule: Rule) -> Tensor:
        if self._check is not None:
            self._check()
        found = []
        for count, length, places in self._groups:
            q, k, v = (
                (x if places is None else x.index_select(1, places))
                .view(x.shape[0], count, length, -1)
                .transpose(0, 1)
                for x in (query, key, value)
            )
            mask = None
            if rule.window is not None and rule.window < length:
                mask = causal_mask(length, length, rule.window, q.device)
            out = attend(q, k, v, mask, rule)
            found.append(out.transpose(1, 2).flatten(0, 1))
        if len(found) == 1 and self._groups[0][2] is None:
            result = found[0]
        else:
            result = torch.cat(found).index_select(0, self._back)
        if self._check is not None and result.requires_grad:
            check = self._check
            result.register_hook(lambda _: check())  # type: ignore[no-untyped-call]
        return result
