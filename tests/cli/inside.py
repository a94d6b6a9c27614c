"""The command line in this process, where it is counted what of it is tested."""

import contextlib
import gc
import io
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

from rostra.cli import main


def inside(*words: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """As a process would end, with what it would have said."""
    code: object = 0
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    thresholds = gc.get_threshold()  # the command line changes how often garbage is collected
    with (
        mock.patch.dict(os.environ, env),
        mock.patch.object(sys, "argv", ["rostra", *words]),
        contextlib.chdir(cwd or Path.cwd()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as error:
            code = error.code
        finally:
            gc.set_threshold(*thresholds)
    assert isinstance(code, int)
    said = []
    for stream in (out, err):
        stream.flush()
        said.append(stream.buffer.getvalue().decode())  # type: ignore[attr-defined]
    return subprocess.CompletedProcess(words, code, *said)
