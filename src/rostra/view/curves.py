"""Which curves a report draws, and how to read them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from rostra.view import page
from rostra.view.plots import Card, Panel, Plot, Row, Series, curve, draw

_TRAIN = re.compile(r"train_(.+)/([^/]+)")
_ROUND = re.compile(r"[0-9]{1,9}")

_TRUTH = {"correct": "in training debates", "format": "in the form asked for"}
_DIRECT = {
    "direct/sampled": "sampled",
    "direct/greedy": "greedy",
    "direct/greedy_mode_wrong": "greedy, where the mode was wrong",
    "direct/format": "in the form asked for",
}
_VOTES = {
    "health/vote_truth_accuracy": "for the right answer",
    "health/ties_on_equal": "ties on equal answers",
    "health/lower_index_wins": "for the lower index",
    "health/first_shown_wins": "for the first shown",
}
_DEBATE = {
    "debate/vote_truth_accuracy": "for the right answer, held out",
    "prepared/vote_truth_accuracy": "for the right one of prepared answers",
    "debate/ties_on_equal": "ties on equal answers, held out",
}
_FORM = {"parse_error": "malformed", "v2/missing_comparisons": "no comparisons"}
_KL = {"optim/kl_sample_train_v1": "KL, v1", "optim/kl_sample_train_v2": "KL, v2"}
_MIXED = "env/all/by_group/frac_mixed"
_FLAT = {"env/all/flat_groups": "groups without signal"}


class _Numbers:
    """The curves of a run by the names of its metrics, some of which hold the name of a persona, a
    round, a seat or a dataset."""

    def __init__(self, train: Sequence[Row], evals: Sequence[Row]) -> None:
        self.train = train
        self._evals = evals
        self._names = list(dict.fromkeys(name for row in train for name in row.values))

    def lines(self, names: Mapping[str, str]) -> list[Series]:
        return [curve(self.train, key, name) for key, name in names.items()]

    def held_out(self, names: Mapping[str, str]) -> list[Series]:
        return [curve(self._evals, f"eval/{key}", n, "points") for key, n in names.items()]

    def has(self, name: str) -> bool:
        return name in self._names

    def by(self, reward: str, what: str) -> list[Series]:
        start = f"{reward}/by_{what}/"
        names = [name for name in self._names if name.startswith(start)]
        if what != "persona":  # numbers, and as text 10 would come before 2
            names.sort(key=lambda name: (len(name), name))
        return [curve(self.train, n, self._label(n.removeprefix(start), what)) for n in names]

    def _label(self, part: str, what: str) -> str:
        if what != "round" or not _ROUND.fullmatch(part):
            return f"seat {part}" if what == "seat" else part
        ballot = part not in self._solved() and any(int(r) < int(part) for r in self._solved())
        return "ballot" if ballot else f"round {int(part) + 1}"

    def _solved(self) -> list[str]:
        """Rounds with solutions. What is judged after them is the closing ballot."""
        start = "reward/gen/by_round/"
        found = (n.removeprefix(start) for n in self._names if n.startswith(start))
        return [part for part in found if _ROUND.fullmatch(part)]

    def truth(self, *measures: str) -> list[Series]:
        """Measures of `train_{dataset}/`; `pass@` stands for any k."""
        found = [(n, m[1], m[2]) for n in self._names if (m := _TRAIN.fullmatch(n))]
        several = len({dataset for _, dataset, _ in found}) > 1
        return [
            curve(
                self.train,
                name,
                _TRUTH.get(measure, measure) + (f", {dataset}" if several else ""),
                "faint" if measure == "correct" else "line",
            )
            for name, dataset, measure in found
            if any(measure == m or (m[-1] == "@" and measure.startswith(m)) for m in measures)
        ]


def _outcomes(numbers: _Numbers) -> list[Plot]:
    """Whether it learns."""
    return [
        Plot(
            "Learning curves",
            "Accuracy on questions held back from training should rise; bands are 95% intervals, "
            "the faint line is the answers given in training.",
            [
                Panel(
                    "answers right",
                    numbers.held_out(_DIRECT) + numbers.truth("correct"),
                    percent=True,
                )
            ],
        ),
        Plot(
            "Votes",
            "Votes teach only while they prefer right answers to wrong ones more often than the "
            "dotted line of chance; a share that drifts towards 100% by place or index is a habit.",
            [
                Panel(
                    "share of votes",
                    numbers.lines(_VOTES) + numbers.held_out(_DEBATE),
                    percent=True,
                    level=0.5,
                )
            ],
        ),
    ]


def _rewards(numbers: _Numbers) -> list[Plot]:
    """Who is rewarded, and when."""
    # Seats and personas go together, so one of the two says it all.
    personas = numbers.by("reward/gen", "persona")
    return [
        Plot(
            "Solutions, by persona",
            "Gen reward: a persona above zero gives solutions that the others prefer.",
            [Panel("gen reward", personas, level=0)],
        ),
        Plot(
            "Judgements, by persona",
            "Judge reward: a persona above zero votes as the others do.",
            [Panel("judge reward", numbers.by("reward/judge", "persona"), level=0)],
        ),
        Plot(
            "Rewards, by round",
            "Rounds that come apart say when solutions and judgements are good; the mean over all "
            "is constant by construction.",
            [
                Panel("gen", numbers.by("reward/gen", "round"), level=0),
                Panel("judge", numbers.by("reward/judge", "round"), level=0),
            ],
        ),
        Plot(
            "Rewards, by seat",
            "All seats are one policy, so a seat that stays above the others is favoured by its "
            "place.",
            [
                Panel("gen", [] if personas else numbers.by("reward/gen", "seat"), level=0),
                Panel("votes", numbers.by("pairwise_reward", "seat"), level=0),
            ],
        ),
    ]


def _conduct(numbers: _Numbers) -> list[Plot]:
    """How the agents speak."""
    return [
        Plot(
            "Answers in training",
            "How the agents of a debate do together: one of them right, most of them right, and "
            "their most common answer right.",
            [Panel("debates", numbers.truth("pass@", "cons@", "vote@"), percent=True)],
        ),
        Plot(
            "Form",
            "Answers in the form asked for should approach 100%, malformed turns and turns without "
            "comparisons zero; fewer votes are less to learn from.",
            [
                Panel("turns", numbers.truth("format") + numbers.lines(_FORM), percent=True),
                Panel("votes", numbers.lines({"v2/total_votes": "votes a debate"})),
            ],
        ),
    ]


def _machinery(numbers: _Numbers) -> list[Plot]:
    """How the optimiser does."""
    return [
        Plot(
            "Entropy and drift",
            "Entropy that falls to nothing means that the policy stopped exploring; KL between "
            "sampler and trainer should stay near zero.",
            [
                Panel("entropy", numbers.lines({"optim/entropy": "entropy"})),
                Panel("KL", numbers.lines(_KL), level=0),
            ],
        ),
        Plot(
            "Signal",
            "Groups whose rewards are all the same teach nothing; a gradient norm that jumps is a "
            "step too large.",
            [
                Panel("groups", numbers.lines({_MIXED: "groups with signal"}), percent=True),
                Panel("flat groups", [] if numbers.has(_MIXED) else numbers.lines(_FLAT)),
                Panel("norm", numbers.lines({"optim/grad_norm": "gradient norm"})),
            ],
        ),
        Plot(
            "Schedule",
            "The learning rate as it was, and how many steps old the sampler was.",
            [
                Panel(
                    "rate", [curve(numbers.train, "optim/learning_rate", "learning rate", "points")]
                ),
                Panel("steps", numbers.lines({"staleness": "staleness"})),
            ],
        ),
        Plot(
            "Loss",
            "The loss of a warm start should fall, and level out.",
            [Panel("loss", numbers.lines({"loss": "loss"}))],
        ),
        Plot(
            "Where the time went",
            _time_caption(numbers.train),
            [Panel("seconds a step", _times(numbers.train))],
        ),
    ]


_TIMES = {"sampling": "sampling", "training": "training", "other": "other"}


def _times(train: Sequence[Row]) -> list[Series]:
    """Bars that stand on each other, so all of them have all steps."""
    keys = {f"time/{part}": name for part, name in _TIMES.items()}
    parts = {k: name for k, name in keys.items() if any(k in row.values for row in train)}
    having = [row for row in train if any(k in row.values for k in parts)]
    whole = [Row(row.step, dict.fromkeys(parts) | dict(row.values)) for row in having]
    if not parts:
        return [curve(train, "seconds", "a step", "bar")]
    return [curve(whole, key, name, "bar") for key, name in parts.items()]


def _time_caption(train: Sequence[Row]) -> str:
    spent = {name: total(train, f"time/{part}") for part, name in _TIMES.items()}
    whole = sum(spent.values())
    if not whole:
        return "The seconds that each step took."
    most = max(spent, key=lambda name: spent[name])
    return (
        f"The seconds that each step took; {most} took {spent[most] / whole:.0%} of "
        f"{page.duration(whole)} in all."
    )


_PARTS = (_outcomes, _rewards, _conduct, _machinery)


def cards(train: Sequence[Row], evals: Sequence[Row]) -> list[Card]:
    """Every plot that there are numbers for."""
    drawn = (draw(plot, f"plot{i}") for i, plot in enumerate(plots(train, evals)))
    return [card for card in drawn if card]


def plots(train: Sequence[Row], evals: Sequence[Row]) -> list[Plot]:
    """What there may be to draw. Where a stage begins, there is a line."""
    numbers = _Numbers(train, _apart(evals))
    marks = [part[0].step for part in by_stage(train)[1:]]
    return [replace(plot, marks=marks) for part in _PARTS for plot in part(numbers)]


def by_stage(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each stage of a curriculum; without one, all together."""
    return [list(part) for _, part in groupby(rows, lambda row: row.values.get("stage"))]


def _apart(evals: Sequence[Row]) -> list[Row]:
    """With a gap between stages, which ask other questions."""
    found: list[Row] = []
    for part in by_stage(evals):
        if found:
            found.append(Row(part[0].step, dict.fromkeys(found[-1].values)))
        found += part
    return found


def total(rows: Sequence[Row], key: str) -> float:
    return sum(row.values.get(key) or 0.0 for row in rows)
