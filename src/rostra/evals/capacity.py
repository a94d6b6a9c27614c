"""Whether a run fits: into the context of its model, into memory, and into one's time."""

from collections.abc import Sequence

from rostra.debate.peer import PeerRules
from rostra.debate.state import prompt_tokens
from rostra.debate.transcript import Transcript
from rostra.evals.checks import Check, Status
from rostra.evals.sample import Memory, Probe, size
from rostra.runs.display import duration
from rostra.runs.settings import Recipe


def context_check(
    rules: PeerRules, transcripts: Sequence[Transcript], context: int | None
) -> Check:
    """Whether the longest prompt fits, and whether it still would with longer replies."""
    lengths: dict[int, int] = {}
    for transcript in transcripts:
        turns = {turn.id: turn for turn in transcript.turns}
        for name, turn in turns.items():
            length = len(prompt_tokens(turns, turn))
            lengths[name.round] = max(length, lengths.get(name.round, 0))
    first, last, limit = lengths[0], max(lengths), rules.max_tokens
    need = max(lengths.values()) + limit
    grows = (lengths[last] - first) / last if last else 0.0
    spoken = [len(turn.tokens) for t in transcripts for turn in t.turns]
    unused = limit - sum(spoken) / len(spoken)
    worst = need + round(unused * rules.agents * _rounds_shown(rules))
    saw = (
        f"{need:,} tokens needed: {first:,} of prompt in round 1, {grows:+,.0f} a round, {limit:,} "
        f"for a reply; {worst:,} if every reply is as long as it may be"
    )
    numbers = {"need": float(need), "worst": float(worst), "growth": grows}
    if not context:
        return Check("context", "pass", f"{saw}; the engine has no bound", numbers=numbers)
    status: Status = "fail" if need > context else "thin" if worst > context else "pass"
    try_ = "Lower protocol.max_tokens or protocol.rounds, or set protocol.history_rounds=1."
    saw, numbers = f"{saw}; the model reads {context:,}", {**numbers, "context": float(context)}
    return Check("context", status, saw, "" if status == "pass" else try_, numbers)


def _rounds_shown(rules: PeerRules) -> int:
    """The most rounds that a prompt holds."""
    own = rules.schedule == "sequential"
    before = rules.rounds - 1 + (own or rules.closing_ballot)
    return before if rules.history_rounds < 0 else min(before, rules.history_rounds + own)


def throughput_check(recipe: Recipe, probed: Probe) -> Check:
    """How long a run takes, and how many tokens."""
    train = recipe.train
    times = train.steps * train.questions / probed.debates
    tokens, seconds = probed.tokens * times, (probed.sampling + probed.training) * times
    rate, each = probed.tokens / max(probed.sampling, 1e-9), probed.training / probed.debates
    timed = f"{each:.2f} s of training a debate" if each else "no signal to time training with"
    saw = (
        f"{rate:,.0f} tokens/s sampled, {timed}; {train.steps:,} steps of {train.questions:,} "
        f"debates take about {duration(seconds)} and {tokens:,.0f} tokens, evaluations "
        "not counted"
    )
    numbers = {
        "tokens_per_second": rate,
        "training_seconds_per_debate": each,
        "seconds": seconds,
        "tokens": tokens,
    }
    return Check("throughput", "pass" if each else "unknown", saw, numbers=numbers)


def memory_check(memory: Memory | None) -> Check:
    """Whether training fits into the memory of this machine."""
    if memory is None:
        return Check("memory", "unknown", "this machine does not tell")
    saw = (
        f"{size(memory.held)} held, {size(memory.more)} more for gradients and moments, "
        f"{size(memory.free)} free"
    )
    fits = memory.more < memory.free
    try_ = "" if fits else "Train an adapter (model.lora_rank=16), or take a smaller model."
    numbers = {"held": memory.held, "more": memory.more, "free": memory.free}
    return Check("memory", "pass" if fits else "fail", saw, try_, numbers)
