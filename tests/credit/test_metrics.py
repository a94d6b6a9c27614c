"""How far the trainer is from the sampler, in numbers."""

import math

import numpy as np
import pytest

from rostra.credit.metrics import optim_metrics
from rostra.engines.training import Datum


def datum(logprobs: list[float], mask: list[float]) -> Datum:
    n = len(mask)
    tokens, zeros = np.zeros(n, np.int64), np.zeros(n)
    return Datum(tokens, tokens, np.array(logprobs), zeros, np.array(mask), tokens)


def test_only_response_tokens_count() -> None:
    data = [datum([0.0, -1.0, -2.0], [0, 1, 1]), datum([-3.0], [1])]
    trained = [np.array([-9.0, -1.5, -1.0]), np.array([-3.0])]
    assert optim_metrics(data, trained) == pytest.approx(
        {
            "optim/kl_sample_train_v1": (0.5 - 1.0 + 0.0) / 3,
            "optim/kl_sample_train_v2": (0.25 + 1.0 + 0.0) / 6,
            "optim/entropy": 2.0,
        }
    )


def test_without_a_response_nothing_is_known() -> None:
    assert all(math.isnan(v) for v in optim_metrics([], []).values())
    assert all(math.isnan(v) for v in optim_metrics([datum([0.0], [0])], [np.zeros(1)]).values())
