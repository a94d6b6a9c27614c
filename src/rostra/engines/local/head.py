"""The output layer, where it is needed: at trained positions, a few hundred rows at a time.

With 49,000 words in the vocabulary, the logits of one long debate fill a gigabyte. Here a chunk of
rows is multiplied out, turned into log-probabilities, then into the gradient, all in one buffer,
and forgotten; what goes back into the model is a gradient as small as the hidden states.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from rostra.engines.arrays import FloatArray
from rostra.engines.losses import token_terms
from rostra.engines.training import Loss

CHUNK = 256


class Wanted(NamedTuple):
    """Per trained position: what is asked of it."""

    targets: Tensor
    temperatures: Tensor
    sampled: FloatArray
    weights: FloatArray


class HeadOutput(NamedTuple):
    loss: float
    logprobs: FloatArray
    hidden_grad: Tensor | None
    weight_grad: Tensor | None
    bias_grad: Tensor | None


def run_head(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    wanted: Wanted,
    loss: Loss | None,
    *,
    trained: bool,
    check: Callable[[], None] = lambda: None,
) -> HeadOutput:
    """Log-probabilities of the targets and, with a loss, its gradients: those of the hidden states
    and, where the output layer is trained, those of its weights."""
    total = 0.0
    logprobs = np.zeros(len(hidden), np.float32)
    hidden_grad = torch.zeros_like(hidden) if loss else None
    weight_grad = torch.zeros_like(weight) if loss and trained else None
    bias_grad = torch.zeros_like(bias) if loss and trained and bias is not None else None
    for first in range(0, len(hidden), CHUNK):
        check()
        rows = slice(first, first + CHUNK)
        part = hidden[rows]
        targets = wanted.targets[rows, None]
        heat = wanted.temperatures[rows, None]
        logits = F.linear(part, weight, bias).float().div_(heat)
        total_row = logits.logsumexp(-1, keepdim=True)
        found = (logits.gather(-1, targets) - total_row)[:, 0].cpu().numpy()
        logprobs[rows] = found
        if loss is None:
            continue
        terms = token_terms(
            loss, found.astype(np.float64), wanted.sampled[rows], wanted.weights[rows]
        )
        total += terms.loss
        # d(-w log p)/dlogits = w (softmax - onehot) / temperature
        pull = torch.from_numpy(terms.pull.astype(np.float32)).to(hidden.device)[:, None] / heat
        grad = logits.sub_(total_row).exp_().mul_(pull).scatter_add_(-1, targets, -pull)
        grad = grad.to(weight.dtype)
        assert hidden_grad is not None
        hidden_grad[rows] = grad @ weight
        if weight_grad is not None:
            weight_grad.addmm_(grad.t(), part)
        if bias_grad is not None:
            bias_grad += grad.sum(0)
    return HeadOutput(total, logprobs, hidden_grad, weight_grad, bias_grad)
