"""How many agents does a judge reward need? A simulation of judges of known skill.

Claim: nobody judges himself, so a pair of answers has N - 2 judges. Measured against the majority
of all judges (the published rule), a decided vote is then always +1 at N = 3 and +1 or 0 at N = 4;
real dissent starts at N = 5. Measured against the others only (leave one out), there is no signal
at N = 3. No model, no sampling: only the reward functions, on votes whose quality is known.
"""

import argparse
import json
from itertools import combinations
from pathlib import Path

import numpy as np

from rostra import TurnId, Vote
from rostra.debate.peer import Consensus
from rostra.rewards.streams import judge_rewards

RESULTS = Path(__file__).parent / "results" / "judge_signal.json"
SIZES = (3, 4, 5, 7, 9)
RULES: tuple[Consensus, ...] = ("majority", "leave_one_out")
SKILL = (0.55, 0.95)
"""Judges differ: how often each is right is drawn from this range."""


def ballot(n: int, rng: np.random.Generator) -> tuple[list[Vote], np.ndarray]:
    """Every agent compares all pairs of others; the agent with the lower number is better."""
    skill = rng.uniform(*SKILL, n)
    votes = []
    for judge in range(n):
        for a, b in combinations([i for i in range(n) if i != judge], 2):
            better, worse = (a, b) if rng.random() < skill[judge] else (b, a)
            votes.append(Vote(TurnId(judge, 1), TurnId(better, 0), ">", TurnId(worse, 0)))
    return votes, skill


def study(n: int, rule: Consensus, debates: int, seed: int) -> dict[str, object]:
    """Marks of single votes, and whether a judge's reward says how good a judge he is."""
    rng = np.random.default_rng([seed, n])
    marks: set[int] = set()
    rewards: list[float] = []
    skills: list[float] = []
    for _ in range(debates):
        votes, skill = ballot(n, rng)
        for turn, reward in judge_rewards(votes, rule).items():
            rewards.append(reward)
            skills.append(skill[turn.seat])
        marks |= {round(r) for r in single_marks(votes, rule)}
    spread = float(np.std(rewards)) if rewards else 0.0
    return {
        "agents": n,
        "rule": rule,
        "marks": sorted(marks),
        "signal": len(rewards) / (debates * n),
        "mean": float(np.mean(rewards)) if rewards else None,
        "correlation": float(np.corrcoef(rewards, skills)[0, 1]) if spread > 0 else None,
    }


def single_marks(votes: list[Vote], rule: Consensus) -> list[float]:
    """The mark of every single vote: a judge's other votes, on other pairs, are left aside."""
    marks = []
    pairs: dict[frozenset[TurnId], list[Vote]] = {}
    for vote in votes:
        pairs.setdefault(frozenset((vote.a, vote.b)), []).append(vote)
    for on_pair in pairs.values():
        marks += judge_rewards(on_pair, rule).values()
    return marks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--debates", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rows = [study(n, rule, options.debates, options.seed) for rule in RULES for n in SIZES]
    print(
        f"{'rule':<14} {'N':>2}  {'marks':<12} {'signal':>6}  {'mean':>6}  {'corr. with skill':>16}"
    )
    for row in rows:
        shown = {k: "none" if row[k] is None else f"{row[k]:+.3f}" for k in ("mean", "correlation")}
        marks = " ".join(f"{m:+d}" for m in row["marks"]) or "none"
        print(
            f"{row['rule']:<14} {row['agents']:>2}  {marks:<12} {row['signal']:>6.0%}  "
            f"{shown['mean']:>6}  {shown['correlation']:>16}"
        )
    RESULTS.parent.mkdir(exist_ok=True)
    result = {"debates": options.debates, "seed": options.seed, "rows": rows}
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
