"""`rostra debate` as a way to get an answer."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import rostra
from rostra.debate.peer import peer_v2
from rostra.engines.scripted import Prompt, ScriptedEngine
from rostra.runs.recipe import to_toml
from rostra.runs.settings import ModelSettings, Recipe
from tests.cli.inside import inside

ASK = "What is 17 * 24?"
SIZE = re.compile(r"one of (\d+) agents")
NAME = re.compile(r"You are Agent (\d+)")
TAGS = re.compile(r"<(\w+)>")
NOTE = "note: a rehearsal by scripts; name a model with --model\n"
"""So that nobody takes the answer for a model's."""


@dataclass(frozen=True)
class Done:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def last(self) -> str:
        return self.out.splitlines()[-1]


def debate(*arguments: object, command: str = "debate", ask: str = ASK) -> Done:
    """`rostra debate` in this process, about one question, with standard output in a pipe."""
    asked = [ask] if command == "debate" else []
    done = inside(command, *asked, *arguments)
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int, int], str]], None]:
    """Has each seat of a debate with so many agents answer by a table, in every round."""

    def put(table: Callable[[int, int], str]) -> None:
        def reply(asked: Prompt, seed: int) -> str:
            seat, agents = (int(found[1]) for p in (NAME, SIZE) if (found := p.search(asked.text)))
            last = asked.last
            tags = TAGS.findall(last[last.rfind("Reply with") :])
            bodies = {"solution": table(seat, agents)}
            return "\n".join(f"<{tag}>{bodies.get(tag, 'N/A')}</{tag}>" for tag in tags)

        engine = ScriptedEngine(reply)
        monkeypatch.setattr("rostra.cli.debate._engine", lambda name, model: engine)

    return put


Says = Callable[[Callable[[int, int], str]], None]


def letters(table: dict[int, str]) -> Callable[[int, int], str]:
    return lambda seat, agents: f"\\boxed{{{table[agents][seat]}}}"


def test_the_answer_is_the_last_line() -> None:
    done = debate("--seed", 3)
    assert (done.code, done.err) == (0, NOTE)
    assert done.last == "Answer: 408 (5 of 5 agents, after 1 round)"
    assert done.out.splitlines()[-2] == ""
    assert done.out.count("Answer: ") == 1


def test_a_debate_ends_when_all_agents_agree(says: Says) -> None:
    says(letters({5: "aaaaa"}))
    for options in ([], ["--protocol", "peer-v2"], ["--rounds", 5]):
        done = debate(*options)
        assert "Ended after 1 round: the answers agree." in done.out
        assert done.last == "Answer: a (5 of 5 agents, after 1 round)"
    says(letters({5: "aaaab"}))
    assert debate().last == "Answer: a (4 of 5 agents, after 3 rounds)"


def wish(share: str, folder: Path) -> list[list[object]]:
    """All the ways to say when to stop."""
    file = folder / "rules.toml"
    file.write_text(f"[protocol]\nstop_on_agreement = {share}\n")
    return [["--stop-on-agreement", share], ["--set", f"stop_on_agreement={share}"],
            ["--config", file]]  # fmt: skip


def test_with_a_share_of_nothing_all_rounds_and_the_ballot_are_played(
    says: Says, tmp_path: Path
) -> None:
    says(letters({5: "aaaaa"}))
    for options in wish("0", tmp_path):
        done = debate(*options)
        assert "Ended after 3 rounds: all rounds were played." in done.out
        assert done.out.count(", ballot\n") == 5
        assert done.last == "Answer: a (5 of 5 agents, after 3 rounds)"


def test_an_adaptive_debate_that_never_stops_is_refused(tmp_path: Path) -> None:
    for options in wish("0", tmp_path):
        done = debate("--adaptive", *options)
        assert (done.code, done.out) == (2, "")
        assert "stop_on_agreement = 0: an adaptive debate goes on until agents agree" in done.err


def test_a_file_that_is_silent_about_the_end_changes_nothing(says: Says, tmp_path: Path) -> None:
    says(letters({5: "aaaaa"}))
    file = tmp_path / "rules.toml"
    file.write_text("[protocol]\nrounds = 2\n")
    assert debate("--config", file).last == "Answer: a (5 of 5 agents, after 1 round)"
    file.write_text("")
    assert debate("--config", file).last == "Answer: a (5 of 5 agents, after 1 round)"


@pytest.mark.parametrize(
    "options", [["--stop-on-agreement", "0.8"], ["--set", "stop_on_agreement=0.8"]]
)
def test_a_share_that_agrees_ends_the_debate(says: Says, options: list[str]) -> None:
    says(letters({5: "aabaa"}))
    done = debate(*options)
    assert "Ended after 1 round: the answers agree." in done.out
    assert ", round 2" not in done.out
    assert done.last == "Answer: a (4 of 5 agents, after 1 round)"


def test_an_adaptive_debate_plays_more_rounds_and_then_adds_seats(says: Says) -> None:
    says(letters({5: "abcde", 7: "aaaaabb", 9: "ccccccccc"}))
    done = debate("--adaptive", "--rounds", 1)
    assert (done.code, done.err) == (0, "")
    openings = re.findall(r"^peer-v2: (\d) seats, 2 rounds, at most (\d+) turns", done.out, re.M)
    assert openings == [("5", "15"), ("7", "21"), ("9", "27")]
    assert done.out.count("Ended after 2 rounds: all rounds were played.") == 2
    assert done.out.count("Ended after 1 round: the answers agree.") == 1
    assert done.last == "Answer: c (10 of 21 agents, after 5 rounds in 3 debates)"
    decided = debate("--adaptive", "--rounds", 1, "--max-agents", 7)
    assert decided.last == "Answer: a (6 of 12 agents, after 4 rounds in 2 debates)"


def test_the_bounds_of_an_adaptive_debate_are_kept(says: Says) -> None:
    says(letters({5: "aaaab"}))
    assert debate("--adaptive").last == "Answer: a (4 of 5 agents, after 6 rounds)"
    done = debate("--adaptive", "--max-rounds", 4)
    assert done.last == "Answer: a (4 of 5 agents, after 4 rounds)"
    done = debate("--adaptive", "--stop-on-agreement", 0.8)
    assert done.last == "Answer: a (4 of 5 agents, after 1 round)"


def test_votes_choose_where_they_are_asked_to() -> None:
    plain, votes = debate(), debate("--answer", "votes")
    assert plain.last == "Answer: 398 (2 of 5 agents, after 3 rounds)"
    assert votes.last == "Answer: 408 (preferred by votes, 2 of 5 agents, after 3 rounds)"
    assert votes.out.rpartition("Answer: ")[0] == plain.out.rpartition("Answer: ")[0]


def test_votes_that_were_not_cast_are_not_claimed(says: Says) -> None:
    says(letters({5: "aaaab"}))
    done = debate("--answer", "votes")
    assert done.last == "Answer: a (4 of 5 agents, without votes, after 3 rounds)"


def test_a_debate_without_an_answer_says_so(says: Says) -> None:
    says(lambda seat, agents: "I do not know.")
    done = debate("--rounds", 1)
    assert done.code == 0
    assert done.last == "Answer: none, because no agent gave one in a \\boxed{}"


def test_quiet_prints_the_answer_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "debate.json"
    done = debate("--quiet", "--seed", 3, "--out", file)
    assert (done.code, done.out, done.err) == (0, "408\n", NOTE)
    known = debate("--quiet", "--seed", 3, "--engine", "scripted")
    assert (known.code, known.out, known.err) == (0, "408\n", "")
    shown = debate(file, command="show")
    assert shown.last == "Answer: 408 (5 of 5 agents, after 1 round)"


def test_quiet_without_an_answer_fails_with_a_sentence(says: Says) -> None:
    says(lambda seat, agents: "I do not know.")
    done = debate("--quiet", "--rounds", 1)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("rostra: no agent gave an answer in a \\boxed{}")
    assert done.err.count("\n") == 1


HOSTILE = "\x1b[2J\u202eevil\n\tsecond line\r\x07"


@pytest.mark.parametrize("options", [[], ["--quiet"]])
def test_an_answer_is_one_line_and_steers_no_terminal(says: Says, options: list[str]) -> None:
    says(lambda seat, agents: f"\\boxed{{{HOSTILE}}}")
    done = debate("--rounds", 1, *options)
    line = done.last.removeprefix("Answer: ").partition(" (")[0]
    assert line == "\ufffd[2J\ufffdevil second line \ufffd"
    assert not set(done.out) & {"\x1b", "\x07", "\r", "\u202e"}


def test_the_answer_of_a_stored_debate_is_shown_again(tmp_path: Path) -> None:
    file = tmp_path / "debate.json"
    done = debate("--adaptive", "--out", file)
    *_, said, _, kept = done.out.splitlines()
    assert said == "Answer: 408 (5 of 5 agents, after 4 rounds)"
    assert kept == f"Kept in {file}. Look again: rostra show {file}"
    shown = debate(file, command="show")
    assert shown.last == said
    assert "Ended after 4 rounds: the answers agree." in shown.out
    assert json.loads(file.read_text())["outcome"]["ended"] == "agreement"


def test_every_debate_is_kept_in_a_file_of_its_own(says: Says, tmp_path: Path) -> None:
    says(letters({5: "abcde", 7: "aaaaaaa"}))
    file = tmp_path / "debate.json.zst"
    done = debate("--adaptive", "--rounds", 1, "--out", file)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["debate-2.json.zst", "debate.json.zst"]
    assert done.out.count("Kept in ") == 2
    assert debate(tmp_path / "debate-2.json.zst", command="show").last == (
        "Answer: a (7 of 7 agents, after 1 round)"
    )


def test_a_file_that_a_later_debate_would_replace_is_noticed_before(tmp_path: Path) -> None:
    (tmp_path / "debate-3.json").write_text("precious")
    file = tmp_path / "debate.json"
    done = debate("--adaptive", "--out", file)
    assert (done.code, done.out) == (2, "")
    assert "debate-3.json: already there" in done.err
    assert not file.exists()
    assert debate("--out", file).code == 0, "one debate needs one file"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--max-rounds", 6], "max_rounds = 6: only an adaptive debate grows; turn adaptive on"),
        (["--max-agents", 9], "max_agents = 9: only an adaptive debate grows"),
        (["--adaptive", "--max-rounds", 2], "max_rounds = 2: a debate begins with rounds = 3"),
        (["--adaptive", "--max-agents", 3], "max_agents = 3: a debate begins with agents = 5"),
        (["--stop-on-agreement", 1.5], "stop_on_agreement = 1.5: a share of the agents"),
        (["--stop-on-agreement", "all"], "'all' is not a valid float"),
        (["--answer", "vote"], "'vote' is not one of 'plurality', 'votes'"),
        (["--set", "stop_on_agrement=1"], "did you mean stop_on_agreement?"),
        (["--adaptiv"], "--adaptive"),
    ],
    ids=str,
)
def test_a_wish_that_makes_no_sense_is_one_sentence(options: list[object], says: str) -> None:
    done = debate(*options)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert done.err.count("\n") == 1


def test_a_low_share_is_warned_about() -> None:
    done = debate("--stop-on-agreement", 0.4)
    assert done.code == 0
    assert done.err.startswith("warning: stop_on_agreement = 0.4: half of the agents")


def test_added_seats_that_fail_are_told_of_and_the_answer_stands(says: Says) -> None:
    says(letters({5: "aabbc"}))
    done = debate("--adaptive", "--rounds", 1, "--quiet")
    assert (done.code, done.out) == (0, "a\n")
    assert done.err.startswith("rostra: more seats failed, so answers of fewer seats stand")
    assert done.err.count("\n") == 1


def test_a_run_is_a_model(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = debate("--model", tmp_path, "--rounds", 1)
    assert done.code == 2
    assert "not a model folder: it has no config.json" in done.err
    (tmp_path / "config.toml").write_text("")
    done = debate("--model", tmp_path, "--rounds", 1)
    assert (done.code, done.out) == (2, "")
    assert "holds no weights; give a run that has saved a checkpoint" in done.err


def test_the_shipped_weights_answer_by_votes() -> None:
    pytest.importorskip("torch")
    from rostra.runs.recipe import find_recipe

    recipes = find_recipe("peer-v2-sums").parent
    settings = ["--rounds", 1, "--set", f"prompts={recipes / 'prompts' / 'sums'}"]
    settings += ["--set", "max_tokens=64", "--set", "personas=[]", "--set", "temperature=0.5"]
    done = debate(
        "--model", recipes / "weights" / "sums", *settings, "--answer", "votes", ask="12+5"
    )
    assert done.code == 0
    assert re.fullmatch(
        r"Answer: \d+ \(preferred by votes, [1-5] of 5 agents, after 1 round\)", done.last
    )


def a_run(folder: Path) -> Path:
    """A rehearsed run with rules of its own."""
    rules = peer_v2(agents=4, rounds=1, closing_ballot=False)
    recipe = Recipe(model=ModelSettings(engine="scripted"), protocol=rules)
    (folder / "config.toml").write_text(to_toml(recipe))
    return folder


def test_a_run_debates_by_its_own_rules(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    assert "4 seats, 1 round, at most 4 turns" in debate("--model", run).out
    assert "4 seats, 2 rounds" in debate("--model", run, "--rounds", "2").out
    assert "5 seats, 3 rounds" in debate("--model", run, "--protocol", "peer-v2").out
    assert rostra.answer(ASK, model=str(run)).agents == 4
    assert rostra.answer(ASK, model=str(run), rules=peer_v2(agents=3)).agents == 3


def test_a_recipe_can_be_the_file_of_rules(tmp_path: Path) -> None:
    assert "4 seats" in debate("--config", a_run(tmp_path) / "config.toml").out
