"""How long `rostra --help` takes, against an empty Python and against `import torch`."""

import importlib.util
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from machine import describe

REPEATS = 15
RESULTS = Path(__file__).parent / "results" / "startup.json"
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "rostra --help": ["-m", "rostra", "--help"],
    "import rostra": ["-c", "import rostra"],
    "rostra debate --help": ["-m", "rostra", "debate", "--help"],
}


def milliseconds(arguments: list[str], repeats: int) -> float:
    """The median over repeated processes."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def main() -> None:
    rows = {name: milliseconds(arguments, REPEATS) for name, arguments in COMMANDS.items()}
    if importlib.util.find_spec("torch"):
        rows["import torch"] = milliseconds(["-c", "import torch"], 3)
    for name, value in rows.items():
        print(f"{value:8.0f} ms  {name}")
    RESULTS.parent.mkdir(exist_ok=True)
    table = {name: round(value, 1) for name, value in rows.items()}
    result = {"machine": describe(), "median_of": REPEATS, "milliseconds": table}
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
