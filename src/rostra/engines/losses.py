"""The losses, as functions of token log-probabilities.

Each returns the loss, summed over tokens, and w_t = -dL/dlogp_t. A server that offers nothing but
`forward` and weighted cross-entropy can train any of them in two passes: the gradient of
-sum_t w_t logp_t with w held fixed is the gradient of L.
"""

from typing import NamedTuple, assert_never

import numpy as np

from rostra.engines.arrays import FloatArray
from rostra.engines.training import Datum, Loss

PPO_CLIP = (0.8, 1.2)


class LossTerms(NamedTuple):
    """A loss and what it asks of each token."""

    loss: float
    pull: FloatArray
    """w_t = -dL/dlogp_t: how hard each token is pulled up."""


def loss_terms(loss: Loss, logprobs: FloatArray, datum: Datum) -> LossTerms:
    """The loss of one datum; `logprobs` are log p of its targets under today's weights."""
    return token_terms(loss, logprobs, datum.logprobs, datum.weights)


def token_terms(
    loss: Loss, logprobs: FloatArray, sampled: FloatArray, weights: FloatArray
) -> LossTerms:
    """The loss of any tokens, from log p, log q and weight of each; rho = exp(log p - log q).

    cross_entropy        -sum weight * log p
    importance_sampling  -sum rho * A
    ppo                  -sum min(rho * A, clip(rho, 0.8, 1.2) * A)
    cispo                -sum stop_gradient(clip(rho, 0.8, 1.2)) * A * log p
    """
    if loss == "cross_entropy":
        return LossTerms(-float(np.sum(weights * logprobs)), weights)
    ratio = np.exp(logprobs - sampled)
    clipped = np.clip(ratio, *PPO_CLIP)
    match loss:
        case "importance_sampling":
            return LossTerms(-float(np.sum(ratio * weights)), ratio * weights)
        case "ppo":
            free = ratio * weights <= clipped * weights
            value = np.where(free, ratio, clipped) * weights
            return LossTerms(-float(np.sum(value)), np.where(free, ratio * weights, 0.0))
        case "cispo":
            return LossTerms(
                -float(np.sum(clipped * weights * logprobs)), np.asarray(clipped * weights)
            )
        case _:
            assert_never(loss)
