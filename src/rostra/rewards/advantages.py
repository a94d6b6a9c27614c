"""Rewards to advantages, keyed by group, seat, round and stream; never by reshaping."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rostra.engines.arrays import FloatArray, IntArray
from rostra.errors import ConfigError


class Key(NamedTuple):
    """What a reward is for: a turn and a stream; in peer v1 (round None) all turns of a seat."""

    seat: int
    round: int | None
    stream: str


Rewards = Mapping[Key, float | None]
"""The rewards of one group. None is no signal."""


@dataclass(frozen=True, slots=True)
class Advantages:
    """What each key of each group is worth against its baseline."""

    groups: list[dict[Key, float]]
    """Only keys with a signal."""
    mixed: list[bool]
    """Which groups have rewards that differ on some stream; one that has none is flat."""

    @property
    def flat_groups(self) -> int:
        """Groups with no signal, or with none that differs."""
        return len(self.mixed) - sum(self.mixed)


@dataclass(frozen=True, slots=True)
class RoleBaseline:
    """A moving average of the reward of every seat and stream. Belongs into the checkpoint."""

    means: Mapping[tuple[int, str], float] = field(default_factory=dict)
    decay: float = 0.95

    def __post_init__(self) -> None:
        if not 0 <= self.decay < 1:
            raise ConfigError(f"decay = {self.decay}: must be at least 0 and below 1")

    def updated(self, groups: Sequence[Rewards]) -> "RoleBaseline":
        """b <- decay * b + (1 - decay) * mean reward of the batch; a new seat starts at 0."""
        batch = defaultdict[tuple[int, str], list[float]](list)
        for rewards in groups:
            for key, reward in rewards.items():
                if reward is not None:
                    batch[key.seat, key.stream].append(reward)
        means = dict(self.means)
        for role, values in batch.items():
            old = self.means.get(role, 0.0)
            means[role] = self.decay * old + (1 - self.decay) * float(np.mean(values))
        return RoleBaseline(means, self.decay)


def group_advantages(groups: Sequence[Rewards], *, scale: bool = False) -> Advantages:
    """Reward minus the mean over the keys of the same group and stream that have a signal."""
    table = _Table.read(groups)
    return table.centred(table.group * len(table.streams) + table.stream, scale)


def batch_advantages(groups: Sequence[Rewards], *, scale: bool = False) -> Advantages:
    """Reward minus the mean over the whole batch, stream by stream."""
    table = _Table.read(groups)
    return table.centred(table.stream, scale)


def role_advantages(
    groups: Sequence[Rewards], baseline: RoleBaseline, *, scale: bool = False
) -> Advantages:
    """Reward minus the seat's moving average, read before this batch updates it."""
    table = _Table.read(groups)
    means = [baseline.means.get((key.seat, key.stream), 0.0) for key in table.keys]
    values = table.reward - np.array(means)
    if scale:
        values = _scaled(values, table.reward, table.stream)
    return table.filled(values)


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """Every signal of a batch as one row."""

    size: int
    keys: list[Key]
    streams: list[str]
    group: IntArray
    stream: IntArray
    reward: FloatArray

    @classmethod
    def read(cls, groups: Sequence[Rewards]) -> "_Table":
        rows = [
            (g, key, reward)
            for g, rewards in enumerate(groups)
            for key, reward in rewards.items()
            if reward is not None
        ]
        keys = [key for _, key, _ in rows]
        streams = sorted({key.stream for key in keys})
        return cls(
            size=len(groups),
            keys=keys,
            streams=streams,
            group=np.array([g for g, _, _ in rows], np.int64),
            stream=np.array([streams.index(key.stream) for key in keys], np.int64),
            reward=np.array([reward for _, _, reward in rows], np.float64),
        )

    def centred(self, cell: IntArray, scale: bool) -> Advantages:
        values = self.reward - _mean(self.reward, cell)[cell]
        values[_equal(self.reward, cell)[cell]] = 0.0
        return self.filled(_scaled(values, self.reward, cell) if scale else values)

    def filled(self, values: FloatArray) -> Advantages:
        groups: list[dict[Key, float]] = [{} for _ in range(self.size)]
        for g, key, value in zip(self.group.tolist(), self.keys, values.tolist(), strict=True):
            groups[g][key] = value
        return Advantages(groups, self._mixed())

    def _mixed(self) -> list[bool]:
        """Which groups have rewards that differ, on any stream."""
        cell = self.group * max(len(self.streams), 1) + self.stream
        mixed = np.zeros(self.size, bool)
        np.logical_or.at(mixed, self.group, ~_equal(self.reward, cell)[cell])
        return [bool(m) for m in mixed]


def _mean(values: FloatArray, cell: IntArray) -> FloatArray:
    return np.asarray(np.bincount(cell, values) / np.maximum(np.bincount(cell), 1))


def _equal(values: FloatArray, cell: IntArray) -> NDArray[np.bool_]:
    """The cells whose values are all the same, but for rounding. That is no signal."""
    size = int(cell.max(initial=-1)) + 1
    high, low = np.full(size, -np.inf), np.full(size, np.inf)
    np.maximum.at(high, cell, values)
    np.minimum.at(low, cell, values)
    return np.asarray(high - low < 1e-9)


def _scaled(values: FloatArray, rewards: FloatArray, cell: IntArray) -> FloatArray:
    """Divided by the standard deviation of the rewards in each cell, where there is any."""
    deviation = np.sqrt(_mean((rewards - _mean(rewards, cell)[cell]) ** 2, cell))
    deviation[_equal(rewards, cell)] = 1.0
    return np.asarray(values / deviation[cell])
