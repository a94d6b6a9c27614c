"""Every task by name: what it is, where it comes from, and what can be set."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

TaskName = Literal[
    "sums",
    "shop",
    "gsm8k",
    "math",
    "aime",
    "longwriter",
    "quality",
    "nyu",
    "reasoning_gym",
    "jsonl",
    "hub",
]
GraderName = Literal["integer", "exact", "math", "none"]
GRADER: GraderName = "exact"
"""Of questions of your own, unless another is named."""

FIELDS: Mapping[str, str] = {"prompt": "prompt", "reference": "answer", "id": ""}
"""What a question of your own is made of, and the field that holds it unless another is named."""
SUBJECTS = (
    "Algebra",
    "Counting & Probability",
    "Geometry",
    "Intermediate Algebra",
    "Number Theory",
    "Prealgebra",
    "Precalculus",
)
"""Of MATH."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the catalogue."""

    what: str
    origin: str
    grader: str
    reads: tuple[str, ...] = ()
    """The settings that this task has and not all others."""
    needs: str = ""
    """The one that must be given."""
    hub: str = ""
    """Where the hub has it."""


_FILES = ("path", "dataset", "splits")
CATALOGUE: Mapping[TaskName, Entry] = {
    "sums": Entry("a + b, small enough to learn in a minute", "built in", "integer"),
    "shop": Entry("word problems made from a seed", "built in", "integer"),
    "gsm8k": Entry(
        "word problems of grade school",
        "path or hub",
        "integer",
        _FILES,
        hub="openai/gsm8k:main",
    ),
    "math": Entry(
        "competition problems by level and subject; MATH-500 is the test",
        "path or hub",
        "math",
        (*_FILES, "levels", "subjects"),
        hub="DigitalLearningGmbH/MATH-lighteval@train, HuggingFaceH4/MATH-500@test",
    ),
    "aime": Entry(
        "AIME 2024 and 2025, for testing only",
        "path or hub",
        "integer",
        _FILES,
        hub="HuggingFaceH4/aime_2024, math-ai/aime25",
    ),
    "longwriter": Entry(
        "prompts for long texts, without a right answer",
        "path or hub",
        "none",
        _FILES,
        hub="THUDM/LongWriter-6k",
    ),
    "quality": Entry(
        "QuALITY: questions about a long story, with two answers",
        "path",
        "exact",
        ("path", "hard"),
        needs="path",
    ),
    "nyu": Entry(
        "recorded debates about such stories, with judgements",
        "path",
        "exact",
        ("path",),
        needs="path",
    ),
    "reasoning_gym": Entry(
        "a hundred kinds of puzzles, made from a seed",
        "package",
        "by puzzle",
        ("dataset",),
        needs="dataset",
    ),
    "jsonl": Entry(
        "your own rows: .jsonl, .json, .parquet",
        "path",
        f"{GRADER}, or your choice",
        ("path", "fields", "grader"),
        needs="path",
    ),
    "hub": Entry(
        "any dataset of the Hugging Face hub",
        "hub",
        f"{GRADER}, or your choice",
        ("dataset", "splits", "fields", "grader"),
        needs="dataset",
    ),
}
