"""The output layer in chunks, against plain autograd on all logits."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rostra.engines.local import head
from rostra.engines.local.head import HeadOutput, Wanted, run_head
from rostra.engines.training import Loss

LOSSES: tuple[Loss, ...] = ("cross_entropy", "importance_sampling", "ppo", "cispo")
ROWS, WIDTH, WORDS = 10, 6, 17


def case(biased: bool = True) -> tuple[Tensor, Tensor, Tensor | None, Wanted]:
    """Ratios p / q well inside and well outside of the clip range, at two temperatures."""
    draw = torch.Generator().manual_seed(3)
    hidden = torch.randn(ROWS, WIDTH, generator=draw)
    weight = torch.randn(WORDS, WIDTH, generator=draw)
    bias = torch.randn(WORDS, generator=draw) if biased else None
    targets = torch.randint(0, WORDS, (ROWS,), generator=draw)
    heat = torch.tensor([1.0, 0.7] * (ROWS // 2))
    logits = torch.nn.functional.linear(hidden, weight, bias) / heat[:, None]
    logp = logits.log_softmax(-1).gather(-1, targets[:, None])[:, 0].double().numpy()
    ratio = np.array([0.5, 0.9, 1.1, 1.5, 1.0, 0.7, 1.3, 0.95, 1.6, 0.6])
    weights = np.array([1.0, -0.5, 2.0, -1.0, 0.0, 0.7, 0.9, -2.0, 1.2, -0.4])
    return hidden, weight, bias, Wanted(targets, heat, logp - np.log(ratio), weights)


def plain(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, wanted: Wanted, loss: Loss
) -> tuple[float, np.ndarray, list[Tensor]]:
    """The same in float64 with everything at once."""
    leaves = [t.double().requires_grad_() for t in (hidden, weight, bias) if t is not None]
    logits = torch.nn.functional.linear(*leaves) / wanted.temperatures[:, None]
    logp = logits.log_softmax(-1).gather(-1, wanted.targets[:, None])[:, 0]
    sampled, weights = torch.from_numpy(wanted.sampled), torch.from_numpy(wanted.weights)
    ratio = (logp - sampled).exp()
    clipped = ratio.clamp(0.8, 1.2)
    terms = {
        "cross_entropy": weights * logp,
        "importance_sampling": weights * ratio,
        "ppo": torch.minimum(weights * ratio, weights * clipped),
        "cispo": clipped.detach() * weights * logp,
    }
    total = -terms[loss].sum()
    grads = list(torch.autograd.grad(total, leaves))
    return float(total.detach()), logp.detach().numpy(), grads


def close(found: Tensor | None, expected: Tensor) -> bool:
    assert found is not None
    return bool((found - expected).norm() < 1e-5 * expected.norm())


@pytest.mark.parametrize("chunk", [1, 3, 10, 256])
@pytest.mark.parametrize("loss", LOSSES)
def test_chunks_give_what_plain_autograd_gives(
    monkeypatch: pytest.MonkeyPatch, loss: Loss, chunk: int
) -> None:
    monkeypatch.setattr(head, "CHUNK", chunk)
    hidden, weight, bias, wanted = case()
    total, logp, (hidden_grad, weight_grad, bias_grad) = plain(hidden, weight, bias, wanted, loss)
    found = run_head(hidden, weight, bias, wanted, loss, trained=True)
    assert found.loss == pytest.approx(total, rel=1e-5, abs=1e-5)
    assert found.logprobs == pytest.approx(logp, abs=1e-5)
    assert close(found.hidden_grad, hidden_grad)
    assert close(found.weight_grad, weight_grad)
    assert close(found.bias_grad, bias_grad)


def test_an_output_layer_without_a_bias_has_no_gradient_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(head, "CHUNK", 3)
    hidden, weight, bias, wanted = case(biased=False)
    _, _, (hidden_grad, weight_grad) = plain(hidden, weight, bias, wanted, "ppo")
    found = run_head(hidden, weight, bias, wanted, "ppo", trained=True)
    assert found.bias_grad is None
    assert close(found.hidden_grad, hidden_grad)
    assert close(found.weight_grad, weight_grad)


def test_an_output_layer_that_stands_still_gets_no_gradient() -> None:
    hidden, weight, bias, wanted = case()
    _, _, (expected, _, _) = plain(hidden, weight, bias, wanted, "cross_entropy")
    found = run_head(hidden, weight, bias, wanted, "cross_entropy", trained=False)
    assert found.weight_grad is None and found.bias_grad is None
    assert close(found.hidden_grad, expected)


def grads(found: HeadOutput) -> list[Any]:
    return [found.hidden_grad, found.weight_grad, found.bias_grad]


def test_without_a_loss_there_are_only_logprobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "CHUNK", 3)
    hidden, weight, bias, wanted = case()
    found = run_head(hidden, weight, bias, wanted, None, trained=True)
    assert found.logprobs == pytest.approx(plain(*case(), "ppo")[1], abs=1e-5)
    assert found.loss == 0 and grads(found) == [None, None, None]


def test_nothing_that_was_handed_in_is_changed() -> None:
    hidden, weight, bias, wanted = case()
    run_head(hidden, weight, bias, wanted, "importance_sampling", trained=True)
    again = case()
    assert bias is not None and again[2] is not None
    assert torch.equal(hidden, again[0]) and torch.equal(weight, again[1])
    assert torch.equal(bias, again[2]) and torch.equal(wanted.temperatures, again[3].temperatures)
    assert np.array_equal(wanted.sampled, again[3].sampled)
    assert np.array_equal(wanted.weights, again[3].weights)
