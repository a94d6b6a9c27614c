"""The settings of a run: one table of a recipe each. Every default says why it is what it is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from rostra.credit.datums import Normalise
from rostra.debate.peer import PeerRules, check_choice
from rostra.engines.address import is_address, read_address
from rostra.engines.schedules import Kind, Schedule
from rostra.engines.training import Loss
from rostra.errors import ConfigError
from rostra.rewards.score import Baseline, Control, RewardRules
from rostra.rewards.streams import GEN, JUDGE
from rostra.runs.trackers import TRACKERS
from rostra.tasks.catalogue import CATALOGUE, FIELDS, SUBJECTS, GraderName, TaskName
from rostra.tasks.task import PARTS

EngineName = Literal["local", "openai", "scripted"]
Mode = Literal["sync", "async"]
Loop = Literal["selfplay", "warmstart"]
PhaseKind = Literal["drill", "debate", "stored"]
Choice = Literal["all", "winners", "right"]
Difficulty = Literal["agreement", "truth"]
AlarmName = Literal["consensus", "noise", "format"]


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ConfigError(f"{name} = {value}: must be at least {least}")


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """[model]: what is trained, and where it begins."""

    engine: EngineName = "local"
    name: str = "smollm2"
    """toy, toy-sums, smollm2, a folder, a hub id or a .gguf file. openai: an address, as in
    http://127.0.0.1:8000/v1#qwen3."""
    start: str = ""
    """A run or a checkpoint to begin with; empty: the model as it is."""
    lora_rank: int = 16
    """Of the adapter that is trained; 0 trains all weights."""
    lora_alpha: float = 32.0
    lanes: int = 64
    """Replies that are sampled at once."""
    batch_tokens: int = 2048
    """Tokens in one pass of training."""
    checkpointing: bool = False
    """Recompute activations to save memory."""
    threads: int = 0
    """Threads of torch; 0 leaves it to torch. The small toys are fastest with 1."""

    def __post_init__(self) -> None:
        check_choice("engine", self.engine, get_args(EngineName))
        if self.engine == "openai":
            read_address(self.name)
        elif self.engine == "local" and is_address(self.name):
            raise ConfigError(f'name = {self.name!r}: an address needs engine = "openai"')
        _at_least("lora_rank", self.lora_rank, 0)
        _at_least("lanes", self.lanes, 1)
        _at_least("batch_tokens", self.batch_tokens, 1)
        _at_least("threads", self.threads, 0)
        if not 0 < self.lora_alpha < float("inf"):
            raise ConfigError(f"lora_alpha = {self.lora_alpha}: must be above 0")


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
    """jsonl, hub: how answers are compared. none: the questions have no right answer."""
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
            raise ConfigError(f"{entry.needs}: task {self.name} needs one")
        self._check_words()
        _at_least("below", self.below, 2)
        _at_least("size", self.size, 10)
        _at_least("limit", self.limit, 0)
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
class RewardSettings:
    """[rewards]: how votes become what tokens are worth."""

    control: Control = "none"
    """coin: the direction of every vote is a coin flip. plurality: solutions are paid for agreeing
    with the most common answer. A claim without a control is worth nothing."""
    truth: float = 0.0
    """The share of correctness in the reward of solutions."""
    judge_truth: float = 0.0
    baseline: Baseline = "group"
    scale: bool = False
    """Divide advantages by their standard deviation."""
    gen: float = 1.0
    """The weight of solving."""
    judge: float = 1.0
    """The weight of judging. Below 1 while judges are weak: they can learn to agree without
    being right."""
    judge_first: int = 0
    """For so many steps only judging and form are paid, while answers still differ and judges have
    something to tell apart. Solving then learns from judges who agree."""
    normalise: Normalise = "token_mean"

    def __post_init__(self) -> None:
        self.rules(PeerRules())
        _at_least("judge_first", self.judge_first, 0)
        check_choice("normalise", self.normalise, get_args(Normalise))
        for name in ("gen", "judge"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(f"{name} = {getattr(self, name)}: must be 0 or more")

    def weights(self, step: int) -> dict[str, float]:
        """What a stream weighs at a step."""
        return {GEN: self.gen if step >= self.judge_first else 0.0, JUDGE: self.judge}

    def rules(self, protocol: PeerRules) -> RewardRules:
        return RewardRules(
            protocol.reward,
            protocol.consensus,
            protocol.format_penalty,
            self.truth,
            self.judge_truth,
            self.baseline,
            self.scale,
            self.control,
        )


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """[train]: the loop of self-play."""

    steps: int = 100
    questions: int = 16
    """Debates in a step, each about another question."""
    mode: Mode = "sync"
    """async samples the next steps while this one is trained on."""
    staleness: int = 1
    """async: how many steps older than the newest weights a debate's weights are. It is fixed, so
    that a run can be repeated; sampling waits, and nothing that was sampled is thrown away."""
    loss: Loss = "importance_sampling"
    """ppo is taken instead where debates are stale: far-off ratios need clipping."""
    learning_rate: float = 3e-5
    """As published for LoRA."""
    schedule: Kind = "constant"
    warmup: int = 0
    floor: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.95
    weight_decay: float = 0.0
    clip_norm: float = 1.0
    microbatch: int = 64
    """Examples in one call of the trainer."""
    save_every: int = 20
    keep: int = 2
    """Checkpoints that stay; the last one always does."""
    eval_every: int = 10
    """0 evaluates before and after only."""
    retries: int = 2
    """How often a debate that failed is played again."""
    turn_timeout: float = 600.0
    """Seconds until a reply is given up."""
    resample: float = 0.0
    """The share of a step's questions that were asked before and are asked again, those first that
    are neither always passed nor never."""
    difficulty: Difficulty = "agreement"
    """What passing means there. agreement: the most common answer, which needs no label. truth: the
    right one."""

    def __post_init__(self) -> None:
        for name in ("steps", "questions", "microbatch", "save_every", "keep"):
            _at_least(name, getattr(self, name), 1)
        for name in ("staleness", "eval_every", "retries"):
            _at_least(name, getattr(self, name), 0)
        check_choice("mode", self.mode, get_args(Mode))
        check_choice("loss", self.loss, ("importance_sampling", "ppo", "cispo"))
        check_choice("difficulty", self.difficulty, get_args(Difficulty))
        if not 0 <= self.resample < 1:
            raise ConfigError(f"resample = {self.resample}: a share, at least 0 and below 1")
        if not 0 < self.learning_rate < 1:
            raise ConfigError(f"learning_rate = {self.learning_rate}: between 0 and 1")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name} = {getattr(self, name)}: at least 0 and below 1")
        for name in ("weight_decay", "clip_norm"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(f"{name} = {getattr(self, name)}: must be 0 or more")
        if not self.turn_timeout > 0:
            raise ConfigError(f"turn_timeout = {self.turn_timeout}: must be above 0 seconds")
        self.rate()

    def rate(self) -> Schedule:
        return Schedule(self.schedule, self.warmup, self.steps, self.floor)

    @property
    def lag(self) -> int:
        """How many steps older than the newest the weights of a debate are."""
        return self.staleness if self.mode == "async" else 0


@dataclass(frozen=True, slots=True)
class EvalSettings:
    """[eval]: what is measured on held-out questions."""

    questions: int = 64
    samples: int = 5
    """Sampled answers to a question: the k of pass@k and cons@k."""
    debates: int = 32
    """Debates that are played to see how well votes tell right from wrong."""
    prepared: int = 0
    """Debates on solutions of the task's teacher, the same each time, with ballots of the policy:
    in its own debates, the answers to judge change with the policy."""

    def __post_init__(self) -> None:
        _at_least("questions", self.questions, 0)
        _at_least("samples", self.samples, 1)
        _at_least("debates", self.debates, 0)
        _at_least("prepared", self.prepared, 0)


@dataclass(frozen=True, slots=True)
class AlarmSettings:
    """[alarms]: what to do about the known failures of self-play."""

    stop_on: tuple[AlarmName, ...] = ()
    """The alarms that end a run: consensus, noise, format."""

    def __post_init__(self) -> None:
        for name in self.stop_on:
            check_choice("stop_on", name, get_args(AlarmName))


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
        _at_least("steps", self.steps, 1)
        _at_least("debates", self.debates, 0)
        _at_least("drills", self.drills, 0)
        _at_least("ballots", self.ballots, 0)
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
        _at_least("until", self.until, 1)
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
        _at_least("steps", self.steps, 1)
        _at_least("window", self.window, 1)
        if not 0 <= self.threshold < float("inf"):
            raise ConfigError(f"threshold = {self.threshold}: must be 0 or more")


@dataclass(frozen=True, slots=True)
class Recipe:
    """One complete experiment."""

    loop: Loop = "selfplay"
    title: str = "self-play"
    folder: str = "runs/selfplay"
    """Where the run goes."""
    seed: int = 0
    trackers: tuple[str, ...] = ()
    """Where metrics go besides metrics.jsonl: trackio, wandb, tensorboard."""
    model: ModelSettings = ModelSettings()
    task: TaskSettings = TaskSettings()
    protocol: PeerRules = field(default_factory=PeerRules)
    rewards: RewardSettings = RewardSettings()
    train: TrainSettings = TrainSettings()
    eval: EvalSettings = EvalSettings()
    alarms: AlarmSettings = AlarmSettings()
    bootstrap: BootstrapSettings = BootstrapSettings()
    phases: tuple[Phase, ...] = ()
    stages: tuple[Stage, ...] = ()

    def __post_init__(self) -> None:
        check_choice("loop", self.loop, get_args(Loop))
        for name in self.trackers:
            check_choice("trackers", name, TRACKERS)
        if self.loop == "warmstart" and not self.phases:
            raise ConfigError("phases: a warm start needs at least one [[phases]] table")
        if self.loop == "selfplay" and self.phases:
            raise ConfigError('phases: only loop = "warmstart" has them')
        if self.loop == "warmstart" and self.stages:
            raise ConfigError('stages: only loop = "selfplay" has them')
        k = self.protocol.agents
        plain = ("correct", "format", f"pass@{k}", f"avg@{k}", f"cons@{k}", f"vote@{k}")
        for stage in self.stages:
            if "/" not in stage.measure:
                check_choice("stages: measure", stage.measure, plain)
        if self.rewards.judge_first and self.protocol.reward != "streams":
            raise ConfigError(
                "rewards.judge_first: needs protocol.reward = streams, which pays judging apart"
            )
        if self.bootstrap.guide and self.protocol.reward != "streams":
            raise ConfigError("bootstrap.guide: needs protocol.reward = streams, to pay judges by")
        if self.bootstrap.guide and not self.protocol.closing_ballot:
            raise ConfigError("bootstrap.guide: needs protocol.closing_ballot = true, to judge in")

    @property
    def steps(self) -> int:
        if self.loop == "warmstart":
            return sum(phase.steps for phase in self.phases)
        return self.train.steps
