"""Checkpoints: a PEFT folder or a model folder, with what training needs to go on exactly.

adapter_model.safetensors, adapter_config.json     an adapter, as PEFT, vLLM and others load it
model.safetensors, config.json, tokenizer.json     all weights, as transformers loads them
training/moments.safetensors, training/state.json  the optimiser, the steps, the random numbers
"""

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rostra.engines.local.models import quiet
from rostra.engines.local.needs import need
from rostra.errors import DataError


class Found(NamedTuple):
    weights: dict[str, Tensor]
    """By the name of the parameter."""
    moments: dict[str, Tensor]
    steps: int
    rng: Tensor


def write_checkpoint(
    target: Path, *, source: Any, tokenizer: Any, moments: dict[str, Tensor], state: dict[str, Any]
) -> None:
    """Writes beside the target, then renames: there is always a whole checkpoint to load."""
    safetensors = need("safetensors.torch")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{target.name}.part-", dir=target.parent))
    except OSError as error:
        raise DataError(f"{target}: cannot write a checkpoint there: {error.strerror}") from None
    try:
        part.chmod(0o755)
        with quiet():
            source.save_pretrained(part)
            if not hasattr(source, "peft_config"):
                tokenizer.save_pretrained(part)
        training = part / "training"
        training.mkdir()
        held = {key: value.detach().cpu().contiguous() for key, value in moments.items()}
        held["rng"] = torch.get_rng_state()
        safetensors.save_file(held, training / "moments.safetensors")
        (training / "state.json").write_text(json.dumps(state, indent=1) + "\n")
        for path in sorted(part.rglob("*")):
            _sync(path)
        _sync(part)
        old = target.with_name(f".{target.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        if target.exists():
            target.rename(old)
        part.rename(target)
        _sync(target.parent)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise DataError(f"{target}: the checkpoint could not be written: {error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def read_checkpoint(target: Path, *, adapted: Any, named: Mapping[str, nn.Parameter]) -> Found:
    """Reads and checks everything before anything is changed."""
    safetensors = need("safetensors.torch")
    old = target.with_name(f".{target.name}.old")
    if not target.exists() and old.exists():
        # Killed between two renames: the old one is whole.
        target = old
    if not target.is_dir():
        raise DataError(f"{target}: no such checkpoint")
    try:
        state = json.loads((target / "training" / "state.json").read_text())
        moments = safetensors.load_file(target / "training" / "moments.safetensors")
        rng = moments.pop("rng")
        steps = int(state["steps"])
        kept = bool(state["adapter"])
        if kept != (adapted is not None):
            wanted, here = ("an adapter", "all weights") if kept else ("all weights", "an adapter")
            raise DataError(f"{target}: a checkpoint of {wanted}, and this engine trains {here}")
        files = sorted(target.glob("*.safetensors"))
        weights: dict[str, Tensor] = {}
        for file in files:
            weights |= safetensors.load_file(file)
    except FileNotFoundError as error:
        raise DataError(f"{target}: not a whole checkpoint: {error.filename} is missing") from None
    except DataError:
        raise
    except Exception as error:  # safetensors has an exception of its own for torn files
        raise DataError(f"{target}: not a checkpoint of the local engine: {error}") from error
    if adapted is not None:
        weights = {_inner(key): value for key, value in weights.items()}
    for key, parameter in named.items():
        if key not in weights:
            raise DataError(f"{target}: holds no weight {key}; it belongs to another model")
        if weights[key].shape != parameter.shape:
            raise DataError(
                f"{target}: {key} has the shape {tuple(weights[key].shape)}, and the model's has "
                f"{tuple(parameter.shape)}; it belongs to another model or rank"
            )
    return Found(weights, moments, steps, rng)


def _inner(key: str) -> str:
    """PEFT's name of a weight in a file, as the name of the parameter in the adapted model."""
    key = key.removeprefix("base_model.model.")
    for part in ("lora_A", "lora_B"):
        key = key.replace(f".{part}.weight", f".{part}.default.weight")
    return key


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
