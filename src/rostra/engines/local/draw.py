"""From logits to tokens: one uniform number per token, from the seed of its request.

A token depends on its logits, its request's seed and its place in the reply, and on nothing else:
not on the other requests of the batch, not on the order in which they came.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Drawn(NamedTuple):
    """One token per row."""

    tokens: list[int]
    logprobs: list[float]
    """Of the distribution that was drawn from."""
    plain: list[float]
    """Of the model itself: temperature 1, nothing cut off."""


def uniforms(seeds: NDArray[np.uint64], places: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Numbers in [0, 1): the splitmix64 mixer over (seed, place)."""
    with np.errstate(over="ignore"):
        z = seeds + (places + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        for _ in range(2):
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def draw(
    logits: Tensor,
    temperatures: NDArray[np.float32],
    top_p: NDArray[np.float32],
    top_k: NDArray[np.int64],
    random: NDArray[np.float64],
) -> Drawn:
    """Draws one token from every row of logits. Temperature 0 takes the most likely one."""
    logits = logits.float()
    device = logits.device
    greedy = temperatures == 0
    plain = logits.log_softmax(-1)
    if greedy.all():
        tokens = logits.argmax(-1)
        picked = plain.gather(-1, tokens[:, None])[:, 0]
        return Drawn(tokens.tolist(), [0.0] * len(temperatures), picked.tolist())
    scaled = plain
    if (temperatures != 1).any():
        heat = np.where(greedy, 1, np.maximum(temperatures, 1e-30)).astype(np.float32)
        # Counted from the most likely token: at a tiny temperature nothing else may overflow.
        scaled = logits - logits.amax(-1, keepdim=True)
        scaled = (scaled / torch.from_numpy(heat).to(device)[:, None]).log_softmax(-1)
    cut = ((top_p < 1) | (top_k > 0)) & ~greedy
    if cut.any():
        rows = torch.from_numpy(np.flatnonzero(cut)).to(device)
        kept = _truncate(scaled[rows], top_p[cut], top_k[cut]).log_softmax(-1)
        scaled = scaled.index_copy(0, rows, kept)
    sums = scaled.exp().cumsum(-1)
    wanted = torch.from_numpy(random.astype(np.float32)).to(device) * sums[:, -1]
    tokens = torch.searchsorted(sums, wanted[:, None], right=True)[:, 0]
    tokens = tokens.clamp_(max=logits.shape[-1] - 1)
    logprobs = scaled.gather(-1, tokens[:, None])[:, 0]
    # Rounding at the very end of a row can land on a token that was cut off.
    likeliest = torch.from_numpy(greedy).to(device) | (logprobs == -torch.inf)
    if likeliest.any():
        tokens = torch.where(likeliest, logits.argmax(-1), tokens)
        logprobs = scaled.gather(-1, tokens[:, None])[:, 0]
        logprobs[torch.from_numpy(greedy).to(device)] = 0.0
    picked = plain.gather(-1, tokens[:, None])[:, 0]
    return Drawn(tokens.tolist(), logprobs.tolist(), picked.tolist())


def _truncate(scaled: Tensor, top_p: NDArray[np.float32], top_k: NDArray[np.int64]) -> Tensor:
    """Cuts off all but the k most likely tokens, then all but the smallest set that holds p."""
    size = scaled.shape[-1]
    ordered, places = scaled.sort(dim=-1, descending=True, stable=True)
    keep = torch.from_numpy(np.where(top_k > 0, np.minimum(top_k, size), size)).to(scaled.device)
    rank = torch.arange(size, device=scaled.device)
    ordered = ordered.masked_fill(rank >= keep[:, None], -torch.inf)
    chances = ordered.softmax(-1)
    before = chances.cumsum(-1) - chances
    limit = torch.from_numpy(top_p).to(scaled.device)[:, None]
    # The most likely token always stays; p = 1 keeps everything, whatever the rounding.
    ordered = ordered.masked_fill((before >= limit) & (rank > 0) & (limit < 1), -torch.inf)
    return torch.empty_like(scaled).scatter_(-1, places, ordered)
