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

MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""What AdamW keeps for a weight."""


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
    if target.exists() and not target.is_dir():
        raise DataError(f"{target}: a file is in the way of the checkpoint")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{target.name}.part-", dir=target.parent))
    except OSError as error:
        raise DataError(f"{target}: cannot write a checkpoint there: {error.strerror}") from None
    try:
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
        _settle(part)
        old = target.with_name(f".{target.name}.old")
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)
            target.rename(old)
        part.rename(target)
        _sync(target.parent)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise DataError(f"{target}: the checkpoint could not be written: {error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def read_checkpoint(
    target: Path, *, adapter: dict[str, float] | None, named: Mapping[str, nn.Parameter]
) -> Found:
    """Reads and checks everything before anything is changed."""
    old = target.with_name(f".{target.name}.old")
    if not target.exists() and old.exists():
        # Killed between two renames: the old one is whole.
        target = old
    if not target.is_dir():
        raise DataError(f"{target}: no such checkpoint")
    try:
        state = json.loads((target / "training" / "state.json").read_text())
        steps = int(state["steps"])
        kept = state["adapter"]
    except FileNotFoundError:
        raise DataError(f"{target}: not a checkpoint: it has no training/state.json") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{target}: training/state.json is damaged: {error}") from None
    if kept != adapter:
        raise DataError(
            f"{target}: a checkpoint of {_says(kept)}, and this engine trains {_says(adapter)}"
        )
    moments = _tensors(target, "training/moments.safetensors")
    weights: dict[str, Tensor] = {}
    whole = "adapter_model.safetensors" if adapter else "model.safetensors"
    files = [file.name for file in target.glob("model-*.safetensors")]
    for name in sorted(files) or [whole]:
        weights |= _tensors(target, name)
    if adapter:
        weights = {_inner(key): value for key, value in weights.items()}
    _check_weights(target, weights, named)
    rng = moments.pop("rng", None)
    if rng is None or rng.dtype != torch.uint8 or rng.shape != torch.get_rng_state().shape:
        raise DataError(f"{target}: training/moments.safetensors is damaged: no random numbers")
    _check_moments(target, moments, named)
    return Found(weights, moments, steps, rng)


def _says(adapter: object) -> str:
    if not isinstance(adapter, dict):
        return "all weights"
    return f"an adapter of rank {adapter.get('rank')} and alpha {adapter.get('alpha')}"


def _tensors(target: Path, name: str) -> dict[str, Tensor]:
    safetensors = need("safetensors.torch")
    try:
        return dict(safetensors.load_file(target / name))
    except FileNotFoundError:
        raise DataError(f"{target}: damaged: the file {name} is missing") from None
    except Exception as error:  # safetensors has an exception of its own for torn files
        raise DataError(f"{target}: {name} is damaged: {error}") from error


def _check_weights(
    target: Path, weights: Mapping[str, Tensor], named: Mapping[str, nn.Parameter]
) -> None:
    if odd := sorted(weights.keys() ^ named.keys()):
        side = "the checkpoint" if odd[0] in weights else "the model"
        raise DataError(f"{target}: belongs to another model: only {side} has {odd[0]}")
    for key, parameter in named.items():
        if weights[key].shape != parameter.shape:
            raise DataError(
                f"{target}: belongs to another model: {key} has the shape "
                f"{tuple(weights[key].shape)}, and the model's has {tuple(parameter.shape)}"
            )


def _check_moments(
    target: Path, moments: Mapping[str, Tensor], named: Mapping[str, nn.Parameter]
) -> None:
    """All of them, or none before the first step."""
    for key, parameter in named.items() if moments else ():
        for field in MOMENTS:
            found = moments.get(f"{field}/{key}")
            shape = torch.Size() if field == "step" else parameter.shape
            if found is None or found.shape != shape:
                raise DataError(
                    f"{target}: training/moments.safetensors is damaged at {field}/{key}"
                )


def _inner(key: str) -> str:
    """PEFT's name of a weight in a file, as the name of the parameter in the adapted model."""
    key = key.removeprefix("base_model.model.")
    for part in ("lora_A", "lora_B"):
        key = key.replace(f".{part}.weight", f".{part}.default.weight")
    return key


def _settle(folder: Path) -> None:
    """Everything on the disk, and readable to whom new files usually are."""
    mask = os.umask(0)
    os.umask(mask)
    for path in (folder, *sorted(folder.rglob("*"))):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)
        _sync(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
