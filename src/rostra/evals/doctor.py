"""Whether a recipe can learn: a small sample is played, measured and judged before a run.

Self-play needs a policy that debates, solves and judges a little, and rewards that differ; where
one of them is missing, a run costs its time and teaches nothing. All questions are training
questions: held-out ones stay unseen.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from rostra.arena import Debate, Played
from rostra.debate.peer import judge_warnings
from rostra.debate.transcript import Transcript
from rostra.debate.turn import Turn
from rostra.debate.votes import Ballot
from rostra.engines.engine import Engine
from rostra.errors import ArenaError
from rostra.evals.accuracy import votes_right
from rostra.evals.capacity import context_check, memory_check, throughput_check
from rostra.evals.checks import Check, Diagnosis, Share, Status
from rostra.evals.sample import (
    K,
    Progress,
    Sample,
    alone_debates,
    memory_of,
    play_sample,
    probe,
    watcher,
)
from rostra.learn.lesson import all_marks, answers_of
from rostra.players.model import ModelPlayer
from rostra.players.player import Player
from rostra.players.staged import StagedPlayer
from rostra.rewards.advantages import Key, Rewards
from rostra.rewards.score import score
from rostra.rewards.streams import GEN, JUDGE
from rostra.runs.settings import Recipe
from rostra.seeds import derive
from rostra.tasks.task import Task

FINISHED = 0.9
"""Of debates that are begun, so many must come to an end."""
FORMED = 0.8
"""Of turns, so many must be well-formed; of those that could compare, so many must."""
SOLVED, THIN = 0.05, 0.1
"""Below the first share of right answers there is nothing to learn from, below the second
little."""
PASSED = 0.2
"""The share of questions of which one of K answers must be right."""
CHANCE, HARDLY = 0.5, 0.6
"""A judge must be better than a coin. One who cannot be better than the second is hardly so."""
GROUPS = 4
"""Fewer groups with a signal in a step make a rough gradient, and fewer than 1 none."""
CUT, SOME_CUT = 0.2, 0.05
"""Replies that may be cut by their length."""
HALF = 0.5
"""Where fewer turns than this have a reward, most of what is sampled teaches nothing."""


async def diagnose(
    recipe: Recipe,
    task: Task,
    engine: Engine,
    questions: int,
    *,
    speaker: Player | None = None,
    progress: Progress | None = None,
    stage: int = 1,
) -> Diagnosis:
    """Plays a sample and judges it. `speaker` gives the prepared solutions, where there is one. Of
    a curriculum, the task is that of one stage, counted from 1."""
    count = min(questions, len(task.train)) or 1
    rules = recipe.protocol
    try:
        probed = await probe(recipe, task, engine, count, watcher(progress, "debating", count))
        drawn = [transcript.question for transcript in probed.played.transcripts]
        player = ModelPlayer(await (await engine.trainer()).sampler(), engine.chat)
        more = alone_debates(rules, drawn, recipe.seed)
        watch = watcher(progress, "answering alone", len(more))
        alone = (await play_sample(more, player, recipe, watch)).transcripts
        prepared: Sequence[Transcript] = ()
        if speaker is not None and rules.closing_ballot:
            staged = [Debate.peer(q, rules, derive(0, "prepared", q.id)) for q in drawn]
            watch = watcher(progress, "judging prepared solutions", len(staged))
            judge = StagedPlayer(speaker, player)
            done = await play_sample(staged, judge, recipe, watch)
            prepared = [_ballots_only(transcript) for transcript in done.transcripts]
    except ArenaError as error:
        return Diagnosis((Check("debates", "fail", str(error), numbers={"share": 0.0}),))
    context = getattr(engine, "context", None)
    sample = Sample(probed, alone, prepared, context, memory_of(engine))
    return judge_sample(recipe, task, sample, stage)


def judge_sample(recipe: Recipe, task: Task, sample: Sample, stage: int = 1) -> Diagnosis:
    """What a sample says about a recipe. First the rules, under which nobody may be able to learn;
    then form, because whoever cannot keep it fails everything else; then solving, judging, and what
    is left to learn from."""
    transcripts = sample.probe.played.transcripts
    return Diagnosis(
        (
            _judges(recipe),
            _finished(sample.probe.played),
            *_form(transcripts),
            *_solving([*transcripts, *sample.alone], task),
            _votes("own votes", transcripts, task),
            *([_votes("prepared votes", sample.prepared, task)] if sample.prepared else []),
            *_signal(recipe, task, transcripts),
            context_check(recipe.protocol, transcripts, sample.context),
            throughput_check(recipe, sample.probe),
            memory_check(sample.memory),
            *_stages(recipe, stage),
        )
    )


def _finished(played: Played) -> Check:
    share = Share.of([(isinstance(result, Transcript), 1) for result in played.results])
    saw = f"{len(played.transcripts)} of {share.n} finished"
    if played.failures:
        cause = played.failures[0].cause
        saw += f"; one failed with {type(cause).__name__}: {cause}"
    try_ = "See to that first: a debate that keeps failing is dropped."
    fails = share.value < FINISHED
    return Check.of("debates", share, saw, try_, fails=fails, thin=bool(played.failures))


def _form(transcripts: Sequence[Transcript]) -> list[Check]:
    formed = _counted(transcripts, lambda t, turn: turn.ok)
    voted = _counted(transcripts, lambda t, turn: _voted(t, turn) if turn.could_compare else None)
    cut = _counted(transcripts, lambda t, turn: turn.stop_reason == "length")
    broken = [turn.stop_reason for t in transcripts for turn in t.turns if not turn.ok]
    try_ = "Warm start the model on debates, or show it the form in protocol.prompts."
    if 2 * broken.count("length") > len(broken):
        try_ += " Most were cut by max_tokens: if they were on their way, raise it."
    return [
        _at_least("format", formed, FORMED, "turns well-formed", try_),
        _comparisons(voted, fine=formed.value >= FORMED),
        Check.of(
            "length",
            cut,
            f"{cut} of {cut.n:,} replies cut by max_tokens",
            "Raise protocol.max_tokens, or ask for shorter replies.",
            fails=cut.value > CUT,
            thin=cut.value > SOME_CUT,
        ),
    ]


def _comparisons(share: Share, *, fine: bool) -> Check:
    """Where form is fine and still nobody can compare, the rules do not let anybody vote."""
    if share.n or not fine:
        try_ = "Warm start with comparisons, or raise protocol.format_penalty."
        of, nobody = (
            "turns that could compare cast a valid vote",
            "no turn could compare two others",
        )
        return _at_least("comparisons", share, FORMED, of, try_, more=True, nobody=nobody)
    saw = "no turn could compare two others, so nobody votes"
    try_ = "Set protocol.closing_ballot=true and protocol.history_rounds=-1."
    return Check("comparisons", "fail", saw, try_, share.numbers())


def _voted(transcript: Transcript, turn: Turn) -> bool:
    return bool(transcript.ballots[turn.id].votes)


def _counted(
    transcripts: Sequence[Transcript], mark: Callable[[Transcript, Turn], bool | None]
) -> Share:
    """The share of turns with a mark; None is not counted."""
    rows = [[m for turn in t.turns if (m := mark(t, turn)) is not None] for t in transcripts]
    return Share.of([(sum(row), len(row)) for row in rows])


def _at_least(
    name: str,
    share: Share,
    least: float,
    of: str,
    try_: str,
    *,
    more: bool = False,
    nobody: str = "nothing to count",
) -> Check:
    """Whether a share is large enough; with `more`, the bound itself is not."""
    fails = share.value <= least if more else share.value < least
    needed = f", where {'more than ' if more else ''}{least:.0%} are needed" if fails else ""
    saw = f"{share} of {share.n:,} {of}{needed}" if share.n else nobody
    return Check.of(name, share, saw, try_, fails=fails)


def _solving(transcripts: Sequence[Transcript], task: Task) -> list[Check]:
    """Whoever opens a debate has seen nobody: that is a direct answer."""
    said: dict[str, list[float]] = {}
    for transcript, marks in zip(transcripts, all_marks(transcripts, task), strict=True):
        if transcript.question.reference is not None:
            first = [marks.get(turn.id, 0.0) for turn in transcript.turns if turn.slot == 0]
            said.setdefault(transcript.question.id, []).extend(first)
    solved = Share.of([(sum(row), len(row)) for row in said.values()])
    passed = Share.of([(pass_at(K, row), 1) for row in said.values() if len(row) >= K])
    try_ = "Take easier questions or a stronger model, or warm start it on right solutions."
    unknown = "nobody knows the right answers of this task"
    check = _at_least("solves", solved, SOLVED, "sampled answers right", try_, nobody=unknown)
    if check.status == "pass" and solved.value < THIN:
        check = replace(check, status="thin", try_=f"Below {THIN:.0%} learning is slow. {try_}")
    one = f"questions right in one of {K} answers"
    return [check, _at_least(f"pass@{K}", passed, PASSED, one, try_, more=True, nobody=unknown)]


def pass_at(k: int, marks: Sequence[float]) -> float:
    """The chance that one of k answers is right, drawn from these without putting back:
    1 - C(n - c, k) / C(n, k)."""
    wrong = sum(mark < 1 for mark in marks)
    return 1 - math.comb(wrong, k) / math.comb(len(marks), k)


def _judges(recipe: Recipe) -> Check:
    """Whether the rules leave judges anything to be measured against."""
    rules, rewards = recipe.protocol, recipe.rewards
    name, judges = "judges", rules.agents - 2
    saw, numbers = f"{judges} for a pair, as nobody judges himself", {"judges": float(judges)}
    if rules.reward != "streams" or not rewards.judge:
        why = "rewards.judge = 0" if rules.reward == "streams" else f"reward = {rules.reward}"
        return Check(name, "pass", f"{saw}; judging is not rewarded ({why})", numbers=numbers)
    warnings = judge_warnings(rules.agents, rules.consensus)
    if not warnings or rewards.judge_truth:
        return Check(name, "pass", saw, numbers=numbers)
    try_ = "Set protocol.agents=5, or rewards.judge=0 to learn from solutions alone."
    why, guided = warnings[0].rstrip("."), recipe.bootstrap
    if guided.share(0):
        why += f" once the guide is gone, at step {guided.until}"
    status: Status = "fail" if rules.agents == 3 and not guided.share(0) else "thin"
    return Check(name, status, why, try_, numbers)


def _votes(name: str, transcripts: Sequence[Transcript], task: Task) -> Check:
    """Whether votes on a right and a wrong answer are better than a coin."""
    marks = all_marks(transcripts, task)
    share = Share.of([votes_right(t, known) for t, known in zip(transcripts, marks, strict=True)])
    if not any(marks):
        saw = "no answer is known to be right or wrong"
        return Check(name, "unknown", saw, numbers=share.numbers())
    return votes_check(name, share)


def votes_check(name: str, share: Share) -> Check:
    """What a share of right votes says about a judge. One who has done no better than a coin fails
    as soon as enough was seen: a run would learn from noise."""
    numbers, more = share.numbers(), "Play more: --questions."
    if not share.n:
        saw = "no vote chose between a right and a wrong answer"
        return Check(name, "unknown", saw, more, numbers)
    saw = f"{share} of {share.n:,} votes go to the right answer"
    if share.low > CHANCE:
        return Check(name, "pass", saw, numbers=numbers)
    if share.high >= HARDLY:
        return Check(name, "unknown", f"{saw}, which may be a coin", more, numbers)
    try_ = "Warm start with comparisons, or set rewards.judge_truth above 0."
    if share.value > CHANCE:
        saw, try_ = f"{saw}, which is hardly better than a coin", f"{more} {try_}"
        return Check(name, "thin", saw, try_, numbers)
    than = "worse than" if share.high < CHANCE else "no better than"
    return Check(name, "fail", f"{saw}, which is {than} a coin", try_, numbers)


def _ballots_only(transcript: Transcript) -> Transcript:
    """Without the votes of speeches: those were prepared."""
    kept = {
        turn.id: transcript.ballots[turn.id] if transcript.kind(turn) == "ballot" else Ballot()
        for turn in transcript.turns
    }
    return replace(transcript, ballots=kept)


def _signal(recipe: Recipe, task: Task, transcripts: Sequence[Transcript]) -> list[Check]:
    """What is left to learn from. A penalty for bad form gives a group a signal, but is no reward
    that votes have given."""
    rules = recipe.rewards.rules(recipe.protocol)
    weights = {GEN: recipe.rewards.gen, JUDGE: recipe.rewards.judge}
    correct, answers = all_marks(transcripts, task), [answers_of(t) for t in transcripts]
    groups = score(transcripts, rules, correct, None, answers).advantages.groups
    live = [any(a and weights.get(key.stream, 1.0) for key, a in g.items()) for g in groups]
    checks = [_groups(Share.of([(one, 1) for one in live]), recipe.train.questions)]
    if rules.reward == "streams":
        bare = replace(rules, format_penalty=0.0)
        rewards = score(transcripts, bare, correct, None, answers).rewards
        checks += [_rewards(s, transcripts, rewards) for s in (GEN, JUDGE) if weights[s]]
        if recipe.bootstrap.share(0) and weights[JUDGE] and checks[-1].status == "fail":
            saw = f"{checks[-1].saw}, without those of the guide"
            checks[-1] = replace(checks[-1], status="thin", saw=saw)
    return checks


def _groups(share: Share, questions: int) -> Check:
    expected = share.value * questions
    saw = f"{share} have a signal: about {expected:.1f} of {questions} in a step"
    try_ = (
        "Raise train.questions or the temperatures, or take questions that are sometimes answered "
        "right and sometimes wrong."
    )
    few = expected < min(GROUPS, HALF * questions)
    check = Check.of("groups", share, saw, try_, fails=few and expected < 1, thin=few)
    return replace(check, numbers={**check.numbers, "expected": expected})


def _rewards(stream: str, transcripts: Sequence[Transcript], rewards: Sequence[Rewards]) -> Check:
    """Of the turns that can earn a reward on a stream, those that do."""

    def can(transcript: Transcript, turn: Turn) -> bool:
        return transcript.kind(turn) == "speak" if stream == GEN else turn.could_compare

    rows = [
        [earned[Key(*turn.id, stream)] is not None for turn in t.turns if can(t, turn)]
        for t, earned in zip(transcripts, rewards, strict=True)
    ]
    share = Share.of([(sum(row), len(row)) for row in rows])
    saw = f"{share} of {share.n:,} turns that can earn one" if share.n else "no turn can earn one"
    try_ = "Turn protocol.closing_ballot on, use 5 agents or more, or warm start with comparisons."
    name = f"{stream} rewards"
    return Check.of(name, share, saw, try_, fails=share.value == 0, thin=share.value < HALF)


def _stages(recipe: Recipe, stage: int) -> list[Check]:
    """A curriculum is checked one stage at a time: later ones are for a policy that has learned, so
    the weights of today say nothing about them."""
    names = [stage.task.name for stage in recipe.stages]
    if len(names) < 2:
        return []
    saw = f"only number {stage} of {len(names)} was checked ({' > '.join(names)})"
    try_ = "Check another with the weights it will begin with: --stage, and model.start."
    numbers = {"stages": float(len(names)), "checked": float(stage)}
    return [Check("stages", "unknown", saw, try_, numbers)]
