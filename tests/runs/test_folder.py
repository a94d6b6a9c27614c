"""Run directories: nothing is lost silently, and a kill at any point loses little."""

import asyncio
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from rostra.debate.peer import peer_v2
from rostra.debate.transcript import Transcript
from rostra.engines.scripted import ScriptedEngine
from rostra.errors import ConfigError, DataError, RostraError
from rostra.players.rehearsal import rehearsal
from rostra.runs.folder import (
    Checkpoint,
    RunFolder,
    checkpoint_name,
    read_ahead,
    read_lines,
    weights_name,
    write_whole,
)
from rostra.runs.recipe import read_config
from rostra.runs.settings import Recipe
from rostra.runs.transcripts import dumps, read_transcripts
from tests.playing import play_rehearsal

SHORT = peer_v2(agents=3, rounds=1)


def placed(path: Path, **changes: Any) -> Recipe:
    return replace(Recipe(folder=str(path)), **changes)


def opened(path: Path, *, resume: bool = False, overwrite: bool = False) -> RunFolder:
    return RunFolder.open(placed(path), resume=resume, overwrite=overwrite)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[RunFolder]:
    made = opened(tmp_path / "run")
    yield made
    made.close()


def sentence(act: Callable[[], object], kind: type[RostraError] = RostraError) -> str:
    with pytest.raises(kind) as caught:
        act()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def files(path: Path) -> dict[str, bytes]:
    """All files, by name, but for the lock."""
    found = (file for file in path.rglob("*") if file.is_file() and file.name != ".lock")
    return {str(file.relative_to(path)): file.read_bytes() for file in found}


# Opening


def test_a_new_run_has_its_recipe_and_nothing_else(folder: RunFolder) -> None:
    assert list(files(folder.path)) == ["config.toml"]
    assert read_config(folder.path) == folder.recipe
    assert folder.last_checkpoint() is None
    assert folder.metrics() == []


def test_an_empty_directory_is_a_new_run(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    opened(tmp_path / "run").close()
    assert (tmp_path / "run" / "config.toml").exists()


def test_a_run_that_is_there_is_refused_with_what_to_do(folder: RunFolder) -> None:
    folder.add_metrics({"step": 0})
    folder.close()
    before = files(folder.path)
    said = sentence(lambda: opened(folder.path), ConfigError)
    assert said.startswith(f"{folder.path}: there is a run already")
    assert "--resume" in said and "--overwrite" in said and "folder=" in said
    assert files(folder.path) == before


def test_overwriting_leaves_nothing_of_the_old_run(folder: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "dear").write_text("keep")
    folder.add_metrics({"step": 0})
    folder.write_checkpoint(1, {}, 2)
    (folder.path / "link").symlink_to(tmp_path / "elsewhere")
    folder.close()
    opened(folder.path, overwrite=True).close()
    assert list(files(folder.path)) == ["config.toml"]
    assert (tmp_path / "elsewhere" / "dear").read_text() == "keep"


def test_resuming_keeps_everything(folder: RunFolder) -> None:
    folder.add_metrics({"step": 0})
    folder.write_checkpoint(1, {"a": 1}, 2)
    folder.close()
    before = files(folder.path)
    again = opened(folder.path, resume=True)
    again.close()
    assert files(folder.path) == before
    assert again.last_checkpoint() == Checkpoint(1, "weights-000001", {"a": 1})


def test_resuming_with_other_settings_is_refused_and_names_them(folder: RunFolder) -> None:
    folder.close()
    recipe = placed(folder.path, seed=3)
    said = sentence(lambda: RunFolder.open(recipe, resume=True, overwrite=False), ConfigError)
    assert "cannot be resumed with other settings: seed: 0 -> 3." in said


def test_of_many_changed_settings_three_are_named_and_the_others_counted(folder: RunFolder) -> None:
    folder.close()
    recipe = placed(folder.path, seed=3)
    other = replace(recipe, title="t", protocol=SHORT)
    said = sentence(lambda: RunFolder.open(other, resume=True, overwrite=False), ConfigError)
    assert "protocol.agents: 5 -> 3; protocol.rounds: 3 -> 1; seed: 0 -> 3 and 1 more." in said


def test_a_refused_run_can_be_opened_again_by_the_same_process(folder: RunFolder) -> None:
    """As the demo does: where going on is refused, it begins anew."""
    folder.close()
    recipe = placed(folder.path, seed=3)
    sentence(lambda: RunFolder.open(recipe, resume=True, overwrite=False), ConfigError)
    RunFolder.open(recipe, resume=False, overwrite=True).close()
    assert read_config(folder.path).seed == 3


@pytest.mark.parametrize(("resume", "overwrite"), [(True, False), (False, True), (False, False)])
def test_what_is_not_a_run_directory_is_left_alone(
    resume: bool, overwrite: bool, tmp_path: Path
) -> None:
    (tmp_path / "thesis.tex").write_text("years")
    (tmp_path / "sub").mkdir()
    sentence(lambda: opened(tmp_path, resume=resume, overwrite=overwrite), ConfigError)
    assert {p.name for p in tmp_path.iterdir()} == {"thesis.tex", "sub"}
    assert (tmp_path / "thesis.tex").read_text() == "years"


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_file_in_the_way_is_named_and_stays(overwrite: bool, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("mine")
    said = sentence(lambda: opened(tmp_path / "run", overwrite=overwrite), DataError)
    assert said == f"{tmp_path / 'run'}: a file is in the way of the run directory"
    below = sentence(lambda: opened(tmp_path / "run" / "below"), DataError)
    assert str(tmp_path / "run" / "below") in below
    assert (tmp_path / "run").read_text() == "mine"


@contextmanager
def nobody() -> Iterator[None]:
    """As a user who may not write everywhere; root may."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_place_that_cannot_be_written_is_one_sentence() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        (place / "old").mkdir()
        opened(place / "old").close()
        for path in (place / "old", place):
            path.chmod(0o555)
        before = files(place)
        with nobody():
            new = sentence(lambda: opened(place / "run"), DataError)
            old = sentence(lambda: opened(place / "old", resume=True), DataError)
        assert new == f"{place / 'run'}: cannot be written: Permission denied"
        assert old == f"{place / 'old'}: cannot be written: Permission denied"
        assert files(place) == before
        for path in (place, place / "old"):
            path.chmod(0o755)


def test_a_place_that_cannot_be_looked_into_is_one_sentence() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        (place / "closed").mkdir()
        place.chmod(0o755)
        (place / "closed").chmod(0o000)
        with nobody():
            said = sentence(lambda: opened(place / "closed" / "run"), DataError)
        (place / "closed").chmod(0o755)
        assert str(place / "closed" / "run") in said


@pytest.mark.parametrize("name", ["x" * 300, "a\x00b"])
def test_a_name_that_no_directory_can_have_is_one_sentence(name: str, tmp_path: Path) -> None:
    sentence(lambda: opened(tmp_path / name))


HOLD = """
import sys, time
from pathlib import Path
from rostra.runs.folder import RunFolder
from rostra.runs.settings import Recipe
held = RunFolder.open(Recipe(folder=sys.argv[1]), resume=False, overwrite=False)
print("held", flush=True)
sys.stdin.read()
"""


def test_two_processes_cannot_run_one_directory_and_a_dead_one_holds_nothing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin and holder.stdout
    try:
        assert holder.stdout.readline() == b"held\n"
        before = files(path)
        for resume in (True, False):
            said = sentence(lambda r=resume: opened(path, resume=r, overwrite=not r), ConfigError)
            assert said == f"{path}: another process is running it right now"
        assert files(path) == before
    finally:
        holder.kill()
        holder.wait()
        holder.stdin.close()
        holder.stdout.close()
    opened(path, resume=True).close()


def test_a_run_that_was_killed_while_it_began_can_be_begun_again(tmp_path: Path) -> None:
    path = tmp_path / "run"
    (path / "prompts").mkdir(parents=True)
    (path / ".lock").touch()
    (path / "config.toml.part").write_text("seed = ")
    (path / "prompts" / "system.md").write_text("of a recipe that never began")
    opened(path, resume=True).close()
    assert read_config(path) == placed(path)


def test_prompts_of_a_recipe_that_never_began_do_not_join_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "run"
    (path / "prompts").mkdir(parents=True)
    (path / "prompts" / "persona.md").write_text("of a recipe that never began")
    recipe = placed(path, protocol=peer_v2(prompts={"system": "{{name}}"}))
    RunFolder.open(recipe, resume=True, overwrite=False).close()
    assert read_config(path) == recipe


# Checkpoints


def saved(folder: RunFolder, step: int, state: dict[str, Any] | None = None, keep: int = 9) -> None:
    """A checkpoint as a loop writes it: the engine's folder first."""
    engine = folder.checkpoints / weights_name(step)
    engine.mkdir(parents=True)
    (engine / "weights").write_text(f"weights {step}")
    folder.write_checkpoint(step, state or {"at": step}, keep)


def test_the_last_whole_checkpoint_is_found_wherever_a_kill_struck(folder: RunFolder) -> None:
    """Every state in which the files of step 4 can be, while step 2 is whole."""
    saved(folder, 2)
    engine = folder.checkpoints / "weights-000004"
    whole = json.dumps({"step": 4, "state": {"at": 4}}).encode()
    target = folder.checkpoints / "step-000004.json"
    part = folder.checkpoints / "step-000004.json.part"
    older = Checkpoint(2, "weights-000002", {"at": 2})

    assert folder.last_checkpoint() == older
    (folder.checkpoints / ".step-000004.part").mkdir()
    assert folder.last_checkpoint() == older
    engine.mkdir()
    (engine / "weights").write_text("half")
    assert folder.last_checkpoint() == older
    (folder.checkpoints / "step-000004.ahead.jsonl.zst.part").write_bytes(b"half")
    assert folder.last_checkpoint() == older
    (folder.checkpoints / "step-000004.ahead.jsonl.zst").write_bytes(b"whole")
    assert folder.last_checkpoint() == older
    for length in range(len(whole) + 1):
        part.write_bytes(whole[:length])
        assert folder.last_checkpoint() == older
    part.unlink()
    for length in range(len(whole)):
        target.write_bytes(whole[:length])
        assert folder.last_checkpoint() == older, whole[:length]
    target.write_bytes(whole)
    assert folder.last_checkpoint() == Checkpoint(4, "weights-000004", {"at": 4})


@pytest.mark.parametrize(
    "content", ["[]", "null", "3", "{}", '{"step": 4}', '{"step": null, "state": {}}', "\xff"]
)
def test_a_step_file_that_says_nothing_does_not_count(content: str, folder: RunFolder) -> None:
    saved(folder, 2)
    (folder.checkpoints / "step-000004.json").write_bytes(content.encode("latin-1"))
    found = folder.last_checkpoint()
    assert found is not None and found.step == 2


def test_the_weights_of_a_checkpoint_are_still_there_once_it_counts(folder: RunFolder) -> None:
    """The scripted engine keeps its weights beside the file of the loop."""
    trainer = asyncio.run(ScriptedEngine(rehearsal(), folder.checkpoints).trainer())
    asyncio.run(trainer.save(weights_name(2)))
    folder.write_checkpoint(2, {}, 2)
    found = folder.last_checkpoint()
    assert found is not None
    asyncio.run(trainer.load(found.name))


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_old_checkpoints_go_and_the_newest_stay(keep: int, folder: RunFolder) -> None:
    for step in (2, 4, 6, 8):
        folder.checkpoints.mkdir(exist_ok=True)
        (folder.checkpoints / f"{checkpoint_name(step)}.ahead.jsonl.zst").write_bytes(b"x")
        saved(folder, step, keep=keep)
        left = {p.name.split(".")[0] for p in folder.checkpoints.iterdir()}
        kept = [s for s in (2, 4, 6, 8) if step - 2 * keep < s <= step]
        assert left == {name(s) for s in kept for name in (checkpoint_name, weights_name)}
    found = folder.last_checkpoint()
    assert found is not None and found.state == {"at": 8}


def test_a_run_of_more_than_a_million_steps_goes_on_where_it_was(folder: RunFolder) -> None:
    saved(folder, 999_999)
    saved(folder, 1_000_000)
    found = folder.last_checkpoint()
    assert found is not None and found.step == 1_000_000


# Going back


def full_run(folder: RunFolder) -> Transcript:
    """Six steps, evaluations at 0, 2, 4 and 6, alarms, and checkpoints at 2, 4 and 6."""
    debate = play_rehearsal(SHORT, rehearsal())
    for step in range(7):
        if step % 2 == 0:
            folder.add_metrics({"step": step, "kind": "eval", "x": step / 10})
            if step:
                saved(folder, step)
                folder.write_ahead(step, [[debate]])
        if step < 6:
            folder.write_transcripts(step, [debate])
            folder.add_metrics({"step": step, "kind": "train", "x": step / 7})
            folder.add_alarm({"step": step, "alarm": "noise"})
    (folder.path / "report.html").write_text("<p>")
    return debate


@pytest.mark.parametrize("step", [2, 4, 6])
def test_going_back_removes_what_is_newer_and_nothing_that_is_older(
    step: int, folder: RunFolder
) -> None:
    full_run(folder)
    metrics = folder.metrics()
    before = files(folder.path)
    (folder.path / "metrics.jsonl.part").write_text("half")
    (folder.path / "transcripts" / "step-000001.jsonl.zst.part").write_text("half")
    (folder.checkpoints / ".step-000003").mkdir()
    (folder.checkpoints / "step-000007.json").write_text("{")
    folder.rewind(Checkpoint(step, checkpoint_name(step), {}))
    assert folder.metrics() == [line for line in metrics if line["step"] < step]
    alarms = read_lines(folder.path / "alarms.jsonl")
    assert [line["step"] for line in alarms] == list(range(step))
    after = files(folder.path)
    logs = {"metrics.jsonl", "alarms.jsonl"}

    def is_old(name: str) -> bool:
        if name.startswith("transcripts/"):
            return int(name[17:23]) < step
        return not name.startswith("checkpoints/") or int(name.split("-")[1][:6]) <= step

    kept = {name: content for name, content in before.items() if is_old(name) and name not in logs}
    assert {name: content for name, content in after.items() if name not in logs} == kept
    assert sorted(p.name for p in folder.checkpoints.glob(".*")) == []


def test_going_back_to_the_beginning_leaves_the_recipe(folder: RunFolder) -> None:
    full_run(folder)
    folder.rewind(None)
    left = files(folder.path)
    assert left.pop("metrics.jsonl") == left.pop("alarms.jsonl") == b""
    assert set(left) == {"config.toml", "report.html"}


def test_going_back_in_a_run_that_never_wrote_anything_is_nothing(folder: RunFolder) -> None:
    before = files(folder.path)
    folder.rewind(None)
    assert files(folder.path) == before


# Lines


@pytest.mark.parametrize("name", ["metrics.jsonl", "alarms.jsonl"])
def test_a_last_line_torn_at_any_byte_is_left_out(name: str, folder: RunFolder) -> None:
    lines = [{"step": s, "kind": "train", "é": s / 3, "note": "ü\n"} for s in range(3)]
    add = folder.add_metrics if name == "metrics.jsonl" else folder.add_alarm
    for line in lines:
        add(line)
    file = folder.path / name
    whole = file.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == 10]
    assert len(ends) == 3
    for length in range(len(whole) + 1):
        file.write_bytes(whole[:length])
        # A line is whole with its last brace, with or without the end of the line.
        done = sum(end - 1 <= length for end in ends)
        assert read_lines(file) == lines[:done], length
        folder.rewind(Checkpoint(9, checkpoint_name(9), {}))
        assert file.read_bytes() == whole[: ([0, *ends])[done]]
        add({"step": 9})
        assert read_lines(file) == [*lines[:done], {"step": 9}]


def test_raw_utf_8_torn_inside_a_character_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    whole = '{"a": 1}\n{"b": "é☃"}\n'.encode()
    for length in range(len('{"a": 1}\n'), len(whole) - 2):
        file.write_bytes(whole[:length])
        assert read_lines(file) == [{"a": 1}]


@pytest.mark.parametrize("bad", [b"{", b"3", b"[]", b"null", b"\xff", b'{"step": 1}{"step": 2}'])
def test_a_bad_line_that_is_not_the_last_is_named_with_its_number(
    bad: bytes, folder: RunFolder
) -> None:
    file = folder.path / "metrics.jsonl"
    file.write_bytes(b'{"step": 0}\n\n' + bad + b'\n{"step": 2}\n')
    for act in (folder.metrics, lambda: folder.rewind(None)):
        assert sentence(act, DataError) == f"{file}, line 3: not a line of metrics"
    file.write_bytes(b'{"step": 0}\n' + bad + b"\n")
    assert sentence(folder.metrics, DataError) == f"{file}, line 2: not a line of metrics"


@pytest.mark.parametrize("step", ["null", '"x"', "[]"])
def test_a_line_whose_step_is_no_number_is_one_sentence(step: str, folder: RunFolder) -> None:
    (folder.path / "metrics.jsonl").write_text(f'{{"step": {step}}}\n{{"step": 1}}\n')
    assert "metrics.jsonl" in sentence(lambda: folder.rewind(None), DataError)


@given(
    st.dictionaries(
        st.text(max_size=9), st.floats() | st.integers() | st.text(max_size=9) | st.none()
    )
)
@settings(max_examples=80, deadline=None)
def test_lines_are_read_as_they_were_written_and_what_is_no_number_is_null(
    line: dict[str, Any],
) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = RunFolder(Path(scratch), Recipe())
        folder.add_metrics(line)
        file = Path(scratch) / "metrics.jsonl"
        assert b"NaN" not in file.read_bytes() or any("NaN" in f"{k}{v}" for k, v in line.items())
        strict = json.loads(file.read_text(), parse_constant=lambda word: pytest.fail(word))
        clean = {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in line.items()
        }
        assert strict == clean
        assert folder.metrics() == [clean]


# Debates


def test_transcripts_of_a_step_are_read_again(folder: RunFolder) -> None:
    debates = [play_rehearsal(SHORT, rehearsal(), seed) for seed in range(3)]
    folder.write_transcripts(4, debates)
    stored = [s.transcript for s in read_transcripts(folder.path)]
    assert list(map(dumps, stored)) == list(map(dumps, debates))
    assert (folder.path / "transcripts" / "step-000004.jsonl.zst").exists()


def ahead(folder: RunFolder, step: int) -> Path:
    return folder.checkpoints / f"{checkpoint_name(step)}.ahead.jsonl.zst"


def test_debates_sampled_ahead_come_back_bit_for_bit(folder: RunFolder) -> None:
    def odd(prompt: object, seed: int) -> str:
        return f"<solution>é\u2028☃ \\boxed{{{seed % 3}}}\n</solution><comparison>N/A</comparison>"

    groups = [
        [play_rehearsal(SHORT, rehearsal(), 1), play_rehearsal(SHORT, odd, 2)],
        [],
        [play_rehearsal(SHORT, rehearsal(fault=0.9), 3)],
    ]
    # Numbers that a detour over text could round.
    hard = np.array([-0.1, -1e-38, -3.4028235e38, -0.0], np.float32)
    for turn in groups[0][0].turns[:1]:
        turn.logprobs[:4] = np.clip(hard, -1e9, 1e9)
    folder.write_ahead(7, groups)
    found = read_ahead(ahead(folder, 7))
    assert sorted(found) == [7, 9]
    for at, group in ((7, groups[0]), (9, groups[2])):
        assert len(found[at]) == len(group)
        for new, old in zip(found[at], group, strict=True):
            assert dumps(new) == dumps(old)
            for one, other in zip(new.turns, old.turns, strict=True):
                assert one.text == other.text
                assert one.tokens.tolist() == other.tokens.tolist()
                assert one.observation.tolist() == other.observation.tolist()
                assert one.logprobs.tobytes() == np.asarray(other.logprobs, np.float32).tobytes()


def test_no_debates_ahead_are_no_debates(folder: RunFolder) -> None:
    folder.write_ahead(3, [[], []])
    assert read_ahead(ahead(folder, 3)) == {}


def test_debates_ahead_that_are_cut_short_anywhere_are_one_sentence(folder: RunFolder) -> None:
    folder.write_ahead(3, [[play_rehearsal(SHORT, rehearsal())]])
    file = ahead(folder, 3)
    whole = file.read_bytes()
    for length in [*range(40), *range(40, len(whole), 97), len(whole) - 1]:
        file.write_bytes(whole[:length])
        said = sentence(lambda: read_ahead(file), DataError)
        assert said.startswith(f"{file}: the debates sampled ahead cannot be read"), length


@pytest.mark.parametrize(
    "text",
    ["x", "3", "[]", "null", "{}", '{"step": 1}', '{"step": null, "debate": {}}', "\ud800"]
    + ['{"step": 1, "debate": {}}', '{"step": 1, "debate": []}', '{"step": "x", "debate": {}}'],
)
def test_debates_ahead_that_are_something_else_are_one_sentence(
    text: str, folder: RunFolder
) -> None:
    file = ahead(folder, 3)
    file.parent.mkdir()
    file.write_bytes(zstandard.compress(text.encode("utf-8", "surrogatepass")))
    assert sentence(lambda: read_ahead(file), DataError).startswith(f"{file}: ")


def test_debates_ahead_that_are_gone_are_one_sentence(folder: RunFolder) -> None:
    assert sentence(lambda: read_ahead(ahead(folder, 3)), DataError).startswith(str(folder.path))


def test_a_flipped_bit_in_debates_ahead_is_noticed(folder: RunFolder) -> None:
    """A wrong token in them would be trained on."""
    debate = play_rehearsal(SHORT, rehearsal())
    folder.write_ahead(3, [[debate]])
    file, text = ahead(folder, 3), dumps(debate)
    whole = file.read_bytes()
    for at in range(len(whole) // 2, len(whole), max(1, len(whole) // 60)):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        file.write_bytes(damaged)
        try:
            found = read_ahead(file)
        except DataError:
            continue
        assert dumps(found[3][0]) == text, f"byte {at} was flipped, and nothing was said"


# A full disk


FULL = """
import resource, signal, sys
from pathlib import Path
from rostra.errors import DataError
from rostra.runs.folder import RunFolder
from rostra.runs.settings import Recipe
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
folder = RunFolder.open(Recipe(folder=sys.argv[1]), resume=False, overwrite=False)
folder.add_metrics({"step": 0, "x": 1.5})
folder.write_checkpoint(1, {"old": True}, 2)
resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))
long = "y" * 1000
for act in (
    lambda: folder.add_metrics({"step": 1, "x": long}),
    lambda: folder.add_alarm({"step": 1, "x": long}),
    lambda: folder.write_checkpoint(2, {"new": long}, 1),
    lambda: RunFolder.open(Recipe(folder=sys.argv[1] + "2"), resume=False, overwrite=False),
):
    try:
        act()
    except DataError as error:
        print(error)
    else:
        sys.exit("written in spite of the limit")
"""


def test_a_disk_that_is_full_is_one_sentence_and_harms_nothing_older(tmp_path: Path) -> None:
    path = tmp_path / "run"
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], capture_output=True, encoding="utf-8", timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout.splitlines()
    names = ["run/metrics.jsonl", "run/alarms.jsonl", "run/checkpoints/step-000002.json"]
    names.append("run2/config.toml")
    assert [line.split(": ")[0] for line in said] == [str(tmp_path / name) for name in names]
    assert all(line.endswith(": cannot be written: File too large") for line in said)
    again = opened(path, resume=True)
    found = again.last_checkpoint()
    assert found is not None and found.state == {"old": True}
    assert again.metrics() == [{"step": 0, "x": 1.5}]
    assert not list(path.rglob("*.part")) and not list((tmp_path / "run2").glob("*.part"))
    again.rewind(found)
    again.add_metrics({"step": 1})
    assert again.metrics() == [{"step": 0, "x": 1.5}, {"step": 1}]
    again.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_no_space_left_is_said_in_these_words(folder: RunFolder) -> None:
    (folder.path / "metrics.jsonl").symlink_to("/dev/full")
    said = sentence(lambda: folder.add_metrics({"step": 0}), DataError)
    file = folder.path / "metrics.jsonl"
    assert said == f"{file}: cannot be written: No space left on device"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_what_cannot_be_written_whole_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "file"
    write_whole(target, b"old")
    (tmp_path / "file.part").symlink_to("/dev/full")
    said = sentence(lambda: write_whole(target, b"new"), DataError)
    assert said == f"{target}: cannot be written: No space left on device"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert target.read_bytes() == b"old"
    write_whole(target, b"new")
    assert target.read_bytes() == b"new"
