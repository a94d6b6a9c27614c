"""From logits to tokens: the right distribution, from the right random numbers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

torch = pytest.importorskip("torch")

from rostra.engines.local.draw import Drawn, draw, uniforms  # noqa: E402

MANY = 20_000
LAST = 1 - 2.0**-53
"""The largest number that uniforms() can give."""

Logits = st.lists(st.integers(-40, 40), min_size=2, max_size=9, unique=True).map(
    lambda values: [value / 10 for value in values]
)


def numbers(seeds: object, places: object) -> NDArray[np.float64]:
    seeds, places = np.broadcast_arrays(np.asarray(seeds, np.uint64), np.asarray(places, np.uint64))
    return uniforms(seeds, places)


def draws(
    logits: object,
    random: object,
    temperature: object = 1.0,
    top_p: object = 1.0,
    top_k: object = 0,
) -> Drawn:
    """One row of logits for all, or one row each."""
    random = np.asarray(random, np.float64)
    rows = torch.tensor(np.asarray(logits, np.float32))
    if rows.ndim == 1:
        rows = rows.expand(len(random), -1)

    def each(value: object, kind: object) -> NDArray[object]:
        return np.broadcast_to(np.asarray(value, kind), len(random)).copy()

    return draw(
        rows, each(temperature, np.float32), each(top_p, np.float32), each(top_k, np.int64), random
    )


def softmax(logits: object) -> NDArray[np.float64]:
    values = np.exp(np.asarray(logits, np.float64) - np.max(logits))
    return values / values.sum()


def truncated(logits: object, heat: float, top_p: float, top_k: int) -> NDArray[np.float64]:
    """The distribution that is meant, step by step."""
    chances = softmax(np.asarray(logits, np.float64) / heat)
    ranked = sorted(range(len(chances)), key=lambda i: -chances[i])
    ranked = ranked[:top_k] if top_k else ranked
    total = sum(chances[i] for i in ranked)
    result = np.zeros(len(chances))
    held = 0.0
    for i in ranked:
        if held >= top_p:
            break
        result[i] = chances[i]
        held += chances[i] / total
    return result / result.sum()


def chi_square(counts: NDArray[np.int64], chances: object) -> float:
    expected = np.asarray(chances, np.float64) * counts.sum()
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("along", ["seeds", "places"])
def test_random_numbers_are_uniform_along_seeds_and_along_places(along: str) -> None:
    steps = np.arange(MANY)
    found = numbers(steps, 3) if along == "seeds" else numbers(12345, steps)
    assert found.min() >= 0 and found.max() < 1
    counts = np.bincount((found * 64).astype(int), minlength=64)
    assert chi_square(counts, np.full(64, 1 / 64)) < 103.5  # p = 0.001 with 63 degrees
    pairs = (found[:-1] * 8).astype(int) * 8 + (found[1:] * 8).astype(int)
    assert chi_square(np.bincount(pairs, minlength=64), np.full(64, 1 / 64)) < 103.5


def test_neighbouring_seeds_and_places_have_nothing_to_do_with_each_other() -> None:
    seeds, places = np.meshgrid(np.arange(150), np.arange(150))
    found = numbers(seeds.ravel(), places.ravel())
    assert len(np.unique(found)) == 150 * 150
    grid = found.reshape(150, 150)
    for other in (np.roll(grid, 1, 0), np.roll(grid, 1, 1), grid.T):
        assert abs(np.corrcoef(grid.ravel(), other.ravel())[0, 1]) < 0.03


def test_random_numbers_do_not_depend_on_their_neighbours() -> None:
    together = numbers([7, 2**64 - 1, 0], [0, 5, 2**40])
    alone = [numbers([s], [p])[0] for s, p in [(7, 0), (2**64 - 1, 5), (0, 2**40)]]
    assert together.tolist() == alone


def test_draws_follow_the_distribution() -> None:
    logits = np.log([0.3, 0.02, 0.2, 0.1, 0.08, 0.15, 0.05, 0.04, 0.03, 0.03])
    for random in (numbers(np.arange(MANY), 0), numbers(1, np.arange(MANY))):
        counts = np.bincount(draws(logits, random).tokens, minlength=10)
        assert chi_square(counts, np.exp(logits)) < 27.9  # p = 0.001 with 9 degrees


@settings(deadline=None, max_examples=60)
@given(
    logits=Logits,
    heat=st.sampled_from([0.3, 0.7, 1.0, 1.7]),
    top_p=st.sampled_from([1.0, 0.95, 0.7, 0.301]),
    top_k=st.integers(0, 10),
)
def test_draws_follow_the_truncated_distribution(
    logits: list[float], heat: float, top_p: float, top_k: int
) -> None:
    """Random numbers spread evenly give every token in its share, up to one draw."""
    expected = truncated(logits, heat, top_p, top_k)
    found = draws(logits, (np.arange(2000) + 0.5) / 2000, heat, top_p, top_k)
    counts = np.bincount(found.tokens, minlength=len(logits))
    assert np.abs(counts / 2000 - expected).max() < 1.5 / 2000
    assert not counts[expected == 0].any()
    assert np.allclose(np.exp(found.logprobs), expected[found.tokens], rtol=1e-4)
    plain = softmax(logits)
    assert np.allclose(np.exp(found.plain), plain[found.tokens], rtol=1e-4)


@pytest.mark.parametrize(
    ("top_p", "kept"), [(0.49, 1), (0.51, 2), (0.79, 2), (0.81, 3), (0.94, 3), (0.96, 4)]
)
def test_truncation_keeps_the_smallest_set_that_holds_p(top_p: float, kept: int) -> None:
    logits = np.log([0.05, 0.3, 0.15, 0.5])
    found = draws(logits, numbers(np.arange(500), 0), top_p=top_p)
    assert set(found.tokens) == {3, 1, 2, 0} - set([0, 2, 1, 3][: 4 - kept])


def test_p_is_counted_among_the_k_that_are_left() -> None:
    """0.4 and 0.3 of 0.7: with k = 2 the first alone holds 0.57 of what is left."""
    logits = np.log([0.4, 0.3, 0.2, 0.1])
    random = numbers(np.arange(500), 0)
    assert set(draws(logits, random, top_p=0.5, top_k=2).tokens) == {0}
    assert set(draws(logits, random, top_p=0.5).tokens) == {0, 1}


@settings(deadline=None, max_examples=60)
@given(rows=st.lists(st.permutations(range(7)), min_size=1, max_size=6), seed=st.integers(0, 999))
def test_one_choice_is_the_most_likely_one(rows: list[list[int]], seed: int) -> None:
    logits = np.array(rows, np.float32)
    random = numbers(seed, np.arange(len(rows)))
    expected = logits.argmax(-1).tolist()
    greedy = draws(logits, random, temperature=0)
    assert greedy.tokens == expected
    assert greedy.logprobs == [0.0] * len(rows)
    assert np.allclose(np.exp(greedy.plain), [softmax(row).max() for row in rows], rtol=1e-4)
    for cut in ({"top_k": 1}, {"top_p": 1e-6}, {"top_p": 1e-60}, {"top_k": 3, "top_p": 1e-6}):
        found = draws(logits, random, **cut)
        assert found.tokens == expected
        assert np.allclose(found.logprobs, 0, atol=1e-6)


def test_equal_logits_are_cut_to_exactly_k() -> None:
    found = draws(np.zeros(8), (np.arange(64) + 0.5) / 64, top_k=3)
    assert len(set(found.tokens)) == 3
    assert np.allclose(found.logprobs, np.log(1 / 3), atol=1e-6)


@settings(deadline=None, max_examples=40)
@given(
    rows=st.lists(
        st.tuples(
            st.lists(st.integers(-30, 30), min_size=6, max_size=6, unique=True),
            st.sampled_from([0.0, 0.5, 1.0, 2.0]),
            st.sampled_from([1.0, 0.6]),
            st.sampled_from([0, 2, 6, 100]),
            st.floats(0, 0.999),
        ),
        min_size=2,
        max_size=8,
    )
)
def test_a_row_does_not_depend_on_the_rows_beside_it(rows: list[tuple[object, ...]]) -> None:
    logits, heat, top_p, top_k, random = zip(*rows, strict=True)
    together = draws(np.array(logits) / 10, random, heat, top_p, top_k)
    for i, row in enumerate(rows):
        alone = draws(np.array([row[0]]) / 10, [row[4]], row[1], row[2], row[3])
        assert alone.tokens == [together.tokens[i]]
        assert alone.logprobs == pytest.approx([together.logprobs[i]], abs=1e-6)
        assert alone.plain == pytest.approx([together.plain[i]], abs=1e-6)


@pytest.mark.parametrize("random", [0.0, 2.0**-53, 1 - 2.0**-25, LAST])
def test_no_random_number_gives_a_token_that_was_cut_off(random: float) -> None:
    logits = np.array([[-9.0, 2, 1, 0, -9], [0, 1, 2, -9, -9], [-9, -9, 0, 1, 2]])
    found = draws(logits, [random] * 3, top_k=3)
    for row, token, logprob in zip(logits, found.tokens, found.logprobs, strict=True):
        assert row[token] > -9
        assert np.isfinite(logprob)
    allowed = draws(logits, [random] * 3)
    assert allowed.tokens == ([0, 0, 0] if random < 0.5 else [4, 4, 4])


@pytest.mark.parametrize("heat", [1e-3, 1e-10, 1e-20, 1e-30, 1e-38, 1e-42, 1e-60])
def test_a_tiny_temperature_is_as_good_as_greedy(heat: float) -> None:
    logits = np.array([[-20.0, 31, 12, -5], [30, -4, 8, 2]])
    for cut in ({}, {"top_p": 0.9}, {"top_k": 2}):
        found = draws(logits, [0.3, 0.999], heat, **cut)
        assert found.tokens == [1, 0]
        assert np.allclose(found.logprobs, 0, atol=1e-6)


def test_a_huge_temperature_makes_all_tokens_equal() -> None:
    found = draws([9.0, -9, 3, 0], [0.1, 0.3, 0.6, 0.9], 1e30)
    assert found.tokens == [0, 1, 2, 3]
    assert np.allclose(found.logprobs, np.log(0.25), atol=1e-6)
