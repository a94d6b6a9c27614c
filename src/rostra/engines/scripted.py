"""An engine with no model: fixed or computed replies, instant and deterministic.

The words come from a script; the numbers are real. Token ids are bytes, and log-probabilities come
from a softmax over the 260 tokens with one logit each, which the trainer really trains: a whole
run, training loop included, can be rehearsed anywhere, and its losses and gradients are true.
"""

import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from rostra.engines.arrays import FloatArray, IntArray
from rostra.engines.bytechat import END, HEADERS, VOCABULARY, ByteChat, decode, encode, transcribe
from rostra.engines.losses import loss_terms
from rostra.engines.offsets import DecodedTokens
from rostra.engines.sampling import Completion, SamplingParams, StopReason
from rostra.engines.training import Adam, Datum, Loss, TrainOutput
from rostra.errors import ConfigError, DataError, EngineError
from rostra.seeds import derive


class Prompt:
    """What a scripted model is asked. Decoded only as far as the script reads it."""

    def __init__(self, tokens: IntArray) -> None:
        self.tokens = tokens

    @cached_property
    def text(self) -> str:
        """The whole prompt, control tokens written out."""
        return transcribe(self.tokens)

    @cached_property
    def last(self) -> str:
        """The last message of the user."""
        starts = np.flatnonzero(self.tokens == HEADERS["user"])
        return transcribe(self.tokens[starts[-1] :] if len(starts) else self.tokens)


Script = Callable[[Prompt, int], str]
"""What a scripted model says: a function of its prompt and a seed."""


def replies(texts: Iterable[str]) -> Script:
    """A script that says these texts one after the other, whatever it is asked."""
    queue = deque(texts)
    length = len(queue)

    def reply(prompt: Prompt, seed: int) -> str:
        if not queue:
            raise EngineError(f"the script has no reply left: all {length} are spoken")
        return queue.popleft()

    return reply


class ScriptedSampler:
    """Says what the script says, and scores with one set of logits."""

    def __init__(self, reply: Script, logits: FloatArray) -> None:
        self._reply = reply
        self._logits = logits
        self._tables: dict[float, FloatArray] = {}

    async def sample(
        self, prompt: IntArray, n: int, params: SamplingParams
    ) -> Sequence[Completion]:
        asked = Prompt(prompt)
        seeds = [params.seed] if n == 1 else [derive(params.seed, i) for i in range(n)]
        return [self._complete(self._reply(asked, seed), params) for seed in seeds]

    async def score(self, tokens: IntArray, start: int) -> FloatArray:
        return self._logprobs(tokens[start:], 1.0)

    def _complete(self, text: str, params: SamplingParams) -> Completion:
        tokens = _cut_at_stop(text, params)
        stop_reason: StopReason = "stop"
        if len(tokens) > params.max_tokens:
            tokens, stop_reason = tokens[: params.max_tokens], "length"
        said = _decode(text, tokens)
        logprobs = self._logprobs(tokens, params.temperature)
        return Completion(said.text, tokens, logprobs, said.starts, stop_reason)

    def _logprobs(self, tokens: IntArray, temperature: float) -> FloatArray:
        if temperature not in self._tables:
            # A greedy choice is certain; a model would report log 1 = 0 as well.
            table = log_softmax(self._logits / temperature) if temperature else 0 * self._logits
            self._tables[temperature] = table.astype(np.float32)
        return self._tables[temperature][tokens]


_COUNT = np.arange(8192, dtype=np.int32)
"""Where ASCII tokens start. Replies share it."""
_COUNT.flags.writeable = False


def _decode(text: str, tokens: IntArray) -> DecodedTokens:
    """The text of tokens that were cut from the beginning of `text`."""
    if not text.isascii():
        return decode(tokens)
    if len(tokens) > len(_COUNT):
        return decode(tokens)
    return DecodedTokens(text[: len(tokens)], _COUNT[: len(tokens)])


def _cut_at_stop(text: str, params: SamplingParams) -> IntArray:
    """The tokens of a reply up to and with its first stop, or with the end of the turn."""
    cuts = [
        at + len(stop)
        for stop in params.stop
        if isinstance(stop, str) and (at := text.find(stop)) >= 0
    ]
    if cuts:
        return encode(text[: min(cuts)])
    tokens = np.append(encode(text), np.uint16(END))
    ids = [stop for stop in params.stop if isinstance(stop, int)]
    hits = np.flatnonzero(np.isin(tokens, ids))
    return tokens[: hits[0] + 1] if len(hits) else tokens


def log_softmax(logits: FloatArray) -> FloatArray:
    shifted = logits - logits.max()
    return np.asarray(shifted - np.log(np.exp(shifted).sum()))


class ScriptedTrainer:
    """Trains one logit per token, whatever came before it: the smallest honest language model."""

    def __init__(self, reply: Script, folder: Path) -> None:
        self._reply = reply
        self._folder = folder
        self._logits = np.zeros(VOCABULARY)
        self._gradient = np.zeros(VOCABULARY)
        self._moments = np.zeros((2, VOCABULARY))
        self._steps = 0

    async def forward(self, data: Sequence[Datum]) -> Sequence[FloatArray]:
        return [self._score(datum) for datum in data]

    async def forward_backward(self, data: Sequence[Datum], loss: Loss) -> TrainOutput:
        logprobs = [self._score(datum) for datum in data]
        total = 0.0
        for datum, scored in zip(data, logprobs, strict=True):
            terms = loss_terms(loss, scored, datum)
            total += terms.loss
            # d(-sum w logp)/dlogits = (softmax * sum w - sum of w at each target) / temperature
            pulled = np.bincount(datum.targets, terms.pull, VOCABULARY)
            softmax = np.exp(self._table(datum))
            self._gradient += (softmax * terms.pull.sum() - pulled) / datum.temperature
        return TrainOutput(total, logprobs)

    async def optim_step(self, adam: Adam) -> Mapping[str, float]:
        gradient = self._gradient
        norm = float(np.linalg.norm(gradient))
        if adam.clip_norm and norm > adam.clip_norm:
            gradient = gradient * (adam.clip_norm / norm)
        self._steps += 1
        first, second = self._moments
        first[:] = adam.beta1 * first + (1 - adam.beta1) * gradient
        second[:] = adam.beta2 * second + (1 - adam.beta2) * gradient**2
        step = first / (1 - adam.beta1**self._steps)
        scale = np.sqrt(second / (1 - adam.beta2**self._steps)) + adam.eps
        self._logits *= 1 - adam.learning_rate * adam.weight_decay
        self._logits -= adam.learning_rate * step / scale
        self._gradient = np.zeros(VOCABULARY)
        return {"grad_norm": norm}

    async def sampler(self) -> ScriptedSampler:
        return ScriptedSampler(self._reply, self._logits.copy())

    async def save(self, name: str) -> None:
        state = {
            "logits": self._logits.tolist(),
            "moments": self._moments.tolist(),
            "steps": self._steps,
        }
        self._folder.mkdir(parents=True, exist_ok=True)
        part = self._folder / f"{name}.json.part"
        with part.open("w") as file:
            json.dump(state, file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self._folder / f"{name}.json")

    async def load(self, name: str) -> None:
        path = self._folder / f"{name}.json"
        try:
            state = json.loads(path.read_text())
            logits = np.array(state["logits"], np.float64)
            moments = np.array(state["moments"], np.float64)
            if logits.shape != (VOCABULARY,) or moments.shape != (2, VOCABULARY):
                raise ValueError("wrong shape")
            self._logits, self._moments, self._steps = logits, moments, int(state["steps"])
        except FileNotFoundError:
            raise DataError(f"{path}: no such checkpoint") from None
        except (ValueError, KeyError, TypeError):
            raise DataError(f"{path}: not a checkpoint of the scripted engine") from None
        self._gradient = np.zeros(VOCABULARY)

    def _score(self, datum: Datum) -> FloatArray:
        return self._table(datum)[datum.targets]

    def _table(self, datum: Datum) -> FloatArray:
        if datum.temperature <= 0:
            raise ConfigError(
                "a datum was sampled at temperature 0, where log-probabilities have no gradient; "
                "sample at a temperature above 0 to train"
            )
        return log_softmax(self._logits / datum.temperature)


class ScriptedEngine:
    """Rehearses anything an engine can do."""

    name = "scripted"

    def __init__(self, script: Script | Iterable[str], folder: Path | None = None) -> None:
        self._reply = script if callable(script) else replies(script)
        self._folder = folder
        self.chat = ByteChat()

    async def sampler(self) -> ScriptedSampler:
        return ScriptedSampler(self._reply, np.zeros(VOCABULARY))

    async def policy(self) -> ScriptedSampler:
        return await self.sampler()

    async def trainer(self) -> ScriptedTrainer:
        if self._folder is None:
            raise ConfigError("the scripted engine needs a folder for checkpoints to train")
        return ScriptedTrainer(self._reply, self._folder)
