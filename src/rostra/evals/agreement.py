"""How far judges agree, beyond what chance would give.

Krippendorff's alpha: 1 is perfect agreement, 0 what chance gives, below 0 is agreeing less than
that. Of the coefficients in use it is the one that takes any number of judges, lets votes be
missing, and knows that a tie is nearer to a win than a loss is.

alpha = 1 - observed / expected disagreement, both over pairs of votes on the same thing.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from rostra.debate.peer import check_choice
from rostra.engines.arrays import FloatArray

Level = Literal["nominal", "ordinal", "interval"]
"""How far two values are apart: all equally far, by ranks, or by their difference."""


def alpha(units: Sequence[Sequence[float | None]], level: Level = "ordinal") -> float:
    """Krippendorff's alpha. Each unit is one thing that was judged: a value for each judge, None
    where there is none. Not a number where no two values are comparable, or all are equal: then
    there is no disagreement that chance could have produced."""
    values = sorted({value for unit in units for value in unit if value is not None})
    return float(alpha_of(coincidences(units, values).sum(0), values, level))


def coincidences(units: Sequence[Sequence[float | None]], values: Sequence[float]) -> FloatArray:
    """For each unit, how often each pair of values was given to it by two judges, in both orders,
    divided by the number of others that each vote is paired with. They add up over units."""
    place = {value: at for at, value in enumerate(values)}
    counts = np.zeros((len(units), len(values)))
    for at, unit in enumerate(units):
        for value in unit:
            if value is not None:
                counts[at, place[value]] += 1
    others = np.maximum(counts.sum(1) - 1, 1)[:, None, None]
    pairs = counts[:, :, None] * counts[:, None, :] - counts[:, :, None] * np.eye(len(values))
    return np.asarray(pairs / others)


def alpha_of(pairs: FloatArray, values: Sequence[float], level: Level = "ordinal") -> FloatArray:
    """Alpha of sums of coincidences, for any number of sums at once (..., values, values)."""
    given = pairs.sum(-1)
    apart = _apart(given, values, level)
    total = given.sum(-1)
    observed = (pairs * apart).sum((-2, -1))
    expected = (given[..., :, None] * given[..., None, :] * apart).sum((-2, -1))
    known = expected > 0
    share = observed / np.where(known, expected, 1.0)
    return np.asarray(np.where(known, 1 - (total - 1) * share, np.nan))


def _apart(given: FloatArray, values: Sequence[float], level: Level) -> FloatArray:
    """The squared distance between every two values."""
    check_choice("level", level, get_args(Level))
    match level:
        case "nominal":
            return 1 - np.eye(len(values))
        case "ordinal":
            scores = given.cumsum(-1) - given / 2
        case "interval":
            scores = np.asarray(values, np.float64)
    return np.asarray((scores[..., :, None] - scores[..., None, :]) ** 2)
