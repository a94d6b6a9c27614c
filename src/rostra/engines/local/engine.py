"""The local engine: sampling and training on this machine, with no key and no network."""

import asyncio
import logging
import os
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rostra.engines.arrays import FloatArray, IntArray
from rostra.engines.local.attention import NAME, Segments
from rostra.engines.local.cache import Cache, CacheShape
from rostra.engines.local.chat import TemplateChat
from rostra.engines.local.lora import Lora, add_adapter
from rostra.engines.local.memory import keep_freed_memory
from rostra.engines.local.models import load_model
from rostra.engines.local.request import Counts, Request
from rostra.engines.local.scheduler import Scheduler
from rostra.engines.local.spelling import Spelling
from rostra.engines.local.trainer import LocalTrainer, TrainerOptions
from rostra.engines.local.weights import Policy, Weights
from rostra.engines.local.worker import Worker
from rostra.engines.sampling import Completion, SamplingParams
from rostra.errors import ConfigError, EngineError
from rostra.seeds import derive

log = logging.getLogger(__name__)

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class SamplerOptions:
    """How much the sampler may do at once."""

    lanes: int = 64
    """Requests in one batch; more wait."""
    prefill_tokens: int = 512
    """Prompt tokens in one step, beside one token for every reply."""
    cache_bytes: int = 0
    """The bound on kept keys and values; 0 takes a quarter of the memory that is free."""
    fast: bool = True
    """Lay weights out for few rows, at the price of a second copy of them (on a CPU)."""

    def __post_init__(self) -> None:
        for name in ("lanes", "prefill_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} = {getattr(self, name)}: must be at least 1")
        if self.cache_bytes < 0:
            raise ConfigError(f"cache_bytes = {self.cache_bytes}: must be 0 (automatic) or more")


class LocalSampler:
    """Samples with one policy; never sees newer weights."""

    def __init__(self, engine: "LocalEngine", policy: Policy) -> None:
        self._engine = engine
        self._policy = policy

    async def sample(
        self, prompt: IntArray, n: int, params: SamplingParams
    ) -> Sequence[Completion]:
        """n replies to one prompt; it is computed once."""
        prompt = self._engine.check_prompt(prompt)
        seeds = [params.seed] if n == 1 else [derive(params.seed, i) for i in range(n)]
        stops = tuple(stop.encode() for stop in params.stop if isinstance(stop, str))
        ends = self._engine.ends.union(stop for stop in params.stop if isinstance(stop, int))

        def request(seed: int) -> Callable[[Callable[[Any], None]], Request]:
            own = SamplingParams(
                params.max_tokens, params.temperature, params.top_p, params.top_k, params.stop, seed
            )
            return lambda done: Request(
                self._policy, prompt, done, params=own, stops=stops, ends=ends
            )

        worker = self._engine.worker
        if n == 1:
            return [await worker.sample(request(seeds[0]))]
        tasks = [asyncio.ensure_future(worker.sample(request(seed))) for seed in seeds]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    async def score(self, tokens: IntArray, start: int) -> FloatArray:
        """Log-probabilities of tokens[start:], by teacher forcing."""
        tokens = self._engine.check_prompt(tokens, room=0)
        if not 1 <= start <= len(tokens):
            raise ConfigError(f"start = {start}: scoring begins after the first token, within them")
        if start == len(tokens):
            return np.zeros(0, np.float32)
        found = await self._engine.worker.sample(
            lambda done: Request(self._policy, tokens, done, start=start)
        )
        return np.asarray(found)


class LocalEngine:
    """torch and transformers on this machine.

    `model` is `toy`, `smollm2`, a folder, a hub id or a GGUF file. With `lora` an adapter is
    trained and the weights of the model stand still; without it, all weights are trained.
    `adapter` is a PEFT folder to begin with. `folder` is where checkpoints go.
    """

    name = "local"

    def __init__(
        self,
        model: str = "toy",
        *,
        lora: Lora | None = None,
        adapter: Path | str | None = None,
        folder: Path | str | None = None,
        seed: int = 0,
        device: str = "auto",
        dtype: str = "auto",
        sampling: SamplerOptions | None = None,
        training: TrainerOptions | None = None,
    ) -> None:
        sampling = sampling or SamplerOptions()
        loaded = load_model(model, seed=seed, device=device, dtype=dtype)
        self.model = model
        self.tokenizer = loaded.tokenizer
        self.context = loaded.context
        self.chat = TemplateChat(loaded.tokenizer)
        level = logging.INFO if self.chat.extends else logging.WARNING
        log.log(level, "%s: %s", model, self.chat.mode)
        self.ends = self.chat.ends | _end_tokens(loaded.module)
        self._vocabulary = loaded.module.get_input_embeddings().num_embeddings
        self._folder = Path(folder) if folder is not None else None
        self._training = training or TrainerOptions()
        spelling = Spelling(loaded.tokenizer)
        spelling.table += [b""] * (self._vocabulary - len(spelling.table))
        if next(loaded.module.parameters()).device.type == "cpu":
            keep_freed_memory()
        self.weights = _packed_weights(loaded.module, model, sampling.fast)
        self.peft: Any = None
        if lora is not None or adapter is not None:
            start = Path(adapter) if adapter is not None else None
            self.peft = add_adapter(self.weights, lora, start, seed)
        self.worker = Worker()
        shape = _cache_shape(loaded.module)
        self.scheduler = Scheduler(
            self.weights,
            spelling,
            Cache(shape, sampling.cache_bytes or _default_cache_bytes(shape.device), self.context),
            lanes=sampling.lanes,
            prefill_tokens=sampling.prefill_tokens,
            check=self.worker.check,
        )
        self.worker.scheduler = self.scheduler
        self._trainer: LocalTrainer | None = None
        self._closer = weakref.finalize(self, self.worker.close)

    @property
    def counts(self) -> Counts:
        """What the sampler has done so far."""
        return self.scheduler.counts

    async def sampler(self) -> LocalSampler:
        """The model as it is: without the adapter, if there is one."""
        return LocalSampler(self, self.weights.base())

    async def policy(self) -> LocalSampler:
        """The model with its adapter, if there is one, as it is now."""
        return LocalSampler(self, self.weights.policy())

    async def trainer(self) -> LocalTrainer:
        """The one trainer of this engine."""
        if self._folder is None:
            raise ConfigError("the local engine needs a folder for checkpoints to train")
        if self._trainer is None:
            self._trainer = LocalTrainer(
                self.weights,
                self.worker,
                self._folder,
                model=self.model,
                adapted=self.peft,
                tokenizer=self.tokenizer,
                sampler=lambda: LocalSampler(self, self.weights.policy()),
                options=self._training,
            )
        return self._trainer

    def close(self) -> None:
        """Stops the thread and fails what is in flight. Happens by itself at the end."""
        self._closer()

    def check_prompt(self, prompt: IntArray, room: int = 1) -> IntArray:
        """Refuses a prompt that cannot be computed. Only the debate it comes from is lost."""
        if len(prompt) + room > self.context:
            raise EngineError(
                f"a prompt of {len(prompt)} tokens does not fit the context of {self.context} of "
                f"{self.model}: use fewer rounds, a shorter history (history_rounds), or a model "
                "with a longer context"
            )
        if not len(prompt):
            raise EngineError("an empty prompt: there is nothing to continue")
        prompt = prompt.astype(np.int64)
        if prompt.min() < 0 or prompt.max() >= self._vocabulary:
            raise EngineError(f"a token of the prompt is not one of the {self._vocabulary} known")
        return prompt


def _end_tokens(module: Any) -> frozenset[int]:
    """What the model's own settings say ends a reply."""
    ends: set[int] = set()
    for config in (module.config, getattr(module, "generation_config", None)):
        token = getattr(config, "eos_token_id", None)
        ends.update([token] if isinstance(token, int) else token or ())
    return frozenset(ends)


def _cache_shape(module: Any) -> CacheShape:
    config = module.config
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    kept = getattr(config, "num_key_value_heads", None) or heads
    weight = next(module.parameters())
    return CacheShape(config.num_hidden_layers, kept, width, weight.dtype, weight.device)


def _default_cache_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free // 4
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(min(free // 4, 8 * GIB), GIB // 4)


def _packed_weights(module: Any, name: str, fast: bool) -> Weights:
    """Switches to packed attention, and makes sure that it computes what the model computes."""
    first, second = [1, 2, 3, 4, 5], [5, 4, 3]
    device = next(module.parameters()).device
    reason: Exception | None = None
    with torch.inference_mode():
        expected = [module(torch.tensor([t], device=device)).logits[0] for t in (first, second)]
    with torch.inference_mode():
        try:
            module.set_attn_implementation(NAME)
            weights = Weights(module, fast=fast)
            found = weights.logits(
                torch.tensor(first + second, device=device),
                torch.tensor([*range(5), *range(3)], device=device),
                torch.arange(8, device=device),
                Segments([5, 3], device),
            )
            close = 1e-3 if found.dtype == torch.float32 else 1e-1
            same = torch.allclose(found, torch.cat(expected), rtol=close, atol=close)
        except Exception as error:  # whatever an unusual model makes of it
            same, reason = False, error
    if not same:
        raise ConfigError(
            f"{name}: {type(module).__name__} does not work with packed batches (its attention is "
            "not of the usual kind), so the local engine cannot run it; serve it with vLLM instead"
        ) from reason
    return weights
