"""The report of a run: what it says, what it leaves out, and that nothing gets out of its place."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import zstandard

from rostra.debate.judged import consultancy
from rostra.debate.peer import peer_v2
from rostra.debate.seat import Persona
from rostra.debate.transcript import Transcript
from rostra.errors import ConfigError, DataError
from rostra.players.rehearsal import rehearsal
from rostra.runs.transcripts import dumps
from rostra.view.curves import plots
from rostra.view.report import read_run, write_report
from tests.playing import MALFORMED, answer, play_judged, play_peer, play_rehearsal, question

pytest.importorskip("matplotlib")

HOSTILE = "\"'><script>alert(1)</script></style></details><img src=x onerror=alert(1)>\x1b[31m\x00&"
VOID = {"meta", "br", "path", "use"}


def train(step: int, **values: Any) -> dict[str, Any]:
    named = {name.replace("__", "/"): value for name, value in values.items()}
    return {"step": step, "kind": "train", "seconds": 2.0, "tokens": 100, **named}


def evaluated(step: int, **values: Any) -> dict[str, Any]:
    return {"step": step, "kind": "eval"} | {f"eval/direct/{n}": v for n, v in values.items()}


def run(folder: Path, lines: Sequence[dict[str, Any]], end: str = "\n") -> Path:
    folder.mkdir(exist_ok=True)
    text = "\n".join(json.dumps(line) for line in lines) + end
    (folder / "metrics.jsonl").write_text(text, "utf-8")
    return folder


def keep(folder: Path, name: str, *transcripts: Transcript) -> None:
    (folder / "transcripts").mkdir(exist_ok=True)
    text = "".join(dumps(t) + "\n" for t in transcripts)
    path = folder / "transcripts" / f"{name}.jsonl.zst"
    path.write_bytes(zstandard.compress(text.encode()))


def rehearsed(seed: int = 0, prompt: str = "What is 17 * 24?") -> Transcript:
    about = question(prompt, reference="408")
    return play_rehearsal(peer_v2(agents=3, rounds=2), rehearsal(), seed, about)


class Page(HTMLParser):
    """A page, read: whether its tags are closed in order, and the words of it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.html = path.read_text("utf-8")
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self._words: list[str] = []
        self.feed(self.html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self._words.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self._words).split())


def page(folder: Path, title: str | None = None) -> Page:
    path = write_report(folder, title)
    assert path == folder / "report.html"
    assert not list(folder.glob("*.part"))
    read = Page(path)
    assert not read.open, "all tags are closed"
    return read


def whole_run(folder: Path) -> Path:
    lines: list[dict[str, Any]] = [
        evaluated(0, **{"sampled": 0.2, "sampled/low": 0.15, "sampled/high": 0.25, "pass@8": 0.5})
    ]
    for step in range(4):
        values = {
            "reward/gen/by_persona/Synthesizer": 0.1 * step,
            "reward/judge/by_persona/Synthesizer": None if step == 2 else 0.2,
            "reward/gen/by_round/0": 0.1,
            "reward/judge/by_round/0": 0.1,
            "reward/judge/by_round/1": 0.1,
            "pairwise_reward/by_seat/0": 0.3,
            "train_sums/correct": 0.4,
            "train_sums/format": 0.9,
            "train_sums/vote@5": 0.5,
            "health/vote_truth_accuracy": 0.6,
            "parse_error": 0.1,
            "optim/entropy": 1.0,
            "optim/kl_sample_train_v1": 0.001,
            "env/all/by_group/frac_mixed": 0.9,
            "optim/grad_norm": 0.5,
            "time/sampling": 3.0,
            "time/training": 1.0,
            "debates": 8,
        }
        lines.append(train(step) | values)
    lines.append(
        evaluated(4, **{"sampled": 0.5, "sampled/low": 0.45, "sampled/high": 0.55, "pass@8": 0.45})
    )
    run(folder, lines)
    keep(folder, "step-00000", rehearsed(0), rehearsed(1), rehearsed(2))
    keep(folder, "step-00003", rehearsed(3))
    (folder / "config.toml").write_text("[protocol]\nrounds = 2\n")
    alarm = {"step": 3, "alarm": "entropy", "saw": "It fell.", "try": "less."}
    (folder / "alarms.jsonl").write_text(json.dumps(alarm) + "\n")
    return folder


def test_a_whole_run(tmp_path: Path) -> None:
    read = page(whole_run(tmp_path / "sums"))
    assert "sums 4 steps 32 debates 400 tokens 8.0 seconds 2 evaluations" in read.words
    assert "20.0% [15.0–25.0] 50.0% [45.0–55.0] +30.0 points" in read.words
    assert "Direct: pass@8 50.0% 45.0% −5.0 points" in read.words
    assert "entropy at step 3 It fell. Try: less." in read.words
    assert "[protocol] rounds = 2" in read.words
    assert "sampling took 75% of 16.0 seconds" in read.words
    titles = re.findall(r"<h3>([^<]*)</h3>", read.html)
    assert titles == [
        "Learning curves",
        "Votes",
        "Solutions, by persona",
        "Judgements, by persona",
        "Rewards, by round",
        "Rewards, by seat",
        "Answers in training",
        "Form",
        "Entropy and drift",
        "Signal",
        "Where the time went",
    ]


def test_debates_of_the_first_and_the_last_file_are_shown_and_marked(tmp_path: Path) -> None:
    read = page(whole_run(tmp_path))
    assert read.tags.count("article") == 3, "two of the first file, one of the last"
    assert "The first debates step-00000.jsonl.zst What is 17 * 24? Right answer: 408" in read.words
    assert "The last debates step-00003.jsonl.zst" in read.words
    assert "Agent 0 Methodical Analyst" in read.words
    turns = re.findall(r'class="turn".*?</h4>.*?<dd>.*?</dd>', read.html)
    solved = [(t, box[1]) for t in turns if (box := re.search(r"boxed\{(\d+)\}", t))]
    assert len(solved) == 3 * 3 * 2
    assert all(("</span> right</b></h4>" in turn) == (said == "408") for turn, said in solved)
    assert any("</span> wrong</b></h4>" in turn for turn, _ in solved)


def test_only_a_change_beyond_the_intervals_is_bold(tmp_path: Path) -> None:
    first = evaluated(-1, **{"sampled": 0.5, "sampled/low": 0.4, "sampled/high": 0.6})
    last = evaluated(9, **{"sampled": 0.55, "sampled/low": 0.45, "sampled/high": 0.65})
    read = page(run(tmp_path, [first, last]))
    assert "before training after 9 steps change" in read.words
    assert "+5.0 points" in read.words
    assert ("class", "apart") not in read.attributes
    last["eval/direct/sampled/low"] = 0.61
    assert ("class", "apart") in page(run(tmp_path, [first, last])).attributes


def test_a_stage_is_compared_with_itself_alone(tmp_path: Path) -> None:
    marks = [(0, 0, 0.9), (3, 1, 0.1), (6, 1, 0.4)]
    lines = [evaluated(step, greedy=mark) | {"stage": stage} for step, stage, mark in marks]
    lines += [train(step, stage=step // 3, optim__entropy=1.0 + step) for step in range(6)]
    read = page(run(tmp_path, lines))
    first, second = read.words.split("Before and after, stage 2")
    assert "Evaluation, stage 1" in first and "Greedy answers right 90.0%" in first
    assert "after 3 steps after 6 steps change Greedy answers right 10.0% 40.0% +30.0" in second
    kept = read_run(tmp_path)
    curves = {plot.title: plot for plot in plots(kept.train, kept.evals)}
    assert curves["Learning curves"].marks == [3]
    (greedy,) = [s for s in curves["Learning curves"].panels[0].series if s.name == "greedy"]
    assert greedy.x.tolist() == [0, 3, 3, 6] and math.isnan(greedy.y[1])  # a gap


def test_a_measure_that_is_null_or_missing_is_a_dot(tmp_path: Path) -> None:
    read = page(run(tmp_path, [evaluated(0, sampled=None), evaluated(3, sampled=0.5, greedy=0.5)]))
    assert "Sampled answers right · 50.0% ·" in read.words
    assert "Greedy answers right · 50.0% ·" in read.words


def test_evaluations_of_one_step_in_two_lines_are_one(tmp_path: Path) -> None:
    debated = {"step": 0, "kind": "eval", "eval/debate/vote_truth_accuracy": 0.7}
    read = page(run(tmp_path, [evaluated(0, sampled=0.25), debated]))
    assert "before training Sampled answers right 25.0% Votes for the right answer 70.0%" in (
        read.words
    )


def test_an_empty_run_says_what_there_is(tmp_path: Path) -> None:
    read = page(run(tmp_path, [], end=""))
    for said in ("0 steps", "not evaluated", "no step was recorded", "no transcripts", "no config"):
        assert said in read.words


def test_a_single_step(tmp_path: Path) -> None:
    read = page(run(tmp_path, [train(0, optim__entropy=1.0, time__sampling=1.0)]))
    assert "1 step 100 tokens" in read.words
    assert "Entropy and drift" in read.words and "Where the time went" in read.words


def test_a_warm_start_shows_its_loss(tmp_path: Path) -> None:
    read = page(run(tmp_path, [train(i, loss=2.0 - i) for i in range(3)]))
    assert "The loss of a warm start" in read.words


def test_a_metric_that_is_always_null_has_no_card(tmp_path: Path) -> None:
    read = page(run(tmp_path, [train(i, optim__entropy=None) for i in range(3)]))
    assert "Entropy" not in read.words


def test_the_ballot_is_the_round_after_the_last_solution(tmp_path: Path) -> None:
    names = [f"reward/gen/by_round/{i}" for i in range(2)]
    names += [f"reward/judge/by_round/{i}" for i in range(1, 3)]
    read = page(run(tmp_path, [train(i) | dict.fromkeys(names, 0.1) for i in range(2)]))
    assert "Rewards, by round round 1 round 2 ballot" in read.words


def test_nothing_is_executed_or_fetched(tmp_path: Path) -> None:
    """Hostile text everywhere that a file or a model can put it."""
    names = {
        f"reward/gen/by_persona/{HOSTILE}": 0.5,
        f"reward/gen/by_round/{HOSTILE}": 0.5,
        f"reward/judge/by_round/{'9' * 5_000}": 0.5,
        f"train_{HOSTILE}/correct": 0.5,
        "train_$x_{/format": 0.5,
        "reward/judge/by_persona/_$\\frac$": 0.5,
    }
    lines = [train(i) | names for i in range(3)]
    run(tmp_path, [*lines, evaluated(0, **{HOSTILE: 0.5, "sampled": "x", "greedy": True})])
    (tmp_path / "config.toml").write_text(HOSTILE)
    alarm = {"step": HOSTILE, "alarm": HOSTILE, "saw": HOSTILE, "try": [HOSTILE]}
    (tmp_path / "alarms.jsonl").write_text(json.dumps(alarm) + "\n")
    rules = peer_v2(agents=3, rounds=1, max_tokens=99_999, personas=(Persona(HOSTILE, "x"),) * 3)
    about = question(HOSTILE + "https://example.org", reference=HOSTILE)
    good = play_peer(rules, lambda s, v: answer(s, v, solution=HOSTILE * 50), about=about)
    bad = play_peer(rules, lambda s, v: HOSTILE, about=about)
    keep(tmp_path, HOSTILE.replace("/", "-").replace("\0", ""), good, bad)
    read = page(tmp_path, HOSTILE)
    assert not {"script", "img", "link", "iframe", "object"} & set(read.tags)
    assert read.tags.count("style") == 1
    assert not [name for name, _ in read.attributes if name.startswith("on") or name == "src"]
    assert all((v or "").startswith("#") for name, v in read.attributes if name == "href")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", read.html)
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert ("content", policy) in read.attributes
    assert "alert(1)" in read.words, "it is shown, as text"


def test_no_address_outside_the_page(tmp_path: Path) -> None:
    assert "://" not in page(whole_run(tmp_path)).html


def test_a_huge_text_is_folded_and_clipped(tmp_path: Path) -> None:
    run(tmp_path, [train(0)])
    rules = peer_v2(agents=3, rounds=1, max_tokens=200_000)
    huge = "\\boxed{" * 5_000
    keep(
        tmp_path, "a", play_peer(rules, lambda s, v: answer(s, v, solution=huge), about=question())
    )
    read = page(tmp_path)
    assert "clipped: 4,000 of 35,000 characters" in read.words
    assert len(read.html) < 300_000
    assert ("class", "long") in read.attributes


def test_malformed_turns_are_shown_whole(tmp_path: Path) -> None:
    run(tmp_path, [train(0)])
    keep(tmp_path, "a", play_peer(peer_v2(agents=3, rounds=1), lambda s, v: MALFORMED))
    assert re.search("Malformed: .* I forgot the sections.", page(tmp_path).words)


def test_a_judged_debate_shows_its_verdict(tmp_path: Path) -> None:
    run(tmp_path, [train(0)])
    about = question("Who?", choices=("Ann", "Ben"), background="It was Ann.", reference="Ann")
    protocol = consultancy(0)
    said = f"{protocol.sides[0]} | 91%"
    keep(tmp_path, "a", play_judged(protocol, lambda s, v: said, about))
    assert "91%" in page(tmp_path).words.partition("Verdict:")[2]


def test_transcripts_that_cannot_be_read_do_not_cost_the_page(tmp_path: Path) -> None:
    whole_run(tmp_path)
    path = tmp_path / "transcripts" / "step-00003.jsonl.zst"
    path.write_bytes(path.read_bytes()[:-9])
    (tmp_path / "transcripts" / "step-00009.jsonl.zst.part").write_bytes(b"")
    assert "step-00003.jsonl.zst: cut short" in page(tmp_path).words


def test_a_torn_last_line_is_passed_over(tmp_path: Path) -> None:
    lines = [train(0, loss=1.0), train(1, loss=0.5)]
    run(tmp_path, lines, end='\n{"step": 2, "kind": "train", "lo\xe9')
    raw = (tmp_path / "metrics.jsonl").read_bytes()
    (tmp_path / "metrics.jsonl").write_bytes(raw[:-1])  # in the middle of a character
    assert len(read_run(tmp_path).train) == 2
    assert "2 steps" in page(tmp_path).words


@pytest.mark.parametrize(
    "bad", ['{"step": 1, ', "[1]", '{"step": "1", "kind": "train"}', "[" * 9999]
)
def test_a_bad_line_elsewhere_is_named(tmp_path: Path, bad: str) -> None:
    good = json.dumps(train(0))
    (tmp_path / "metrics.jsonl").write_text(f"{good}\n{bad}\n{good}\n")
    with pytest.raises(DataError, match=r"metrics\.jsonl, line 2: "):
        write_report(tmp_path)
    assert not (tmp_path / "report.html").exists()


def test_a_step_that_was_taken_again_counts_once(tmp_path: Path) -> None:
    run(tmp_path, [train(0, loss=3.0), train(1, loss=2.0), train(1, loss=1.0)])
    assert [row.values["loss"] for row in read_run(tmp_path).train] == [3.0, 1.0]


def test_what_is_no_finite_number_is_null(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(
        '{"step": 0, "kind": "train", "loss": NaN, "a": Infinity, "b": null, "c": 1'
        + "0" * 400
        + ', "d": "text", "e": true, "f": 1}\n'
    )
    (row,) = read_run(tmp_path).train
    gaps = dict.fromkeys(("loss", "a", "b", "c"))
    assert row.values == {"step": 0.0, **gaps, "f": 1.0}


def test_two_reports_of_one_run_are_the_same_bytes(tmp_path: Path) -> None:
    folder = whole_run(tmp_path)
    first = write_report(folder).read_bytes()
    assert write_report(folder).read_bytes() == first
    code = "import sys, pathlib, rostra.view.report as r; r.write_report(pathlib.Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True)
    assert (folder / "report.html").read_bytes() == first


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such directory; give"):
        write_report(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"no metrics\.jsonl in it; give"):
        write_report(tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="permissions of folders")
def test_a_report_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    folder = run(tmp_path, [train(0)])
    (folder / "report.html.part").mkdir()
    (folder / "report.html").write_text("old")
    with pytest.raises(DataError, match="cannot be written"):
        write_report(folder)
    assert (folder / "report.html").read_text() == "old"


def test_without_matplotlib_the_install_line_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=re.escape("pip install 'rostra[view]'")):
        write_report(run(tmp_path, []))


CHROMIUM = shutil.which("chromium")


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_the_page_is_never_wider_than_a_phone(tmp_path: Path) -> None:
    """A frame of 400 pixels is asked for its width; the page itself may not run a script."""
    folder = whole_run(tmp_path / "run")
    (folder / "config.toml").write_text("key = '" + "x" * 5_000 + "'")
    wide = "W" * 3_000
    keep(folder, "step-00000", rehearsed(0, f"What is 17 * 24? {wide[:300]}"))
    keep(folder, "step-00003", play_peer(peer_v2(agents=3, rounds=1), lambda s, v: wide))
    write_report(folder, "T" * 200)
    frame = tmp_path / "frame.html"
    frame.write_text(
        '<iframe id="f" src="run/report.html" style="width:400px;height:900px"></iframe><script>'
        "onload = () => { const p = f.contentDocument; p.querySelectorAll('details').forEach("
        "d => d.open = true); document.title = 'width ' + p.documentElement.scrollWidth; }</script>"
    )
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += ["--allow-file-access-from-files", f"--user-data-dir={tmp_path / 'profile'}"]
    dom = subprocess.run(
        [*command, frame.as_uri()], capture_output=True, text=True, timeout=120, check=True
    ).stdout
    found = re.search(r"<title>width (\d+)</title>", dom)
    assert found and int(found[1]) <= 400
