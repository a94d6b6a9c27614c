"""What stands around the loop, each tried for real in the world of sums.

mixing         peer votes alone, mixed with 30% of correctness, and correctness alone
curriculum     sums without a carry first, then all, against all from the start
resampling     half of the questions from those still open, by agreement alone, against none
bootstrapping  careless judges and answers paid at once: with a guide whose weight decays, without
               one, and judges first
distillation   direct answers learned from the winners of debates the warm start had with itself,
               and from the right ones
roles          the trained policy in every seat against the one it began as
adaptive       more rounds and seats where agents disagree, against the same for everybody

It begins with what `labs/selfplay.py` leaves behind.

    python labs/around.py                  # runs what is missing, writes labs/results/around.*
    python labs/around.py --only mixing    # one part, and writes nothing
"""

import argparse
import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from selfplay import base_of, bases, finish, mean_interval, passing

from rostra.cli.subject import recipe_of
from rostra.evals.answering import answer_many
from rostra.evals.modes import Examination, examine
from rostra.evals.store import EvalFolder
from rostra.learn.setup import make_engine, make_task
from rostra.players.model import ModelPlayer
from rostra.runs.folder import read_lines
from rostra.runs.recipe import find_recipe, read_recipe, to_toml

HERE = Path(__file__).parent
RUNS = HERE / "runs" / "around"
SELFPLAY = HERE / "runs" / "selfplay"

MEASURES = {
    "sampled": "eval/direct/sampled",
    "greedy": "eval/direct/greedy",
    "greedy, mode was wrong": "eval/direct/greedy_mode_wrong",
    "format": "eval/direct/format",
    "votes right, prepared": "eval/prepared/vote_truth_accuracy",
}
Found = dict[str, dict[str, list[float]]]
"""By arm and measure: one number for each seed."""


@cache
def seeds() -> tuple[int, ...]:
    """Those of the self-play lab, made now if it was not run before."""
    return tuple(passing(bases(SELFPLAY, "sums", 3)))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--only", choices=PARTS, help="run one part, write nothing")
    given = options.parse_args()
    chosen = [given.only] if given.only else list(PARTS)
    found = {name: PARTS[name]() for name in chosen}
    text = "\n".join(show(name, part) for name, part in found.items())
    print(text)
    if not given.only:
        results = HERE / "results"
        (results / "around.json").write_text(json.dumps(found, indent=1) + "\n")
        (results / "around.txt").write_text(text + "\n")
        plot(found["mixing"], results / "mixing.png")


def show(name: str, part: Found) -> str:
    lines = [name]
    for arm, measures in part.items():
        for measure, values in measures.items():
            mean, half = mean_interval(values)
            # Two seeds say nothing about their spread.
            spread = f" ±{half:.3f}" if len(values) > 2 else ""
            each = " ".join(f"{value:.3f}" for value in values)
            lines.append(f"  {arm:34} {measure:34} {mean:8.3f}{spread}  ({each})")
    return "\n".join(lines) + "\n"


def rows(folder: Path, kind: str) -> list[dict]:
    return [line for line in read_lines(folder / "metrics.jsonl") if line["kind"] == kind]


def ends(folders: Sequence[Path]) -> dict[str, list[float]]:
    """What the first and the last evaluation of runs found."""
    found = {}
    for name, key in MEASURES.items():
        for when, at in (("before", 0), ("after", -1)):
            values = [rows(folder, "eval")[at].get(key) for folder in folders]
            if None not in values:
                found[f"{name}, {when}"] = values
    return found


def play(name: str, seed: int, settings: Sequence[str] = (), start: Path | None = None) -> Path:
    """Self-play by peer-v2 from a warm start, unless it was played before."""
    folder = RUNS / f"{name}-{seed}"
    begin = start or SELFPLAY / f"warm-sums-{seed}"
    finish("peer-v2-sums", [f"folder={folder}", f"seed={seed}", f"model.start={begin}", *settings])
    return folder


def variant(recipe: str, name: str, text: str) -> str:
    """A recipe with something appended or replaced, as a file of its own; its path."""
    file = RUNS / "recipes" / f"{name}.toml"
    (file.parent / "prompts").mkdir(parents=True, exist_ok=True)
    whole = read_recipe(find_recipe(recipe))
    for prompt, words in whole.protocol.prompts.items():
        (file.parent / "prompts" / f"{prompt}.md").write_text(words)
    plain = to_toml(replace(whole, loop="selfplay", phases=()))
    kept = [line for line in plain.splitlines() if line not in ("phases = []", "stages = []")]
    kept[0] = f'loop = "{whole.loop}"'
    file.write_text("\n".join(kept) + text)
    return str(file)


# The parts


def mixing() -> Found:
    arms = {"peer votes alone": 0.0, "0.7 votes, 0.3 truth": 0.3, "truth alone": 1.0}
    return {
        arm: ends(
            [
                play(f"truth-{share}", seed, [f"rewards.truth={share}"])
                if share
                else SELFPLAY / f"peer-v2-{seed}"
                for seed in seeds()
            ]
        )
        for arm, share in arms.items()
    }


STAGES = """
[[stages]]
steps = 16
threshold = 0.9
window = 3

[stages.task]
name = "sums"

[stages.task.only]
carry = false

[[stages]]

[stages.task]
name = "sums"
"""


def curriculum() -> Found:
    two = seeds()[:2]
    staged = []
    for seed in two:
        folder = RUNS / f"staged-{seed}"
        begin = f"model.start={SELFPLAY / f'warm-sums-{seed}'}"
        recipe = variant("peer-v2-sums", "staged", STAGES)
        finish(recipe, [f"folder={folder}", f"seed={seed}", begin])
        staged.append(folder)
    found = {
        "sums without a carry first": ends(staged),
        "all from the start": ends([SELFPLAY / f"peer-v2-{seed}" for seed in two]),
    }
    # The first evaluation of the staged runs is of the first stage's questions.
    first = found["sums without a carry first"]
    for name in [name for name in first if name.endswith("before")]:
        del first[name]
    first["steps of the first stage"] = [
        float(sum(row["stage"] == 0 for row in rows(folder, "train"))) for folder in staged
    ]
    return found


def resampling() -> Found:
    found: Found = {}
    two = seeds()[:2]
    for arm, folders in (
        ("half from open questions", [play("open", s, ["resample=0.5"]) for s in two]),
        ("in order", [SELFPLAY / f"peer-v2-{seed}" for seed in two]),
    ):
        mixed = [
            float(np.mean([row["env/all/by_group/frac_mixed"] for row in rows(f, "train")[12:]]))
            for f in folders
        ]
        found[arm] = {"groups with a signal from step 13": mixed, **ends(folders)}
    return found


def bootstrapping() -> Found:
    found: Found = {"judges first": ends([SELFPLAY / f"peer-v2-{seed}" for seed in seeds()])}
    for arm, name, weight in (("at once, a guide", "guided", 1.0), ("at once", "unguided", 0.0)):
        folders = []
        for seed in seeds():
            settings = ["rewards.judge_first=0"]
            if weight:
                guide = f"bootstrap.guide={base_of(SELFPLAY, 'sums', seed)}"
                settings += [guide, f"bootstrap.weight={weight}", "bootstrap.until=16"]
            folders.append(play(name, seed, settings))
        found[arm] = ends(folders)
    return found


def distillation() -> Found:
    """Debates of the warm start with itself about training questions; then direct answers."""
    two = seeds()[:2]
    found: Found = {"before": {}}
    for seed in two:
        debates(seed)
    starts = [rows(SELFPLAY / f"peer-v2-{seed}", "eval")[0] for seed in two]
    # Which modes were wrong is another question after every warm start.
    measures = {name: key for name, key in MEASURES.items() if "mode" not in name}
    found["before"] = {name: [row[key] for row in starts] for name, key in measures.items()}
    for choose in ("winners", "right", "all"):
        folders = []
        for seed in two:
            phase = (
                f'\n[[phases]]\nkind = "stored"\nsteps = 80\ndebates = 24\nlearning_rate = 3e-4\n'
                f'streams = ["gen"]\nchoose = "{choose}"\npath = "{debates(seed)}"\n'
            )
            folder = RUNS / f"distil-{choose}-{seed}"
            recipe = variant("warm-sums", f"distil-{choose}-{seed}", phase)
            begin = f"model.start={SELFPLAY / f'warm-sums-{seed}'}"
            finish(recipe, [f"folder={folder}", f"seed={seed}", begin])
            folders.append(folder)
        found[f"learned from: {choose}"] = {
            name: [rows(folder, "eval")[-1][key] for folder in folders]
            for name, key in measures.items()
        }
    return found


def debates(seed: int) -> Path:
    folder = RUNS / f"debates-{seed}"
    if not (folder / "results.json").exists():
        asyncio.run(examined(SELFPLAY / f"warm-sums-{seed}", folder, "debate", 600, "train"))
    return folder


async def examined(
    run: Path, folder: Path, mode: str, count: int, part: str, opponent: Path | None = None
) -> dict[str, float]:
    recipe = recipe_of(str(run), recipe="peer-v2-sums")
    task = make_task(recipe.task)
    exam = Examination(task, task.sample(part, 0, count), recipe.protocol, concurrency=320)
    players = {"policy": await player(run)}
    if opponent:
        players["opponent"] = await player(opponent)
    shelf = EvalFolder.open(
        folder, {"subject": str(run), "modes": [mode]}, resume=True, overwrite=False
    )
    try:
        found = await examine(mode, exam, players, shelf)
        shelf.write({mode: found.rows}, {mode: found.measures})
    finally:
        shelf.close()
    return {name: measure.mean for name, measure in found.measures.items()}


async def player(run: Path) -> ModelPlayer:
    engine = make_engine(recipe_of(str(run), recipe="peer-v2-sums"), None)
    return ModelPlayer(await engine.policy(), engine.chat)


def roles() -> Found:
    found: Found = {}
    for arm, name in (("after self-play", "peer-v2"), ("before", "warm-sums")):
        values = []
        for seed in seeds():
            run, other = SELFPLAY / f"{name}-{seed}", SELFPLAY / f"warm-sums-{seed}"
            place = RUNS / f"roles-{name}-{seed}"
            values.append(asyncio.run(examined(run, place, "roles", 135, "test", other)))
        found[f"{arm}, against the warm start"] = {
            label: [value[key] for value in values]
            for label, key in (
                ("its answers right", "accuracy"),
                ("answers of its opponents right", "opponents"),
                ("votes won", "win_rate"),
            )
        }
    return found


def adaptive() -> Found:
    found: Found = {}
    arms: dict[str, dict] = {
        "plurality of 5": {"choose": "plurality", "adaptive": False},
        "votes, ballot where they disagree": {"choose": "votes", "adaptive": False},
        "votes, and more seats": {"choose": "votes", "adaptive": True, "max_rounds": 1},
        "plurality, more rounds and seats": {"choose": "plurality", "adaptive": True},
    }
    for arm, settings in arms.items():
        seen = [asyncio.run(answered(seed, settings)) for seed in seeds()]
        found[arm] = {name: [one[name] for one in seen] for name in seen[0]}
    return found


async def answered(seed: int, settings: dict) -> dict[str, float]:
    recipe = recipe_of(str(SELFPLAY / f"warm-sums-{seed}"), recipe="peer-v2-sums")
    task = make_task(recipe.task)
    rules = replace(recipe.protocol, stop_on_agreement=1.0)
    questions = list(task.test)
    speaker = await player(SELFPLAY / f"warm-sums-{seed}")
    answers = await answer_many(questions, speaker, rules, seed=seed, **settings)
    pairs = [
        (q, f"\\boxed{{{a.answer}}}" if a.answer else None)
        for q, a in zip(questions, answers, strict=True)
    ]
    agreed = [a.ended == "agreement" and len(a.transcripts) == 1 and a.rounds == 1 for a in answers]
    tokens = np.array([a.tokens for a in answers], float)
    return {
        "right": float(np.mean(task.grade(pairs))),
        "tokens for a question": float(tokens.mean()),
        "tokens where all agreed at once": float(tokens[np.array(agreed)].mean()),
        "tokens where they did not": float(tokens[~np.array(agreed)].mean()),
    }


PARTS: dict[str, Callable[[], Found]] = {
    "mixing": mixing,
    "curriculum": curriculum,
    "resampling": resampling,
    "bootstrapping": bootstrapping,
    "distillation": distillation,
    "roles": roles,
    "adaptive": adaptive,
}


def plot(found: Found, target: Path) -> None:
    """Before and after for each share of truth, with intervals over seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    names = ("sampled", "greedy", "votes right, prepared")
    for name, axes in zip(names, figure.subplots(1, 3), strict=True):
        for place, measures in enumerate(found.values()):
            for when, colour in (("before", "#999999"), ("after", "#0072B2")):
                mean, half = mean_interval(measures[f"{name}, {when}"])
                axes.errorbar([place], [mean], [half], fmt="o", color=colour, capsize=4)
        axes.set(title=name, ylim=(0, 1.02))
        axes.set_xticks(range(len(found)), [arm.replace(", ", ",\n") for arm in found], fontsize=8)
        axes.grid(alpha=0.3)
    figure.suptitle("Truth mixing: before (grey) and after self-play (blue), three seeds")
    figure.savefig(target, dpi=110)


if __name__ == "__main__":
    main()
