"""Rewards against their baselines: by group, by batch, by role."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rostra.errors import ConfigError
from rostra.rewards.advantages import (
    Advantages,
    Key,
    Rewards,
    RoleBaseline,
    batch_advantages,
    group_advantages,
    role_advantages,
)
from rostra.rewards.streams import mix

STREAMS = ("gen", "judge")
# A grid of thousandths: no two rewards are nearly but not quite equal.
values = st.integers(-1000, 1000).map(lambda n: n / 1000)
keys = st.builds(Key, st.integers(0, 4), st.integers(0, 2), st.sampled_from(STREAMS))
groups_of_rewards = st.lists(st.dictionaries(keys, st.none() | values, max_size=12), max_size=5)


def gen(*rewards: float | None) -> dict[Key, float | None]:
    return {Key(seat, 0, "gen"): reward for seat, reward in enumerate(rewards)}


def on(stream: str, group: dict[Key, float]) -> list[float]:
    return [value for key, value in group.items() if key.stream == stream]


def test_a_reward_is_worth_its_distance_from_the_mean_of_its_group() -> None:
    advantages = group_advantages([gen(1.0, 0.0, -0.5, 0.5), gen(3.0, 1.0)])
    assert list(advantages.groups[0].values()) == pytest.approx([0.75, -0.25, -0.75, 0.25])
    assert list(advantages.groups[1].values()) == pytest.approx([1.0, -1.0])
    assert advantages.flat_groups == 0


def test_streams_have_means_of_their_own() -> None:
    rewards = {
        Key(0, 0, "gen"): 1.0,
        Key(1, 0, "gen"): 0.0,
        Key(0, 0, "judge"): -1.0,
        Key(1, 0, "judge"): -0.5,
    }
    assert group_advantages([rewards]).groups == [
        {
            Key(0, 0, "gen"): 0.5,
            Key(1, 0, "gen"): -0.5,
            Key(0, 0, "judge"): -0.25,
            Key(1, 0, "judge"): 0.25,
        }
    ]


def test_turns_of_one_seat_in_different_rounds_are_kept_apart() -> None:
    rewards = {Key(2, 0, "gen"): 1.0, Key(2, 1, "gen"): -1.0, Key(2, 2, "gen"): 0.0}
    assert group_advantages([rewards]).groups == [rewards]


def test_no_signal_never_enters_a_mean() -> None:
    advantages = group_advantages([gen(1.0, None, 0.0, None)])
    assert advantages.groups == [{Key(0, 0, "gen"): 0.5, Key(2, 0, "gen"): -0.5}]
    assert batch_advantages([gen(None, 1.0), gen(None, None, 0.0)]).groups == [
        {Key(1, 0, "gen"): 0.5},
        {Key(2, 0, "gen"): -0.5},
    ]


def test_equal_rewards_are_exact_zeros_and_counted() -> None:
    # The mean of three times 0.1 is not 0.1 in floating point.
    advantages = group_advantages([gen(0.1, 0.1, 0.1), gen(0.1, 0.2)])
    assert list(advantages.groups[0].values()) == [0.0, 0.0, 0.0]
    assert advantages.flat_groups == 1
    scaled = group_advantages([gen(0.1, 0.1, 0.1)], scale=True)
    assert list(scaled.groups[0].values()) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("scale", [False, True])
def test_rewards_that_differ_by_rounding_only_are_equal(scale: bool) -> None:
    # With a quarter of truth, a wrong answer with two of three votes and a right one with half of
    # them are both worth 1/4, but for the last digit.
    liked, right = mix(2 * 2 / 3 - 1, 0.0, 0.25), mix(0.0, 1.0, 0.25)
    assert liked != right
    advantages = group_advantages([gen(liked, right)], scale=scale)
    assert list(advantages.groups[0].values()) == [0.0, 0.0]
    assert advantages.flat_groups == 1


@pytest.mark.parametrize(
    ("group", "flat"),
    [
        ({}, 1),
        (gen(None, None), 1),
        (gen(0.7), 1),
        (gen(0.7, None, 0.7), 1),
        (gen(0.7, 0.1), 0),
        ({Key(0, 0, "gen"): 0.0, Key(1, 0, "gen"): 1.0, Key(0, 0, "judge"): 1.0}, 0),
        ({Key(0, 0, "gen"): 0.0, Key(0, 0, "judge"): 1.0}, 1),
    ],
)
def test_a_group_is_flat_when_no_stream_has_any_spread(group: Rewards, flat: int) -> None:
    assert group_advantages([group]).flat_groups == flat
    assert group_advantages([group, gen(0.0, 1.0), gen(2.0, 2.0)]).flat_groups == flat + 1


def test_no_groups_give_no_advantages() -> None:
    for advantages in (
        group_advantages([]),
        batch_advantages([]),
        role_advantages([], RoleBaseline()),
        group_advantages([], scale=True),
    ):
        assert advantages == Advantages([], [])


def test_the_batch_mean_is_over_all_groups() -> None:
    advantages = batch_advantages([gen(1.0, 1.0), gen(-1.0, 0.0, -1.0)])
    assert advantages.groups == [
        gen(1.0, 1.0),
        gen(-1.0, 0.0, -1.0),
    ]
    assert list(batch_advantages([gen(1.0, 1.0), gen(0.0, 0.0)]).groups[0].values()) == [0.5, 0.5]


@settings(max_examples=80, deadline=None)
@given(groups_of_rewards)
def test_group_advantages_sum_to_zero_in_every_group_and_stream(groups: list[Rewards]) -> None:
    for group in group_advantages(groups).groups:
        for stream in STREAMS:
            assert sum(on(stream, group)) == pytest.approx(0, abs=1e-9)


@settings(max_examples=80, deadline=None)
@given(groups_of_rewards)
def test_batch_advantages_sum_to_zero_over_the_batch(groups: list[Rewards]) -> None:
    centred = batch_advantages(groups).groups
    for stream in STREAMS:
        total = sum(value for group in centred for value in on(stream, group))
        assert total == pytest.approx(0, abs=1e-9)


@settings(max_examples=80, deadline=None)
@given(groups_of_rewards, groups_of_rewards, groups_of_rewards, st.booleans())
def test_other_groups_do_not_change_the_advantages_of_a_group(
    before: list[Rewards], groups: list[Rewards], after: list[Rewards], scale: bool
) -> None:
    alone = group_advantages(groups, scale=scale)
    among = group_advantages([*before, *groups, *after], scale=scale)
    assert among.groups[len(before) : len(before) + len(groups)] == alone.groups


@settings(max_examples=80, deadline=None)
@given(groups_of_rewards)
def test_exactly_the_keys_with_a_signal_have_an_advantage(groups: list[Rewards]) -> None:
    expected = [{key for key, r in group.items() if r is not None} for group in groups]
    for advantages in (
        group_advantages(groups),
        batch_advantages(groups),
        role_advantages(groups, RoleBaseline()),
    ):
        assert [set(group) for group in advantages.groups] == expected


def pooled(groups: Sequence[dict[Key, float]]) -> list[dict[Key, float]]:
    """All groups as one, their seats told apart."""
    return [
        {
            Key(100 * g + key.seat, key.round, key.stream): value
            for g, group in enumerate(groups)
            for key, value in group.items()
        }
    ]


@pytest.mark.parametrize(
    ("centre", "cells"),
    [(group_advantages, list), (batch_advantages, pooled)],
    ids=["group", "batch"],
)
@settings(max_examples=60, deadline=None)
@given(groups=groups_of_rewards)
def test_scaled_advantages_have_unit_deviation_wherever_there_is_spread(
    centre: Callable[..., Advantages],
    cells: Callable[[list[dict[Key, float]]], list[dict[Key, float]]],
    groups: list[Rewards],
) -> None:
    plain, scaled = centre(groups), centre(groups, scale=True)
    assert plain.flat_groups == scaled.flat_groups
    for before, after in zip(cells(plain.groups), cells(scaled.groups), strict=True):
        for stream in STREAMS:
            if any(on(stream, before)):
                assert np.std(on(stream, after)) == pytest.approx(1, abs=1e-9)
            else:
                assert not any(on(stream, after))


def test_scaling_divides_by_the_population_deviation() -> None:
    scaled = group_advantages([gen(0.0, 0.0, 0.0, 4.0)], scale=True)
    third = 1 / np.sqrt(3)
    assert list(scaled.groups[0].values()) == pytest.approx([-third] * 3 + [np.sqrt(3)])


# Moving averages by role


def test_a_role_baseline_is_read_before_it_is_updated() -> None:
    groups = [gen(1.0, 0.0), gen(0.5, 0.2)]
    baseline = RoleBaseline({(0, "gen"): 0.4})
    advantages = role_advantages(groups, baseline)
    assert list(advantages.groups[0].values()) == pytest.approx([0.6, 0.0])
    assert list(advantages.groups[1].values()) == pytest.approx([0.1, 0.2])
    assert baseline == RoleBaseline({(0, "gen"): 0.4})


def test_a_role_baseline_moves_towards_the_mean_of_the_batch() -> None:
    groups = [gen(1.0, None), gen(0.5, None)]
    after = RoleBaseline({(0, "gen"): 0.4, (1, "gen"): 0.3, (0, "judge"): 0.2}).updated(groups)
    assert after.means == pytest.approx(
        {(0, "gen"): 0.95 * 0.4 + 0.05 * 0.75, (1, "gen"): 0.3, (0, "judge"): 0.2}
    )


def test_a_new_seat_starts_from_zero() -> None:
    after = RoleBaseline(decay=0.9).updated([gen(1.0)])
    assert after.means == pytest.approx({(0, "gen"): 0.1})
    assert after.updated([gen(1.0)]).means == pytest.approx({(0, "gen"): 0.19})
    assert after.decay == 0.9


def test_without_memory_the_role_baseline_is_the_last_batch() -> None:
    after = RoleBaseline({(0, "gen"): 0.4}, decay=0.0).updated([gen(1.0), gen(0.0)])
    assert after.means == {(0, "gen"): 0.5}


def test_role_advantages_can_be_scaled_by_the_spread_of_the_batch() -> None:
    groups = [gen(1.0), gen(0.0)]
    scaled = role_advantages(groups, RoleBaseline({(0, "gen"): 0.4}), scale=True)
    assert [list(g.values()) for g in scaled.groups] == [
        pytest.approx([0.6 / 0.5]),
        pytest.approx([-0.4 / 0.5]),
    ]


@pytest.mark.parametrize("decay", [-0.1, 1.0, 1.5])
def test_a_decay_that_never_moves_or_runs_away_is_refused(decay: float) -> None:
    with pytest.raises(ConfigError, match="decay"):
        RoleBaseline(decay=decay)
