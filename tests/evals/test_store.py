"""Debates on file. How a folder is opened and gone on with is in test_modes."""

import json
from pathlib import Path

import pytest

from rostra.debate.peer import PeerRules
from rostra.errors import DataError
from rostra.evals.store import EvalFolder, first_debates, read_modes
from rostra.runs.transcripts import dumps
from tests.playing import play_peer
from tests.runs.test_frames import framed


def test_the_first_debates_are_read_without_the_others(tmp_path: Path) -> None:
    folder = tmp_path / "transcripts"
    folder.mkdir()
    debates = [play_peer(PeerRules(agents=3, rounds=1), seed=seed) for seed in range(3)]
    framed([dumps(debate).encode() for debate in debates], folder / "debate.jsonl.zst")
    assert [t.seed for t in first_debates(tmp_path, "debate", 2)] == [0, 1]
    assert first_debates(tmp_path, "roles", 2) == []
    framed([b"{}"], folder / "debate.jsonl.zst")
    with pytest.raises(DataError):
        first_debates(tmp_path, "debate", 2)


@pytest.mark.parametrize("said", [{}, {"modes": "direct"}, {"modes": ["direct", 3]}])
def test_settings_that_name_no_modes_are_one_sentence(tmp_path: Path, said: object) -> None:
    (tmp_path / "eval.json").write_text(json.dumps(said))
    (tmp_path / "transcripts").mkdir()
    (tmp_path / "transcripts" / "debate.jsonl.zst").write_bytes(b"")
    with pytest.raises(DataError, match="names no modes"):
        read_modes(tmp_path)
    with pytest.raises(DataError, match="names no modes"):
        EvalFolder.open(tmp_path, {"modes": ["direct"]}, resume=True, overwrite=False)
    assert (tmp_path / "eval.json").exists()
    EvalFolder.open(tmp_path, {"modes": ["direct"]}, resume=False, overwrite=True).close()
