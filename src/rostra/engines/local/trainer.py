"""The local trainer: gradients of the losses, AdamW, and checkpoints that lose nothing."""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rostra.engines.arrays import FloatArray
from rostra.engines.local.attention import Segments
from rostra.engines.local.checkpoint import MOMENTS, read_checkpoint, write_checkpoint
from rostra.engines.local.head import Wanted, run_head
from rostra.engines.local.packing import microbatches
from rostra.engines.local.scheduler import is_out_of_memory
from rostra.engines.local.weights import Weights
from rostra.engines.local.worker import Work, Worker
from rostra.engines.sampling import Sampler
from rostra.engines.training import Adam, Datum, Loss, TrainOutput
from rostra.errors import ConfigError, EngineError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TrainerOptions:
    """How much the trainer does at once."""

    batch_tokens: int = 2048
    """Tokens in one pass through the model; a batch is as many passes as it takes."""
    checkpointing: bool = False
    """Recompute activations on the way back: far less memory, more time."""

    def __post_init__(self) -> None:
        if self.batch_tokens < 1:
            raise ConfigError(f"batch_tokens = {self.batch_tokens}: must be at least 1")


class LocalTrainer:
    """Trains an adapter, or all weights, in place."""

    def __init__(
        self,
        weights: Weights,
        worker: Worker,
        folder: Path,
        *,
        model: str,
        adapted: Any,
        tokenizer: Any,
        sampler: Callable[[], Sampler],
        options: TrainerOptions,
    ) -> None:
        self._weights = weights
        self._worker = worker
        self._folder = folder
        self._model = model
        self._adapted = adapted
        self._tokenizer = tokenizer
        self._sampler = sampler
        self._budget = options.batch_tokens
        module: Any = weights.module
        if adapted is None:
            module.requires_grad_(True)
        named = {name: p for name, p in module.named_parameters() if p.requires_grad}
        weights.trained = list(named.values())
        self._named = named
        self._head = module.get_output_embeddings()
        self._check_head()
        if options.checkpointing:
            weights.trunk.checkpointing = True
            module.gradient_checkpointing_enable({"use_reentrant": False})
            module.train()
        fused = weights.trained[0].device.type in ("cpu", "cuda")
        self._optimizer = torch.optim.AdamW(weights.trained, lr=0.0, fused=fused)
        self._steps = 0
        self._gradient: list[Tensor] | None = None

    async def forward(self, data: Sequence[Datum]) -> Sequence[FloatArray]:
        """Log-probabilities of the response tokens, at the temperature they were sampled at; 0
        elsewhere."""
        return (await self._worker.run(self._passes(list(data), None))).logprobs

    async def forward_backward(self, data: Sequence[Datum], loss: Loss) -> TrainOutput:
        """Adds the gradient of a loss. A call that fails or is cancelled adds nothing."""
        return await self._worker.run(self._passes(list(data), loss))

    async def optim_step(self, adam: Adam) -> Mapping[str, float]:
        """One step of AdamW with the gradient so far."""
        return await self._worker.run(self._step(adam))

    async def sampler(self) -> Sampler:
        """Uses today's weights where they are; older samplers keep theirs."""
        return self._sampler()

    async def save(self, name: str) -> None:
        """Writes a checkpoint: a PEFT folder or a model folder, and what training needs."""
        await self._worker.run(self._save(name))

    async def load(self, name: str) -> None:
        """Goes back to a checkpoint, exactly."""
        await self._worker.run(self._load(name))

    def _check_head(self) -> None:
        """The output layer is computed apart from the model: make sure that nothing is lost."""
        module: Any = self._weights.module
        if type(self._head) is not nn.Linear:
            raise ConfigError(
                f"training needs a plain output layer, not {type(self._head).__name__}"
            )
        device = self._head.weight.device
        tokens = torch.tensor([1, 2, 3, 4, 5], device=device)
        with torch.inference_mode(), self._weights.using(None):
            plan = Segments([5], device)
            whole = module(tokens[None], use_cache=False, packed=plan).logits[0]
            apart = self._head(self._weights.trunk(tokens, torch.arange(5, device=device), plan))
        close = 1e-4 if whole.dtype == torch.float32 else 1e-2
        if float((whole - apart).abs().max()) > close * float(whole.abs().max()):
            raise ConfigError(
                f"{type(module).__name__} does something to its logits that training does not know"
            )

    def _passes(self, data: list[Datum], loss: Loss | None) -> Work[TrainOutput]:
        """One microbatch after the other; the gradient counts when all are done."""
        spans = [_needed(datum) for datum in data]
        lengths = [int(span[-1]) + 1 if len(span) else 0 for span in spans]
        logprobs = [np.zeros(len(datum.targets), np.float32) for datum in data]
        used = [i for i, length in enumerate(lengths) if length]
        waiting = [
            [used[k] for k in batch]
            for batch in microbatches([lengths[i] for i in used], self._budget)
        ]
        total = 0.0
        gradient: list[Tensor] | None = None
        while waiting:
            batch = waiting.pop(0)
            try:
                found, grads = self._pass([data[i] for i in batch], [spans[i] for i in batch], loss)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                tokens = sum(lengths[i] for i in batch)
                waiting = [*self._halves(batch, tokens, error), *waiting]
                continue
            total += found.loss
            at = 0
            for i in batch:
                logprobs[i][spans[i]] = found.logprobs[at : at + len(spans[i])]
                at += len(spans[i])
            if gradient is None:
                gradient = grads
            elif grads is not None:
                torch._foreach_add_(gradient, grads)
            yield
        if gradient is not None:
            if self._gradient is None:
                self._gradient = gradient
            else:
                torch._foreach_add_(self._gradient, gradient)
        return TrainOutput(total, logprobs)

    def _halves(self, batch: list[int], tokens: int, error: Exception) -> list[list[int]]:
        if len(batch) == 1:
            raise EngineError(
                "out of memory on a single example: use shorter debates or checkpointing = true"
            ) from error
        self._budget = min(self._budget, max(1, tokens // 2))
        log.warning("out of memory: going on with %d tokens a pass", self._budget)
        middle = len(batch) // 2
        return [batch[:middle], batch[middle:]]

    def _pass(
        self, data: list[Datum], spans: list[Any], loss: Loss | None
    ) -> tuple[Any, list[Tensor] | None]:
        device = self._head.weight.device
        lengths = [int(span[-1]) + 1 for span in spans]
        tokens = np.concatenate([d.inputs[:n] for d, n in zip(data, lengths, strict=True)])
        places = np.concatenate([np.arange(n) for n in lengths])
        starts = np.cumsum(lengths) - lengths
        rows = np.concatenate([start + span for start, span in zip(starts, spans, strict=True)])
        for datum in data:
            if datum.temperature <= 0:
                raise ConfigError(
                    "a datum was sampled at temperature 0, where log-probabilities have no "
                    "gradient; sample at a temperature above 0 to train"
                )

        def pick(arrays: list[Any]) -> Any:
            return np.concatenate([a[span] for a, span in zip(arrays, spans, strict=True)])

        heat = np.concatenate(
            [np.full(len(s), d.temperature) for d, s in zip(data, spans, strict=True)]
        )
        wanted = Wanted(
            targets=torch.from_numpy(pick([d.targets for d in data]).astype(np.int64)).to(device),
            temperatures=torch.from_numpy(heat.astype(np.float32)).to(device),
            sampled=pick([d.logprobs for d in data]).astype(np.float64),
            weights=pick([d.weights for d in data]).astype(np.float64),
        )
        plan = Segments(lengths, device, self._worker.check)
        with torch.set_grad_enabled(loss is not None), self._weights.using(None):
            hidden = self._weights.trunk(
                torch.from_numpy(tokens.astype(np.int64)).to(device),
                torch.from_numpy(places).to(device),
                plan,
            )
            hidden = hidden.index_select(0, torch.from_numpy(rows).to(device))
            head = self._head
            with torch.no_grad():
                found = run_head(
                    hidden,
                    head.weight,
                    head.bias,
                    wanted,
                    loss,
                    trained=self._trains(head.weight),
                    check=self._worker.check,
                )
            if loss is None:
                return found, None
            grads = list(
                torch.autograd.grad(
                    hidden,
                    list(self._weights.trained),
                    found.hidden_grad,
                    allow_unused=True,
                    materialize_grads=True,
                )
            )
        for part, grad in ((head.weight, found.weight_grad), (head.bias, found.bias_grad)):
            if grad is not None:
                index = next(i for i, p in enumerate(self._weights.trained) if p is part)
                grads[index] = grads[index] + grad
        return found, grads

    def _trains(self, weight: Tensor) -> bool:
        return any(parameter is weight for parameter in self._weights.trained)

    def _step(self, adam: Adam) -> Work[Mapping[str, float]]:
        yield
        trained = self._weights.trained
        gradient = self._gradient or [torch.zeros_like(p) for p in trained]
        self._gradient = None
        norm = float(torch.stack(torch._foreach_norm(gradient)).norm())
        if not np.isfinite(norm):
            raise EngineError("the gradient is not a finite number; the weights stay as they were")
        if adam.clip_norm and norm > adam.clip_norm:
            torch._foreach_mul_(gradient, adam.clip_norm / norm)
        for group in self._optimizer.param_groups:
            group["lr"] = adam.learning_rate
            group["betas"] = (adam.beta1, adam.beta2)
            group["eps"] = adam.eps
            group["weight_decay"] = adam.weight_decay
        self._weights.before_change()
        for parameter, grad in zip(trained, gradient, strict=True):
            parameter.grad = grad
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._weights.changed()
        self._steps += 1
        return {"grad_norm": norm}

    def _save(self, name: str) -> Work[None]:
        yield
        if self._gradient is not None:
            raise ConfigError(
                "there is a gradient that no optim_step has used; save after the step"
            )
        moments: dict[str, Tensor] = {}
        for key, parameter in self._named.items():
            state = self._optimizer.state.get(parameter, {})
            moments |= {f"{field}/{key}": value for field, value in state.items()}
        write_checkpoint(
            self._path(name),
            source=self._adapted if self._adapted is not None else self._weights.module,
            tokenizer=self._tokenizer,
            moments=moments,
            state={"model": self._model, "steps": self._steps, "adapter": self._adapter()},
        )

    def _adapter(self) -> dict[str, float] | None:
        """What must be the same for the weights of an adapter to mean the same."""
        if self._adapted is None:
            return None
        config = self._adapted.peft_config["default"]
        return {"rank": config.r, "alpha": float(config.lora_alpha)}

    def _path(self, name: str) -> Path:
        if not re.fullmatch(r"\w[\w.-]*", name):
            raise ConfigError(
                f"{name!r} is no name for a checkpoint: use letters, digits, dashes and dots"
            )
        return self._folder / name

    def _load(self, name: str) -> Work[None]:
        yield
        found = read_checkpoint(self._path(name), adapter=self._adapter(), named=self._named)
        self._weights.before_change()
        with torch.no_grad():
            for key, parameter in self._named.items():
                parameter.copy_(found.weights[key])
        self._weights.changed()
        self._optimizer.state.clear()
        for key, parameter in self._named.items():
            state = {
                field: found.moments[f"{field}/{key}"].to(parameter.device)
                for field in MOMENTS
                if f"{field}/{key}" in found.moments
            }
            if state:
                self._optimizer.state[parameter] = state
        torch.set_rng_state(found.rng)
        self._steps = found.steps
        self._gradient = None


def _needed(datum: Datum) -> Any:
    """The positions whose log-probabilities are asked for."""
    return np.flatnonzero((datum.mask > 0) | (datum.weights != 0))
