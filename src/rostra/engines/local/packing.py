"""Which examples go through the model together."""

from collections.abc import Sequence


def microbatches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Indices by batch: no more than `budget` tokens in one, unless one example alone is longer.

    Examples of similar length come together, longest first: they share a product in attention, and
    whoever runs out of memory does so at once. Batches are filled evenly.
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    total = sum(lengths)
    share = total / max(-(-total // budget), 1)
    batches: list[list[int]] = []
    filled, room = 0, 0.0
    for index in order:
        length = lengths[index]
        if not batches or filled + length > budget or room <= 0:
            batches.append([])
            filled, room = 0, share
        batches[-1].append(index)
        filled += length
        room -= length
    return batches
