"""The settings of a run: one table of a recipe each. Every default says why it is what it is."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from rostra.credit.datums import Normalise
from rostra.debate.peer import PeerRules, check_choice
from rostra.debate.protocol import check_least
from rostra.engines.address import is_address, read_address
from rostra.engines.schedules import Kind, Schedule
from rostra.engines.training import Loss
from rostra.errors import ConfigError
from rostra.rewards.score import Baseline, Control, RewardRules
from rostra.rewards.streams import GEN, JUDGE
from rostra.runs.syllabus import BootstrapSettings, Phase, Stage, TaskSettings
from rostra.runs.trackers import TRACKERS

EngineName = Literal["local", "openai", "scripted"]
Mode = Literal["sync", "async"]
Loop = Literal["selfplay", "warmstart"]
Difficulty = Literal["agreement", "truth"]
AlarmName = Literal["consensus", "noise", "format"]


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
        if self.engine == "openai" or is_address(self.name):
            read_address(self.name)
        if self.engine != "openai" and is_address(self.name):
            raise ConfigError(f'name = {self.name!r}: an address needs engine = "openai"')
        check_least("lora_rank", self.lora_rank, 0)
        check_least("lanes", self.lanes, 1)
        check_least("batch_tokens", self.batch_tokens, 1)
        check_least("threads", self.threads, 0)
        if not 0 < self.lora_alpha < float("inf"):
            raise ConfigError(f"lora_alpha = {self.lora_alpha}: must be above 0")


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
        check_least("judge_first", self.judge_first, 0)
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
            check_least(name, getattr(self, name), 1)
        for name in ("staleness", "eval_every", "retries"):
            check_least(name, getattr(self, name), 0)
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
        check_least("questions", self.questions, 0)
        check_least("samples", self.samples, 1)
        check_least("debates", self.debates, 0)
        check_least("prepared", self.prepared, 0)


@dataclass(frozen=True, slots=True)
class AlarmSettings:
    """[alarms]: what to do about the known failures of self-play."""

    stop_on: tuple[AlarmName, ...] = ()
    """The alarms that end a run: consensus, noise, format."""

    def __post_init__(self) -> None:
        for name in self.stop_on:
            check_choice("stop_on", name, get_args(AlarmName))


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
                if stage.threshold > 1:
                    raise ConfigError(
                        f"stages: threshold = {stage.threshold}: {stage.measure} is a share, from "
                        "0 to 1"
                    )
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
