"""The syllabus of a run: where questions come from, in which order, and who teaches at first."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from rostra.debate.peer import check_choice
from rostra.debate.protocol import check_least
from rostra.errors import ConfigError
from rostra.tasks.catalogue import CATALOGUE, FIELDS, SUBJECTS, GraderName, TaskName
from rostra.tasks.task import PARTS

PhaseKind = Literal["drill", "debate", "stored"]
Choice = Literal["all", "winners", "right"]


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """[task]: where questions come from."""

    name: TaskName = "sums"
    path: str = ""
    """A file of questions, or a folder of them. Names with train, validation, dev or test in them
    say which part a file is."""
    dataset: str = ""
    """hub: its id, or name:config, or name@split. reasoning_gym: the kinds of puzzles. Several have
    commas between."""
    splits: Mapping[str, str] = field(default_factory=dict)
    """hub: which split is train, validation or test, where their names do not say it."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """jsonl, hub: the fields that hold prompt, reference and id."""
    grader: GraderName | Literal[""] = ""
    """jsonl, hub: how answers are compared; empty: exact. none: the questions have no right
    answer."""
    levels: tuple[int, ...] = ()
    """math: only these, from 1 to 5."""
    subjects: tuple[str, ...] = ()
    """math: only these."""
    hard: bool = False
    """quality: only the questions that hasty readers got wrong."""
    below: int = 30
    """sums: terms go from 0 to one less than this."""
    size: int = 1000
    """shop, reasoning_gym: how many questions there are (of each kind)."""
    only: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    """Only questions with these metadata, in every part: only = { carry = false }."""
    limit: int = 0
    """At most so many questions in each part, where they are not made; 0: all."""
    held_out: float = 0.15
    """The share of questions that is never trained on, where no file is the test."""
    validation: float = 0.05
    """The share that is taken out of training for evaluations meanwhile. The toy worlds, sums and
    shop, have none: they can make as many as they like."""

    def __post_init__(self) -> None:
        check_choice("name", self.name, get_args(TaskName))
        entry = CATALOGUE[self.name]
        for name in ("path", "dataset", "splits", "fields", "grader", "levels", "subjects", "hard"):
            if getattr(self, name) and name not in entry.reads:
                able = [task for task, other in CATALOGUE.items() if name in other.reads]
                raise ConfigError(
                    f"{name}: task {self.name} has no such setting, only {', '.join(able)}"
                )
        if entry.needs and not getattr(self, entry.needs):
            such = ', as in dataset = "leg_counting, gcd"' if self.name == "reasoning_gym" else ""
            raise ConfigError(f"{entry.needs}: task {self.name} needs one{such}")
        self._check_words()
        check_least("below", self.below, 2)
        check_least("size", self.size, 10)
        check_least("limit", self.limit, 0)
        if not 0 < self.held_out < 1:
            raise ConfigError(f"held_out = {self.held_out}: a share between 0 and 1")
        if not 0 <= self.validation < 1 - self.held_out:
            raise ConfigError(
                f"validation = {self.validation}: a share that leaves something to train on beside "
                f"held_out = {self.held_out}"
            )

    def _check_words(self) -> None:
        if self.grader:
            check_choice("grader", self.grader, get_args(GraderName))
        for level in self.levels:
            if not 1 <= level <= 5:
                raise ConfigError(f"levels = {level}: they go from 1 to 5")
        for subject in self.subjects:
            check_choice("subjects", subject, SUBJECTS)
        for key in self.fields:
            check_choice("fields", key, tuple(FIELDS))
        for key in self.splits:
            check_choice("splits", key, PARTS)


@dataclass(frozen=True, slots=True)
class Phase:
    """[[phases]]: one part of a warm start."""

    kind: PhaseKind = "debate"
    """drill: short exercises of the task. debate: debates that the task's teacher speaks. stored:
    debates that were played before."""
    steps: int = 100
    debates: int = 8
    """Debates in a step."""
    drills: int = 0
    """Pages of exercises in a step."""
    ballots: int = 0
    """Exercises in judging in a step."""
    learning_rate: float = 1e-3
    streams: tuple[str, ...] = ("gen", "judge")
    """What is learned of a debate: solving, judging, or both."""
    only_right: bool = False
    """Learn no wrong or malformed solution: it is there for others to judge."""
    early_votes: bool = True
    """Whether the teacher compares in speeches too, and not only in ballots."""
    path: str = ""
    """stored: a run or a file of transcripts."""
    choose: Choice = "all"
    """stored: winners and right learn, as direct answers to the question, only the solutions that
    did best by the votes of their debate, or that are right."""
    forgets: float = 0.0
    slips: float = 0.0
    malformed: float = 0.0
    spoilt: float = 0.0
    misjudges: float = 0.0
    doubts: float = 0.0

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, get_args(PhaseKind))
        check_least("steps", self.steps, 1)
        check_least("debates", self.debates, 0)
        check_least("drills", self.drills, 0)
        check_least("ballots", self.ballots, 0)
        for stream in self.streams:
            check_choice("streams", stream, ("gen", "judge"))
        for name in ("forgets", "slips", "malformed", "spoilt", "misjudges", "doubts"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} = {getattr(self, name)}: a share between 0 and 1")
        check_choice("choose", self.choose, get_args(Choice))
        if self.choose != "all" and self.kind != "stored":
            raise ConfigError(f'choose = "{self.choose}": only a stored phase can choose')
        if self.kind == "stored" and not self.path:
            raise ConfigError("path: a stored phase needs a run or a file of transcripts")
        if self.kind == "drill" and not self.drills + self.ballots:
            raise ConfigError("drills: a drill phase needs at least 1 page or ballot in a step")
        if self.kind != "drill" and not self.debates:
            raise ConfigError(f"debates: a {self.kind} phase needs at least 1 debate in a step")


@dataclass(frozen=True, slots=True)
class BootstrapSettings:
    """[bootstrap]: judges learn from the votes of a stronger model at first."""

    guide: str = ""
    """The stronger model: a run, a folder of weights, or a name. Empty: none."""
    weight: float = 0.5
    """Its share in the reward of judging at the first step."""
    until: int = 20
    """The step at which its share has decayed to 0, in a straight line."""

    def __post_init__(self) -> None:
        check_least("until", self.until, 1)
        if not 0 <= self.weight <= 1:
            raise ConfigError(f"weight = {self.weight}: a share between 0 and 1")

    def share(self, step: int) -> float:
        """What the guide weighs at a step."""
        return self.weight * max(0.0, 1 - step / self.until) if self.guide else 0.0


@dataclass(frozen=True, slots=True)
class Stage:
    """[[stages]]: one part of a curriculum."""

    task: TaskSettings = TaskSettings()
    steps: int = 100
    """After so many the next stage begins, whatever was measured. The last stage has no end."""
    threshold: float = 0.0
    """It begins as soon as the measure has reached this; 0: only steps count."""
    measure: str = "correct"
    """What is measured on the questions of training: correct, pass@5, vote@5, ... of the task, or
    any metric by its full name, such as health/decided_votes, which needs no label."""
    window: int = 5
    """Over so many steps."""

    def __post_init__(self) -> None:
        check_least("steps", self.steps, 1)
        check_least("window", self.window, 1)
        if not 0 <= self.threshold < float("inf"):
            raise ConfigError(f"threshold = {self.threshold}: must be 0 or more")
