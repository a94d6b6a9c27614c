"""Files of many zstandard frames: whole, torn, written over."""

import io
import os
from contextlib import suppress
from pathlib import Path

import pytest
import zstandard

from rostra.runs.frames import PIECE, frames

COMPRESS = zstandard.ZstdCompressor(write_checksum=True)


def framed(contents: list[bytes], file: Path) -> list[int]:
    """Writes a frame for each, and says where they end."""
    ends, raw = [], b""
    for content in contents:
        raw += COMPRESS.compress(content)
        ends.append(len(raw))
    file.write_bytes(raw)
    return ends


def read(file: Path) -> list[tuple[bytes, int]]:
    """The whole frames before anything that is wrong."""
    found = []
    with file.open("rb") as opened, suppress(EOFError, zstandard.ZstdError):
        for one in frames(opened):
            found.append(one)
    return found


SIZES = [0, 1, 100, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 5, 2 * PIECE]


def test_frames_of_any_size_are_read_as_they_were_written(tmp_path: Path) -> None:
    contents = [os.urandom(size) for size in SIZES]
    ends = framed(contents, tmp_path / "f")
    assert read(tmp_path / "f") == list(zip(contents, ends, strict=True))
    (tmp_path / "f").write_bytes(b"")
    assert read(tmp_path / "f") == []


@pytest.mark.parametrize("place", range(len(SIZES)))
def test_of_a_torn_file_the_whole_frames_are_left(tmp_path: Path, place: int) -> None:
    contents = [os.urandom(size) for size in SIZES]
    ends = framed(contents, tmp_path / "f")
    begins = [0, *ends][place]
    for cut in {begins + 1, (begins + ends[place]) // 2, ends[place] - 1}:
        framed(contents, tmp_path / "f")
        os.truncate(tmp_path / "f", cut)
        assert read(tmp_path / "f") == list(zip(contents, ends, strict=True))[:place]


def test_a_frame_that_was_written_over_ends_the_reading(tmp_path: Path) -> None:
    framed([os.urandom(1000) for _ in range(3)], tmp_path / "f")
    raw = bytearray((tmp_path / "f").read_bytes())
    raw[1500] ^= 255
    (tmp_path / "f").write_bytes(raw)
    assert len(read(tmp_path / "f")) == 1


def test_a_file_is_read_once_and_in_small_pieces(tmp_path: Path) -> None:
    """What is left of a piece after a frame is copied; of a whole file it would be copied for every
    frame, and a long evaluation would take minutes to open."""
    asked: list[int] = []

    class Counting(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            found = super().read(size)
            asked.append(len(found))
            return found

    framed([os.urandom(20_000)] * 50, tmp_path / "f")
    raw = (tmp_path / "f").read_bytes()
    assert len(list(frames(Counting(raw)))) == 50
    assert sum(asked) == len(raw)
    assert max(asked) <= PIECE < 20_000


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(zstandard.ZstdError):
        list(frames(io.BytesIO(b"no zstandard")))
    with pytest.raises(EOFError):
        list(frames(io.BytesIO(COMPRESS.compress(b"whole")[:-1])))
