"""Does a policy get better from its peers' votes alone? Self-play in the world of sums.

For every seed a base model, from it a warm start for each generation, and from that self-play by
peer-v2, by its two controls (coin: the direction of every vote is a coin flip; plurality:
solutions are paid for being common), and by peer-v1 with both of its rewards. Everything is
measured on held-out questions, before and after. A base model that cannot judge learns for longer,
and one that still cannot is not used: seeds go up until enough of them can, and all are reported.

    python labs/selfplay.py            # runs what is missing, writes labs/results/selfplay.*
    python labs/selfplay.py --seeds 5
    python labs/selfplay.py --only v1  # a second process can work beside the first
"""

import argparse
import io
import json
import time
from pathlib import Path

import numpy as np
from rich.console import Console

from rostra.cli.running import carry_out
from rostra.runs.folder import read_lines
from rostra.runs.recipe import find_recipe, read_recipe

HERE = Path(__file__).parent
GATE = 0.8
"""Of votes on prepared answers, the share that a base model must get right."""
ENDS = ("before", "after")
ARMS = {
    "peer-v2": ("sums", "peer-v2-sums", []),
    "coin": ("sums", "peer-v2-sums", ["rewards.control=coin"]),
    "plurality": ("sums", "peer-v2-sums", ["rewards.control=plurality"]),
    "peer-v1 win_rate": ("sums-v1", "peer-v1-sums", ["protocol.reward=win_rate"]),
    "peer-v1 win_minus_loss": ("sums-v1", "peer-v1-sums", ["protocol.reward=win_minus_loss"]),
}
PREPARED = "votes right, prepared answers"
ROWS = {
    "sampled": "eval/direct/sampled",
    "greedy": "eval/direct/greedy",
    "greedy, carry": "eval/direct/greedy_carry",
    "greedy, no carry": "eval/direct/greedy_no_carry",
    "greedy, mode was wrong": "eval/direct/greedy_mode_wrong",
    "format": "eval/direct/format",
    "pass@5": "eval/direct/pass@5",
    "vote@5": "eval/direct/vote@5",
    "votes right": "eval/debate/vote_truth_accuracy",
    PREPARED: "eval/prepared/vote_truth_accuracy",
    "judge against truth": "eval/debate/judge_truth",
    "ties on equal answers": "eval/debate/ties_on_equal",
    "lower index wins": "eval/debate/lower_index_wins",
    "first shown wins": "eval/debate/first_shown_wins",
    "format in debates": "eval/debate/format",
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--only", default="", help="run arms whose name has this, write nothing")
    options.add_argument("--runs", type=Path, default=HERE / "runs" / "selfplay")
    given = options.parse_args()
    chosen = {arm: parts for arm, parts in ARMS.items() if given.only in arm}
    tried = {
        kind: bases(given.runs, kind, given.seeds)
        for kind in dict.fromkeys(kind for kind, *_ in chosen.values())
    }
    for arm, (kind, recipe, settings) in chosen.items():
        for seed in passing(tried[kind]):
            start, own = given.runs / f"warm-{kind}-{seed}", place(given.runs, arm, seed)
            begin = f"model.start={base_of(given.runs, kind, seed)}"
            finish(f"warm-{kind}", [f"folder={start}", f"seed={seed}", begin])
            finish(recipe, [f"folder={own}", f"seed={seed}", f"model.start={start}", *settings])
    if given.only:
        return
    found: dict[str, list[dict]] = {
        arm: [
            {"seed": seed, **result(place(given.runs, arm, seed))} for seed in passing(tried[kind])
        ]
        for arm, (kind, *_) in ARMS.items()
    }
    write(found, tried)
    print(table(found), contrasts(found), gated(tried), sep="\n")


Tried = dict[int, list[float]]
"""By seed: the votes on prepared answers that a base model got right, and again after longer."""


def bases(runs: Path, kind: str, wanted: int) -> Tried:
    """Base models of one seed after the other, until as many as wanted can judge. One that cannot
    learns for longer, once."""
    tried: Tried = {}
    while len(passing(tried)) < wanted:
        seed = len(tried)
        first, again = runs / f"base-{kind}-{seed}", runs / f"base-{kind}-longer-{seed}"
        begin = []
        if kind == "sums-v1":
            # The base of the first generation is that of the second, taught another form.
            begin = [f"model.start={base_of(runs, 'sums', seed)}"]
        finish(f"base-{kind}", [f"folder={first}", f"seed={seed}", *begin])
        tried[seed] = [judges(first)]
        if tried[seed][0] < GATE:
            longer = "base-sums-longer" if kind == "sums" else "base-sums-v1"
            finish(longer, [f"folder={again}", f"seed={seed}", f"model.start={first}"])
            tried[seed].append(judges(again))
    return tried


def passing(tried: Tried) -> list[int]:
    """The seeds whose base model can judge."""
    return [seed for seed, found in tried.items() if found[-1] >= GATE]


def base_of(runs: Path, kind: str, seed: int) -> Path:
    """The base model of a seed that is used."""
    longer = runs / f"base-{kind}-longer-{seed}"
    return longer if longer.exists() else runs / f"base-{kind}-{seed}"


def judges(folder: Path) -> float:
    evals = [line for line in read_lines(folder / "metrics.jsonl") if line["kind"] == "eval"]
    return float(evals[-1][ROWS[PREPARED]])


def gated(tried: dict[str, Tried]) -> str:
    lines = [f"\nbase models: votes on prepared answers that were right; from {GATE} on it is used"]
    for kind, seeds in tried.items():
        for seed, found in seeds.items():
            each = ", after longer ".join(f"{value:.3f}" for value in found)
            used = "" if seed in passing(seeds) else " (not used)"
            lines.append(f"  {kind:8} seed {seed}: {each}{used}")
    return "\n".join(lines)


def place(runs: Path, arm: str, seed: int) -> Path:
    return runs / f"{arm.replace(' ', '-')}-{seed}"


def finish(name: str, settings: list[str]) -> None:
    """Runs a recipe unless it was run to its end before."""
    recipe = read_recipe(find_recipe(name), settings)
    folder = Path(recipe.folder)
    if not (folder / "checkpoints" / f"step-{recipe.steps:06d}.json").exists():
        print(f"{time.strftime('%H:%M:%S')} {folder.name}", flush=True)
        screen = Console(file=io.StringIO())
        carry_out(recipe, screen, resume=folder.exists(), overwrite=False)


def result(folder: Path) -> dict:
    lines = read_lines(folder / "metrics.jsonl")
    evals = [line for line in lines if line["kind"] == "eval"]
    train = [line for line in lines if line["kind"] == "train"]
    return {
        "before": {row: evals[0].get(key) for row, key in ROWS.items()},
        "after": {row: evals[-1].get(key) for row, key in ROWS.items()},
        "curve": {
            row: [[line["step"], line.get(key)] for line in evals] for row, key in ROWS.items()
        },
        "judge reward": [train[i].get("reward/judge/mean") for i in (0, -1)],
        "decided votes": [
            mean_of(part, "health/decided_votes") for part in (train[:6], train[-6:])
        ],
        "seconds": sum(line["seconds"] for line in train),
        "skipped": sum(line["skipped"] for line in train),
        "failed": sum(line["debates/failed"] for line in train),
    }


def mean_of(lines: list[dict], key: str) -> float | None:
    known = [line[key] for line in lines if line.get(key) is not None]
    return float(np.mean(known)) if known else None


def mean_interval(values: list[float | None]) -> tuple[float, float]:
    """The mean over seeds, and half of its 95% interval by Student's t."""
    known = np.array([v for v in values if v is not None], float)
    if not len(known):
        return float("nan"), float("nan")
    t = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36}.get(len(known), 2.0)
    half = t * known.std(ddof=1) / np.sqrt(len(known)) if len(known) > 1 else float("nan")
    return float(known.mean()), float(half)


def table(found: dict[str, list[dict]]) -> str:
    """Before, after and change for every arm, each with its interval over seeds."""
    lines = []
    for row in ROWS:
        lines.append(f"\n{row}")
        for arm, runs in found.items():
            pairs = [(run["before"][row], run["after"][row]) for run in runs]
            before, after = (mean_interval([pair[i] for pair in pairs]) for i in (0, 1))
            change = mean_interval([b - a for a, b in pairs if a is not None and b is not None])
            cells = [
                f"{mean:6.3f}" + ("" if np.isnan(half) else f" ±{half:.3f}")
                for mean, half in (before, after, change)
            ]
            each = " ".join(f"{b - a:+.2f}" if None not in (a, b) else "·" for a, b in pairs)
            lines.append(f"  {arm:24} {cells[0]}  -> {cells[1]}   {cells[2]}   ({each})")
    return "\n".join(lines)


def contrasts(found: dict[str, list[dict]]) -> str:
    """What peer-v2 gained above its controls, paired by seed; and accuracy where form was right."""
    lines = ["\npeer-v2 above its control, change by change"]
    for row in ("sampled", "greedy", "greedy, mode was wrong"):
        for control in ("coin", "plurality"):
            both = zip(found["peer-v2"], found[control], strict=True)
            gains = [[run["after"][row] - run["before"][row] for run in pair] for pair in both]
            mean, half = mean_interval([ours - theirs for ours, theirs in gains])
            lines.append(f"  {row:24} {control:10} {mean:6.3f} ±{half:.3f}")
    lines.append("\nvotes that take a side, in the first six steps and in the last six")
    for arm, runs in found.items():
        ends = [mean_interval([run["decided votes"][at] for run in runs]) for at in (0, 1)]
        cells = [f"{mean:6.3f} ±{half:.3f}" for mean, half in ends]
        lines.append(f"  {arm:24} {cells[0]}  -> {cells[1]}")
    lines.append("\nsampled, of replies in the right form")
    for arm, runs in found.items():
        shares = [[run[at]["sampled"] / run[at]["format"] for run in runs] for at in ENDS]
        cells = [f"{mean:6.3f} ±{half:.3f}" for mean, half in map(mean_interval, shares)]
        lines.append(f"  {arm:24} {cells[0]}  -> {cells[1]}")
    return "\n".join(lines)


def write(found: dict[str, list[dict]], tried: dict[str, Tried]) -> None:
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    data = {**found, "bases": tried}
    (results / "selfplay.json").write_text(json.dumps(data, indent=1) + "\n")
    text = f"{table(found)}\n{contrasts(found)}\n{gated(tried)}\n".lstrip()
    (results / "selfplay.txt").write_text(text)
    plot(found, results / "selfplay.png")


def plot(found: dict[str, list[dict]], target: Path) -> None:
    """One panel for each measure, one line for each seed, one colour for each arm."""
    from matplotlib.figure import Figure

    rows = ("sampled", "greedy", "greedy, mode was wrong", "format", "votes right", PREPARED)
    colours = ("#0072B2", "#999999", "#E69F00", "#009E73", "#CC79A7")
    figure = Figure(figsize=(12, 6.5), layout="constrained")
    for row, axes in zip(rows, figure.subplots(2, 3).flat, strict=True):
        for colour, (arm, runs) in zip(colours, found.items(), strict=True):
            for index, run in enumerate(runs):
                curve = [(step, value) for step, value in run["curve"][row] if value is not None]
                share = [step / max(run["curve"][row][-1][0], 1) for step, _ in curve]
                label = arm if index == 0 else None
                axes.plot(share, [v for _, v in curve], color=colour, label=label, alpha=0.8)
        axes.set(title=row, ylim=(0, 1.02), xlabel="share of self-play done")
        axes.grid(alpha=0.3)
    figure.axes[0].legend(fontsize=8)
    figure.savefig(target, dpi=110)


if __name__ == "__main__":
    main()
