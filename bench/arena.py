"""How fast the arena plays scripted debates, and where the time goes.

Five agents, three rounds and a closing ballot: 20 turns a debate. The script reads almost nothing
and says the same thing every time, so what is measured is Rostra: views, prompts, tokens, parsing,
votes, tasks. Every size runs in a process of its own, so that peak memory is its own too: once on
memory that was never touched, and then again, as a loop does step after step.
"""

import argparse
import asyncio
import cProfile
import gc
import json
import pstats
import resource
import statistics
import subprocess
import sys
import time
from itertools import combinations
from pathlib import Path

from machine import describe

from rostra import Debate, ModelPlayer, Question, ScriptedEngine, peer_v2, play
from rostra.engines.scripted import Prompt

SIZES = (100, 1_000, 10_000)
LEAST = 1_000
"""Small sizes are played in batches until so many debates are done, to average over seconds."""
RESULTS = Path(__file__).parent / "results" / "arena.json"

EVALUATION = "Agent 1 carries correctly and checks the result. " * 3
SOLUTION = f"<solution>Seventeen times twenty-four. {'Step by step. ' * 8}\\boxed{{408}}</solution>"

PARTS = {
    "views (what a seat sees)": "views.py:view",
    "prompt tokens and sampling call": "model.py:speak",
    "reading (sections, comparisons)": "state.py:turn",
    "submitting (votes, showing, next slot)": "state.py:submit",
}


def judgement(seat: int) -> str:
    """An evaluation, and a comparison of every pair of others: six votes."""
    pairs = combinations([i for i in range(5) if i != seat], 2)
    lines = "\n".join(f"Agent {a} > Agent {b}" for a, b in pairs)
    return f"<evaluation>{EVALUATION}</evaluation>\n<comparison>{lines}</comparison>"


BALLOTS = [judgement(seat) for seat in range(5)]
TURNS = [f"{SOLUTION}\n{ballot}" for ballot in BALLOTS]
NUMBER = len("?You are Agent ")
"""Where the prompt says which agent it speaks to."""


def reply(prompt: Prompt, seed: int) -> str:
    """Solves unless it is asked for a ballot, which ends in another list of sections."""
    seat = int(prompt.tokens[NUMBER]) - ord("0")
    asked = prompt.tokens[-60:].astype("uint8").tobytes()
    return TURNS[seat] if b"<solution>" in asked else BALLOTS[seat]


def debates(n: int) -> list[Debate]:
    rules = peer_v2()
    protocol = rules.protocol()
    return [Debate(Question(str(i), f"What is {i} * 24?"), protocol, i, rules) for i in range(n)]


async def run(n: int) -> float:
    """Seconds for n debates, all in flight at once."""
    engine = ScriptedEngine(reply)
    player = ModelPlayer(await engine.sampler(), engine.chat)
    jobs = debates(n)
    start = time.perf_counter()
    played = await play(jobs, player, concurrency=n)
    seconds = time.perf_counter() - start
    assert sum(len(t.turns) for t in played.transcripts) == 20 * n
    assert len(played.transcripts[0].votes) == 3 * 5 * 6
    return seconds


def measure(n: int) -> None:
    """One size, in this process; prints JSON."""
    gc.set_threshold(50_000, 20, 50)  # as the command line does
    asyncio.run(run(50))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cold = asyncio.run(run(n))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    batches = max(1, LEAST // n)
    warm = sum(asyncio.run(run(n)) for _ in range(batches)) / batches
    print(json.dumps({"cold": cold, "warm": warm, "before_kb": before, "peak_kb": peak}))


def profile(n: int = 300) -> dict[str, float]:
    """The share of each part, by a profiler, which slows small functions down more than large."""
    profiler = cProfile.Profile()
    with profiler:
        asyncio.run(run(n))
    times: dict[str, float] = {}
    whole = 0.0
    for (file, _, name), (_, _, own, cumulative, _) in pstats.Stats(profiler).stats.items():  # type: ignore[attr-defined]
        times[f"{Path(file).name}:{name}"] = cumulative
        whole += own
    shares = {part: times[function] / whole for part, function in PARTS.items()}
    return shares | {"everything else (tasks, event loop)": 1 - sum(shares.values())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, help="measure one size in this process")
    parser.add_argument("--repeats", type=int, default=3, help="processes for each size")
    parser.add_argument("--quick", action="store_true", help="leave out the largest size")
    options = parser.parse_args()
    if options.size:
        measure(options.size)
        return
    rows = []
    sizes = SIZES[:-1] if options.quick else SIZES
    runs: dict[int, list[dict[str, float]]] = {n: [] for n in sizes}
    for n in sizes * options.repeats:  # in turns, because a shared machine changes its pace
        command = [sys.executable, __file__, "--size", str(n)]
        runs[n].append(json.loads(subprocess.check_output(command)))
    print(f"{'in flight':>9}  {'debates/s':>9}  {'us/turn':>7}  {'first time':>10}  {'peak MB':>7}")
    for n in sizes:
        warm = statistics.median(r["warm"] for r in runs[n])
        cold = statistics.median(r["cold"] for r in runs[n])
        peak = max(r["peak_kb"] for r in runs[n])
        row = {
            "debates": n,
            "debates_per_second": round(n / warm, 1),
            "microseconds_per_turn": round(warm / (20 * n) * 1e6, 1),
            "first_time_microseconds_per_turn": round(cold / (20 * n) * 1e6, 1),
            "peak_mb": round(peak / 1024),
            "kb_per_debate": round((peak - runs[n][0]["before_kb"]) / n, 1),
        }
        rows.append(row)
        print(
            f"{n:>9}  {row['debates_per_second']:>9}  {row['microseconds_per_turn']:>7}  "
            f"{row['first_time_microseconds_per_turn']:>10}  {row['peak_mb']:>7}",
            flush=True,
        )
    flatness = rows[-1]["microseconds_per_turn"] / rows[0]["microseconds_per_turn"]
    print(f"time per turn, largest against smallest: {flatness:.2f}x")
    shares = profile()
    print("where the time goes (profiled):")
    for part, share in shares.items():
        print(f"  {share:6.1%}  {part}")
    RESULTS.parent.mkdir(exist_ok=True)
    result = {
        "machine": describe(),
        "median_of": options.repeats,
        "sizes": rows,
        "largest_against_smallest": round(flatness, 3),
        "shares": {part: round(share, 3) for part, share in shares.items()},
    }
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    print(f"written to {RESULTS.relative_to(Path.cwd())}" if Path.cwd() in RESULTS.parents else "")


if __name__ == "__main__":
    main()
