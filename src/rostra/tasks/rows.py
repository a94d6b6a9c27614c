"""Rows of data files, one at a time, each with the place it stands at."""

import difflib
import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from rostra.errors import DataError
from rostra.tasks.needs import need

SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".parquet")


@dataclass(frozen=True, slots=True)
class Row:
    """One row, as it stands in its file."""

    file: str
    number: int
    """Counted from 1: the line, where rows are lines."""
    values: Mapping[str, Any]
    unit: str = "line"

    @property
    def place(self) -> str:
        return f"{self.file}, {self.unit} {self.number}"

    @property
    def id(self) -> str:
        """What the row is called if it has no name of its own."""
        name = self.file.removesuffix(".gz")
        for suffix in SUFFIXES:
            name = name.removesuffix(suffix)
        return f"{name}-{self.number}"

    def wrong(self, what: str) -> DataError:
        return DataError(f"{self.place}: {what}")

    def text(self, *names: str) -> str:
        """The text of the first of these fields that is there. A number is its digits."""
        for name in names:
            value = self.values.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return str(value)
            if isinstance(value, str):
                return self._whole(name, value)
            if value is not None:
                raise self.wrong(f"{name!r} must be a text or a number")
        empty = next((name for name in names if name in self.values), None)
        if empty is not None:
            raise self.wrong(f"{empty!r} is null, and must be a text or a number")
        raise self.wrong(f"no field {' or '.join(map(repr, names))}{self.meant(names[0])}")

    def _whole(self, name: str, text: str) -> str:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise self.wrong(f"the text of {name!r} holds half a character") from None
        return text

    def prompt(self, *names: str) -> str:
        """The same, and it must say something."""
        found = self.text(*names)
        if not found.strip():
            raise self.wrong("the question is empty")
        return found

    def texts(self, name: str, values: Sequence[object]) -> list[str]:
        """Texts that stand in a list; `name` is what one of them is called in messages."""
        named = {f"{name} {number}": value for number, value in enumerate(values, 1)}
        return [replace(self, values=named).text(each) for each in named]

    def meant(self, name: str) -> str:
        """What a field that is not there may be called here."""
        close = difflib.get_close_matches(name, list(self.values), n=1)
        there = ", ".join(list(self.values)[:8])
        return f", did you mean {close[0]!r}?" if close else f" (there are: {there or 'none'})"


def read_rows(path: Path, name: str | None = None) -> Iterator[Row]:
    """The rows of a file, in order. `name` stands for the file in messages."""
    name = name or path.name
    try:
        if path.name.endswith(".parquet"):
            yield from _parquet(path, name)
        elif path.name.endswith(".json"):
            yield from _json(path, name)
        elif path.name.endswith((".jsonl", ".jsonl.gz")):
            with gzip.open(path) if path.name.endswith(".gz") else path.open("rb") as file:
                yield from _lines(file, name)
        else:
            raise DataError(f"{path}: what kind of file is it? There are {', '.join(SUFFIXES)}")
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{name}: cannot be unpacked, it is cut short or broken: {error}") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None


def _lines(file: IO[bytes] | gzip.GzipFile, name: str) -> Iterator[Row]:
    for number, line in enumerate(file, 1):
        bare = line.removeprefix(b"\xef\xbb\xbf").strip()
        if not bare:
            continue
        try:
            values = json.loads(bare.decode())
        except (ValueError, RecursionError) as error:
            if not line.endswith(b"\n"):
                raise DataError(
                    f"{name}, line {number}: is cut short: the file ends inside of a row"
                ) from None
            raise DataError(f"{name}, line {number}: not valid JSON: {error}") from None
        yield _row(name, number, values, "line")


def _json(path: Path, name: str) -> Iterator[Row]:
    """A list of rows; a lone object is a file of one row."""
    try:
        values = json.loads(path.read_text("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{name}: not valid JSON: {error}") from None
    if isinstance(values, Mapping):
        values = [values]
    if not isinstance(values, list):
        raise DataError(f"{name}: must hold a list of rows")
    for number, row in enumerate(values, 1):
        yield _row(name, number, row, "row")


def _parquet(path: Path, name: str) -> Iterator[Row]:
    datasets = need("datasets")
    try:
        table = datasets.Dataset.from_parquet(str(path), keep_in_memory=True)
    except Exception as error:
        raise DataError(f"{name}: not a parquet file that can be read: {error}") from None
    for number, values in enumerate(table, 1):
        yield _row(name, number, values, "row")


def _row(name: str, number: int, values: object, unit: str) -> Row:
    if not isinstance(values, Mapping):
        raise DataError(f"{name}, {unit} {number}: must be an object with named fields")
    return Row(name, number, values, unit)
