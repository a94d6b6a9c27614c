"""The frames of a zstandard file, one after the other, in time that grows with the file."""

from collections.abc import Iterator
from typing import BinaryIO

import zstandard

PIECE = 1 << 14
"""Bytes that are read at once. What is left over behind a frame is copied, so it must be little."""


def frames(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """The content of each frame, and where it ends. EOFError where the last one is cut short,
    ZstdError where there is something else."""
    end = 0
    piece = file.read(PIECE)
    while piece:
        frame = zstandard.ZstdDecompressor().decompressobj()
        content: list[bytes] = []
        while piece and not frame.eof:
            content.append(frame.decompress(piece))
            end += len(piece) - len(frame.unused_data)
            piece = frame.unused_data or file.read(PIECE)
        if not frame.eof:
            raise EOFError
        yield b"".join(content), end
