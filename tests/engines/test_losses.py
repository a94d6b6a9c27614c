"""The losses and what they ask of each token."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rostra.engines.losses import loss_terms
from rostra.engines.training import Datum, Loss

LOSSES: tuple[Loss, ...] = ("cross_entropy", "importance_sampling", "ppo", "cispo")

tokens = st.lists(
    st.tuples(
        st.floats(-5, -0.01),  # log p
        st.floats(-5, -0.01),  # log q
        st.floats(-2, 2),  # weight
    ),
    min_size=1,
    max_size=6,
)


def datum(logprobs: list[float], weights: list[float]) -> Datum:
    """Only what a loss reads is filled in with care."""
    n = len(weights)
    nothing = np.zeros(n, np.int64)
    return Datum(
        inputs=nothing,
        targets=nothing,
        logprobs=np.array(logprobs, np.float64),
        weights=np.array(weights, np.float64),
        mask=np.ones(n),
        streams=nothing,
    )


@pytest.mark.parametrize(
    ("loss", "expected", "pull"),
    [
        ("cross_entropy", -(2 * np.log(0.5) - np.log(0.3)), [2.0, -1.0]),
        ("importance_sampling", -(2 * 1.25 - 0.75), [2.5, -0.75]),
        # 1.25 is clipped to 1.2 and stops pulling; so does 0.75 with a negative weight, at 0.8.
        ("ppo", -(2 * 1.2 - 0.8), [0.0, 0.0]),
        ("cispo", -(2 * 1.2 * np.log(0.5) - 0.8 * np.log(0.3)), [2.4, -0.8]),
    ],
)
def test_losses_on_a_hand_made_datum(loss: Loss, expected: float, pull: list[float]) -> None:
    # p / q = 0.5 / 0.4 and 0.3 / 0.4
    terms = loss_terms(loss, np.log([0.5, 0.3]), datum(np.log([0.4, 0.4]), [2.0, -1.0]))
    assert terms.loss == pytest.approx(expected)
    assert terms.pull == pytest.approx(np.array(pull))


@pytest.mark.parametrize("loss", LOSSES)
@settings(max_examples=50, deadline=None)
@given(rows=tokens)
def test_the_pull_is_the_negative_gradient(
    loss: Loss, rows: list[tuple[float, float, float]]
) -> None:
    logp, logq, weights = (list(column) for column in zip(*rows, strict=True))
    ratios = np.exp(np.array(logp) - np.array(logq))
    # No derivative exists at the clip itself.
    assume(all(abs(ratio - edge) > 1e-3 for ratio in ratios for edge in (0.8, 1.2)))
    data = datum(logq, weights)
    here = np.array(logp, np.float64)
    pull = loss_terms(loss, here, data).pull

    def value(at: np.ndarray) -> float:
        if loss == "cispo":
            # The clipped ratio is held fixed by definition.
            held = np.clip(ratios, 0.8, 1.2)
            return -float(np.sum(held * np.array(weights) * at))
        return loss_terms(loss, at, data).loss

    step = 1e-5
    for t in range(len(rows)):
        shift = np.zeros(len(rows))
        shift[t] = step
        slope = (value(here + shift) - value(here - shift)) / (2 * step)
        assert pull[t] == pytest.approx(-slope, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("loss", ["importance_sampling", "ppo", "cispo"])
@settings(max_examples=30, deadline=None)
@given(rows=tokens)
def test_on_policy_every_policy_loss_is_reinforce(
    loss: Loss, rows: list[tuple[float, float, float]]
) -> None:
    logq = [q for _, q, _ in rows]
    weights = [w for _, _, w in rows]
    terms = loss_terms(loss, np.array(logq), datum(logq, weights))
    assert np.array_equal(terms.pull, np.array(weights))


@pytest.mark.parametrize(
    ("ratio", "weight", "pulls"),
    [
        (1.5, 1.0, False),
        (1.5, -1.0, True),
        (0.5, 1.0, True),
        (0.5, -1.0, False),
        (1.1, 1.0, True),
        (0.9, -1.0, True),
    ],
)
def test_ppo_stops_pulling_where_it_went_far_enough(
    ratio: float, weight: float, pulls: bool
) -> None:
    terms = loss_terms("ppo", np.log([0.2 * ratio]), datum(list(np.log([0.2])), [weight]))
    expected = ratio * weight if pulls else 0.0
    assert terms.pull == pytest.approx(np.array([expected]))


@pytest.mark.parametrize("loss", LOSSES)
def test_tokens_without_weight_ask_for_nothing(loss: Loss) -> None:
    # Prompt tokens: log q is written as 0, whatever log p is.
    terms = loss_terms(loss, np.array([-9.0, -1.0]), datum([0.0, -1.0], [0.0, 0.5]))
    alone = loss_terms(loss, np.array([-1.0]), datum([-1.0], [0.5]))
    assert terms.loss == alone.loss
    assert terms.pull.tolist() == [0.0, 0.5]
