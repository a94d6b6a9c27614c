"""The command line in this process, where it is counted what of it is tested."""

import contextlib
import gc
import io
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from rostra.cli import main

STYLES = ("FORCE_COLOR", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "COLUMNS")


def environment(**more: str) -> dict[str, str]:
    """Without what would change colours and widths."""
    return {k: v for k, v in os.environ.items() if k not in STYLES} | more


@contextlib.contextmanager
def put_back() -> Iterator[None]:
    """The command line changes how often garbage is collected, and what is said after Ctrl-C; the
    tests change it back."""
    thresholds, hook = gc.get_threshold(), sys.unraisablehook
    try:
        with warnings.catch_warnings():
            yield
    finally:
        gc.set_threshold(*thresholds)
        sys.unraisablehook = hook


def inside(
    *words: object, stdin: bytes = b"", cwd: Path | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """As a process would end, with what it would have said into a pipe."""
    code: object = 0
    arguments = [str(word) for word in words]
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    with (
        mock.patch.dict(os.environ, environment(**env), clear=True),
        mock.patch.object(sys, "argv", ["rostra", *arguments]),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), "utf-8")),
        contextlib.chdir(cwd or Path.cwd()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        put_back(),
    ):
        try:
            main()
        except SystemExit as error:
            code = error.code
    assert isinstance(code, int)
    said = []
    for stream in (out, err):
        stream.flush()
        said.append(stream.buffer.getvalue().decode())
    return subprocess.CompletedProcess(arguments, code, *said)
