"""What machine a measurement was made on."""

import os
import platform
import sys
from pathlib import Path


def describe() -> dict[str, str | int]:
    """Processor, cores, memory, Python: enough to read a number by."""
    return {
        "processor": _field("/proc/cpuinfo", "model name") or platform.processor() or "unknown",
        "cores": os.cpu_count() or 0,
        "memory": _field("/proc/meminfo", "MemTotal") or "unknown",
        "python": sys.version.split()[0],
        "system": platform.system(),
    }


def _field(file: str, name: str) -> str:
    try:
        lines = Path(file).read_text().splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(name)), "")
