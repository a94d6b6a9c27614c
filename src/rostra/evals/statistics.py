"""How sure a number is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rostra.engines.arrays import FloatArray
from rostra.errors import DataError

RESAMPLES = 1000
FLIPS = 10_000
EXACT = 14
"""Up to so many differences, every way to flip their signs is tried."""
Z = 1.96
STRIDE = 10.0
"""The longest step of a fit. Longer ones can overshoot for ever."""


def interval(values: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """The 95% interval of a mean, by bootstrap over its values, one for each question. Not a number
    where there are none."""
    array = np.asarray(values, np.float64)
    if not len(array):
        return float("nan"), float("nan")
    return middle(_resampled(array, np.random.default_rng(seed)))


def share_interval(values: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """The same where each value is a share, from 0 to 1. Where all are equal, a bootstrap knows no
    doubt; Wilson's interval does."""
    if len(values) and all(value == values[0] for value in values):
        return wilson(float(values[0]), len(values))
    return interval(values, seed)


def wilson(share: float, n: float) -> tuple[float, float]:
    """The 95% interval of a share of n trials."""
    doubt = Z**2 / n
    centre = (share + doubt / 2) / (1 + doubt)
    half = math.sqrt(share * (1 - share) * doubt + doubt**2 / 4) / (1 + doubt)
    # The ends are exact where the share is, and rounding must not move them.
    return (0.0 if share == 0 else centre - half, 1.0 if share == 1 else centre + half)


def _resampled(values: FloatArray, random: np.random.Generator) -> FloatArray:
    picks = random.integers(0, len(values), (RESAMPLES, len(values)))
    return np.asarray(values[picks].mean(1))


def ratio_interval(
    parts: Sequence[float], wholes: Sequence[float], seed: int = 0
) -> tuple[float, float]:
    """The 95% interval of the share sum(parts) / sum(wholes), by bootstrap over pairs of them. For
    all or nothing it is Wilson's, with a trial for each whole above 0: what is inside of one goes
    together. Not a number where the wholes are 0."""
    part, whole = np.asarray(parts, np.float64), np.asarray(wholes, np.float64)
    if not len(whole) or not whole.sum():
        return float("nan"), float("nan")
    if not part.any() or (part == whole).all():
        return wilson(float(part.any()), int((whole > 0).sum()))
    picks = np.random.default_rng(seed).integers(0, len(whole), (RESAMPLES, len(whole)))
    totals = whole[picks].sum(1)
    return middle(part[picks].sum(1)[totals > 0] / totals[totals > 0])


def redrawn(n: int, seed: int = 0) -> FloatArray:
    """How often each of n questions is drawn, for each resample of a bootstrap over questions."""
    if not n:
        return np.zeros((RESAMPLES, 0))
    shares = np.full(n, 1 / n)
    return np.random.default_rng(seed).multinomial(n, shares, RESAMPLES).astype(np.float64)


def middle(values: FloatArray) -> tuple[float, float]:
    """The middle 95% of resampled values. Those that are not a number are left out; not a number
    where none is left."""
    known = values[~np.isnan(values)]
    if not len(known):
        return float("nan"), float("nan")
    low, high = np.quantile(known, [0.025, 0.975])
    return float(low), float(high)


@dataclass(frozen=True, slots=True)
class Measure:
    """A mean over questions with its 95% interval; not a number where nothing is known."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Measure":
        """Of any numbers, such as tokens."""
        known = _known(values)
        return cls(_mean(known), *interval(known))

    @classmethod
    def share(cls, values: Sequence[float]) -> "Measure":
        """Of shares, from 0 to 1."""
        known = _known(values)
        return cls(_mean(known), *share_interval(known))


def _known(values: Sequence[float]) -> list[float]:
    return [value for value in values if not math.isnan(value)]


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


@dataclass(frozen=True, slots=True)
class Paired:
    """Two marks for each question, compared: a - b."""

    difference: float
    """Of the means over questions."""
    low: float
    high: float
    """The 95% interval of the difference, by bootstrap over questions; of shares that differ by the
    same on every question, wider by Wilson's, to both sides."""
    p: float
    """How often chance alone gives a difference at least as large, to either side: the signs of the
    differences are flipped at random, because under chance each could as well be the other way."""
    better: int
    worse: int
    equal: int
    mcnemar: float | None
    """McNemar's exact p, where all marks are 0 or 1."""


def paired(a: Sequence[float], b: Sequence[float], seed: int = 0) -> Paired:
    """Compares two players on the same questions: one mark of each for every question, in the same
    order. Each question is one difference, however often it was asked."""
    if len(a) != len(b):
        raise DataError(
            f"{len(a)} marks against {len(b)}: compare the same questions, one mark of each"
        )
    marks = np.asarray([a, b], np.float64)
    if not np.isfinite(marks).all():
        raise DataError("a mark is not a number: leave out questions that were not answered")
    differences = marks[0] - marks[1]
    better, worse = int((differences > 0).sum()), int((differences < 0).sum())
    low, high = interval(differences.tolist(), seed)
    same = len(differences) > 0 and bool(np.ptp(differences) < 1e-9)
    if same and (marks >= 0).all() and (marks <= 1).all():
        # Shares that always differ by as much may do otherwise once more are asked.
        _, doubt = wilson(0.0, len(differences))
        low, high = max(-1.0, low - doubt), min(1.0, high + doubt)
    return Paired(
        difference=float(differences.mean()) if len(differences) else float("nan"),
        low=low,
        high=high,
        p=_flip_p(differences[differences != 0], seed),
        better=better,
        worse=worse,
        equal=len(differences) - better - worse,
        mcnemar=_mcnemar(better, worse) if np.isin(marks, (0, 1)).all() else None,
    )


def _flip_p(differences: FloatArray, seed: int) -> float:
    """The share of sign flips whose sum is as far from 0 as the one that was seen: of all flips
    where there are few, and else of a sample, in which the one that was seen is counted too."""
    n = len(differences)
    seen = abs(differences.sum()) - 1e-9 * np.abs(differences).sum()
    if n <= EXACT:
        flips = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
        return float((np.abs((1 - 2 * flips) @ differences) >= seen).mean())
    random = np.random.default_rng(seed)
    sums = np.zeros(FLIPS)
    for at in range(0, n, 256):
        some = differences[at : at + 256]
        sums += (1 - 2 * random.integers(0, 2, (FLIPS, len(some)), np.int8)) @ some
    return float((1 + (np.abs(sums) >= seen).sum()) / (1 + FLIPS))


def _mcnemar(better: int, worse: int) -> float:
    """Twice the chance that a fair coin gives so few of the rarer side, at most 1."""
    n = better + worse
    ways = 1
    total = 1
    for i in range(min(better, worse)):
        ways = ways * (n - i) // (i + 1)
        total += ways
    return float(max(min(1.0, 2 * total / (1 << n)), math.ulp(0.0)))


def logistic(
    x: FloatArray, y: FloatArray, weights: FloatArray, *, ridge: float = 0.03
) -> FloatArray:
    """Intercept and slope of logit P(y) = intercept + slope x, for each row of weights.

    y is a share in [0, 1]. The ridge, half of it times the squares of both, holds them finite where
    x tells wins from losses perfectly. Newton's method; a long step is shortened.
    """
    powers = np.stack([np.ones_like(x), x, x * x], 1)
    fit = np.zeros((len(weights), 2))
    for _ in range(100):
        p = sigmoid(fit @ powers[:, :2].T)
        slope = (weights * (y - p)) @ powers[:, :2] - ridge * fit
        curve = (weights * p * (1 - p)) @ powers
        one, cross, two = curve[:, 0] + ridge, curve[:, 1], curve[:, 2] + ridge
        step = np.stack(
            [two * slope[:, 0] - cross * slope[:, 1], one * slope[:, 1] - cross * slope[:, 0]], 1
        )
        step /= (one * two - cross**2)[:, None]
        length = np.linalg.norm(step, axis=1, keepdims=True)
        fit += step / np.maximum(length / STRIDE, 1.0)
        if length.max(initial=0.0) < 1e-6:
            break
    return fit


def sigmoid(x: FloatArray) -> FloatArray:
    return np.asarray((1 + np.tanh(x / 2)) / 2)
