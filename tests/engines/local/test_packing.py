"""Which examples go through the model together."""

from hypothesis import given, settings
from hypothesis import strategies as st

from rostra.engines.local.packing import microbatches

Lengths = st.lists(st.integers(1, 300), max_size=60)


@settings(deadline=None, max_examples=200)
@given(lengths=Lengths, budget=st.integers(1, 500))
def test_everybody_goes_once_and_no_batch_is_too_full(lengths: list[int], budget: int) -> None:
    batches = microbatches(lengths, budget)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or sum(lengths[i] for i in batch) <= budget


@settings(deadline=None, max_examples=200)
@given(lengths=Lengths, budget=st.integers(1, 500))
def test_the_longest_go_first_and_equal_ones_in_their_order(
    lengths: list[int], budget: int
) -> None:
    flat = [i for batch in microbatches(lengths, budget) for i in batch]
    assert flat == sorted(range(len(lengths)), key=lambda i: -lengths[i])


@settings(deadline=None, max_examples=200)
@given(lengths=Lengths, budget=st.integers(1, 500))
def test_there_are_not_many_more_batches_than_needed(lengths: list[int], budget: int) -> None:
    """Two neighbours that would fit one batch together, filled evenly or not, are at most as many
    as batches that are needed anyway."""
    needed = -(-sum(lengths) // budget)
    assert len(microbatches(lengths, budget)) <= 2 * needed


def test_batches_are_filled_evenly() -> None:
    batches = microbatches([10] * 12, 50)
    assert [len(batch) for batch in batches] == [4, 4, 4]


def test_one_example_that_is_too_long_goes_alone() -> None:
    assert microbatches([3, 90, 4], 10) == [[1], [2, 0]]


def test_nothing_makes_no_batches() -> None:
    assert microbatches([], 10) == []
