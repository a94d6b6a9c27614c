"""Where rows come from: files on disk, or a dataset of the hub."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rostra.errors import DataError
from rostra.tasks.grading import Grader
from rostra.tasks.hub import hub_rows
from rostra.tasks.parts import parted, prompt_of
from rostra.tasks.question import Question
from rostra.tasks.rows import SUFFIXES, Row, read_rows
from rostra.tasks.task import PartName, Task

WORDS: Mapping[str, PartName] = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "dev": "validation",
    "test": "test",
}
"""What the name of a file or a split says about the part it is."""


@dataclass(frozen=True, slots=True)
class Source:
    """Files, or datasets of the hub, and what is made of them."""

    path: str = ""
    """A file, or a folder of files. Without one, the hub is asked."""
    dataset: str = ""
    """One or several of the hub, with commas between: `name`, `name:config`, `name@split`."""
    splits: Mapping[str, str] = field(default_factory=dict)
    """Part to split of a dataset, where the names of the splits do not say it."""
    validation: float = 0.05
    """The share of questions that is taken for validation where no file is."""
    held_out: float = 0.15
    """The share that is taken for test where no file is."""
    limit: int = 0
    """At most so many questions in each part; 0: all."""

    def rows(self) -> Iterator[tuple[PartName | None, Row]]:
        """Every row with the part it belongs to; None where nothing says it."""
        if self.path:
            yield from _file_rows(Path(self.path))
        else:
            for dataset in self.dataset.split(","):
                for name, row in hub_rows(dataset.strip(), self.splits):
                    yield part_of(name), row


def part_of(name: str) -> PartName | None:
    """The part that the name of a file or a split speaks of."""
    words = re.split(r"[^a-z]+", name.lower())
    return next((WORDS[word] for word in words if word in WORDS), None)


def _file_rows(path: Path) -> Iterator[tuple[PartName | None, Row]]:
    if not path.exists():
        raise DataError(f"{path}: no such file or folder; give the one that holds the questions")
    if path.is_file():
        yield from ((part_of(path.name), row) for row in read_rows(path))
        return
    files = sorted(file for file in path.rglob("*") if file.name.endswith(SUFFIXES))
    if not files:
        raise DataError(f"{path}: holds no file of questions ({', '.join(SUFFIXES)})")
    for file in files:
        name = file.relative_to(path).as_posix()
        yield from ((part_of(name), row) for row in read_rows(file, name))


def load(
    name: str,
    source: Source,
    make: Callable[[Row], Iterable[Question]],
    grader: Grader,
    *,
    only: PartName | None = None,
    key: Callable[[Question], str] = prompt_of,
) -> Task:
    """A task of the rows of a source, in the parts that their files are, or in `only` one. Where
    no file is for training, those for validation are parted like files that say nothing."""
    found: dict[PartName, list[Question]] = {"train": [], "validation": [], "test": []}
    places: dict[str, str] = {}
    trains = False
    for part, row in source.rows():
        trains = trains or part in ("train", None)
        for question in make(row):
            before = places.setdefault(question.id, row.place)
            if before != row.place:
                raise row.wrong(f"has the id {question.id!r} that {before} has; ids must differ")
            found[only or part or "train"].append(question)
    if not places:
        raise DataError(f"{source.path or source.dataset}: no question in it is asked for")
    if not trains:
        found["train"], found["validation"] = found["validation"], []
    shares = source.validation, source.held_out
    parts = parted(found["train"], found["validation"], found["test"], shares=shares, key=key)
    train, validation, test = (part[: source.limit or None] for part in parts)
    return Task(name, train, test, grader, validation)
