"""Who gets tokens next: one batch for all requests in flight, joined and left between steps."""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from rostra.engines.arrays import FloatArray, IntArray
from rostra.engines.local.cache import BLOCK, Cache, Entry, Full
from rostra.engines.local.draw import draw, uniforms
from rostra.engines.local.request import Counts, Request
from rostra.engines.local.spelling import Spelling
from rostra.engines.local.steps import Piece, Step
from rostra.engines.local.weights import Weights
from rostra.engines.sampling import Completion, SamplingParams, StopReason
from rostra.errors import EngineError

log = logging.getLogger(__name__)

GROW = 128
"""Room that a reply begins with; most are shorter than they may be."""


class OutOfMemory(EngineError):
    """Not even one request fits."""


class Scheduler:
    """Lanes for all requests in flight. Not safe for threads: one worker owns it."""

    def __init__(
        self,
        weights: Weights,
        spelling: Spelling,
        cache: Cache,
        *,
        lanes: int,
        prefill_tokens: int,
        check: Callable[[], None],
    ) -> None:
        self.counts = Counts()
        self.cache = cache
        self._weights = weights
        self._spelling = spelling
        self._lanes = lanes
        self._prefill_tokens = prefill_tokens
        self._check = check
        self._waiting: list[Request] = []
        self._running: list[Request] = []
        self._device = next(weights.module.parameters()).device

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._running)

    def add(self, request: Request) -> None:
        self._waiting.append(request)

    def step(self) -> None:
        """One forward pass for everybody who can use it."""
        self._sweep()
        try:
            self._admit()
            if self._running:
                self._compute(self._choose())
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            self._back_off(error)

    def fail(self, error: BaseException) -> None:
        """Ends every request in the same way."""
        for request in [*self._running, *self._waiting]:
            if request.entry is not None:
                self.cache.discard(request.entry)
            request.done(error)
        self._running, self._waiting = [], []

    def _sweep(self) -> None:
        """Forgets what nobody waits for."""
        while self._weights.gone:
            self.cache.drop(self._weights.gone.popleft())
        if any(request.cancelled for request in self._running):
            for request in [r for r in self._running if r.cancelled]:
                self._leave(request)
        if any(request.cancelled for request in self._waiting):
            self._waiting = [r for r in self._waiting if not r.cancelled]

    def _admit(self) -> None:
        """Lets in whom there is room for, in the order they came. Who shares a beginning with
        somebody who is still computing it waits until it is there."""
        queue, self._waiting = self._waiting, []
        looked = 0
        try:
            for request in queue:
                entry = self._entry(request) if len(self._running) < self._lanes else None
                looked += 1
                if entry is None:
                    self._waiting.append(request)
                else:
                    request.entry = entry
                    self._running.append(request)
        except Full:
            pass
        finally:
            self._waiting += queue[looked:]

    def _entry(self, request: Request) -> Entry | None:
        """A place for a request that begins with all that is known of it, or None if it is worth
        waiting for somebody else's computation."""
        tokens = request.known()
        room = 0 if request.params is None else min(request.params.max_tokens, GROW)
        found, shared = self.cache.find(request.policy.serial, tokens)
        shared = min(shared, request.limit())
        if found is not None and shared >= BLOCK:
            if found.busy and found.length < shared and shared - found.length >= BLOCK:
                return None
            shared = min(shared, found.length)
        if found is not None and shared >= BLOCK:
            if not found.busy and (found.scratch or shared == found.length):
                self.cache.take(found, tokens, shared, room, self._alone())
                self.counts.reused += shared
                return found
            entry = self.cache.open(request.policy.serial, tokens, room, self._alone())
            if found.slot >= 0:  # making room may have dropped it
                self.cache.copy(entry, found, shared)
                self.counts.reused += shared
            return entry
        return self.cache.open(request.policy.serial, tokens, room, self._alone())

    def _alone(self) -> bool:
        return not self._running

    def _choose(self) -> list[tuple[Request, Piece]]:
        """One token for every reply in progress, and as many prompt tokens as a step takes. All
        of one policy: they take turns."""
        policies = list(dict.fromkeys(request.policy for request in self._running))
        policy = policies[self.counts.steps % len(policies)]
        budget = self._prefill_tokens
        chosen: list[tuple[Request, Piece]] = []
        for request in self._running:
            entry = request.entry
            assert entry is not None
            if request.policy is not policy:
                continue
            missing = entry.planned - entry.length
            count = min(missing, max(budget, 0)) if missing > 1 else missing
            if missing > 1:
                budget -= count
            if count:
                chosen.append((request, Piece(entry, count)))
        return chosen

    def _compute(self, batch: list[tuple[Request, Piece]]) -> None:
        with torch.inference_mode():
            by_entry = {piece.entry: request for request, piece in batch}
            step = Step([piece for _, piece in batch], self._device, self._check)
            order = [(by_entry[piece.entry], piece) for piece in step.order]
            tokens = np.concatenate(
                [e.tokens[e.length : e.length + count] for _, (e, count) in order]
            )
            places = np.concatenate(
                [np.arange(e.length, e.length + count) for _, (e, count) in order]
            )
            wanted, owners = self._wanted(order)
            with self._weights.using(batch[0][0].policy):
                logits = self._forward(tokens, places, wanted, step)
            # Nothing is written down before all is computed: what runs out of memory can go again.
            scored = self._score(logits, owners)
            drawn = self._draw(logits, owners)
        for _, (entry, count) in order:
            entry.length += count
        self.counts.steps += 1
        self.counts.computed += len(tokens)
        for request, logprobs in scored:
            self._accept_scores(request, logprobs)
        for request, token, logprob, plain in drawn:
            self._accept(request, token, logprob, plain)

    def _forward(self, tokens: IntArray, places: IntArray, wanted: IntArray, step: Step) -> Any:
        device = self._device
        return self._weights.logits(
            torch.from_numpy(tokens).to(device),
            torch.from_numpy(places).to(device),
            torch.from_numpy(wanted).to(device),
            step,
        )

    def _wanted(
        self, order: list[tuple[Request, Piece]]
    ) -> tuple[IntArray, list[tuple[Request, int]]]:
        """The rows whose logits are needed, and how many of them belong to whom."""
        rows: list[IntArray] = []
        owners: list[tuple[Request, int]] = []
        first = 0
        for request, (entry, count) in order:
            last = first + count
            if request.params is not None:
                if entry.length + count == entry.planned:
                    rows.append(np.array([last - 1]))
                    owners.append((request, 1))
            else:
                # Row r predicts the token after it; the last token predicts nothing of interest.
                begin = max(request.start - 1 - entry.length, 0)
                end = min(count, entry.planned - 1 - entry.length)
                if begin < end:
                    rows.append(np.arange(first + begin, first + end))
                    owners.append((request, end - begin))
            first = last
        wanted = np.concatenate(rows) if rows else np.zeros(0, np.int64)
        return wanted.astype(np.int64), owners

    def _draw(
        self, logits: Any, owners: list[tuple[Request, int]]
    ) -> list[tuple[Request, int, float, float]]:
        """The next token of every reply."""
        samples: list[Request] = []
        params: list[SamplingParams] = []
        rows: list[int] = []
        first = 0
        for request, count in owners:
            if request.params is not None:
                samples.append(request)
                params.append(request.params)
                rows.append(first)
            first += count
        if not samples:
            return []
        if len(rows) < len(logits):
            logits = logits[torch.tensor(rows, device=logits.device)]
        seeds = np.array([p.seed & (2**64 - 1) for p in params], np.uint64)
        places = np.array([len(request.tokens) for request in samples], np.uint64)
        drawn = draw(
            logits,
            np.array([p.temperature for p in params], np.float32),
            np.array([p.top_p for p in params], np.float32),
            np.array([p.top_k for p in params], np.int64),
            uniforms(seeds, places),
        )
        self.counts.sampled += len(samples)
        return list(zip(samples, *drawn, strict=True))

    def _accept(self, request: Request, token: int, logprob: float, plain: float) -> None:
        params, entry = request.params, request.entry
        assert params is not None
        if entry is None:  # preempted a moment ago: the same token will be drawn again
            return
        request.tokens.append(token)
        request.logprobs.append(logprob)
        request.plain.append(plain)
        if token in request.ends:
            return self._finish(request, "stop")
        if request.stops:
            before = len(request.spelt)
            request.spelt += self._spelling.table[token]
            if any(
                request.spelt.find(stop, max(before - len(stop) + 1, 0)) >= 0
                for stop in request.stops
            ):
                return self._finish(request, "stop")
        full = entry.planned + 1 >= self.cache.context
        if len(request.tokens) >= params.max_tokens or full:
            return self._finish(request, "length")
        if self._make_room(request):
            self.cache.append(entry, token)

    def _make_room(self, request: Request) -> bool:
        """Room for one more token, at the cost of the youngest lanes if need be."""
        entry = request.entry
        assert entry is not None
        wanted = entry.planned + 1
        while wanted > entry.chunk.capacity:
            try:
                self.cache.reserve(entry, wanted, force=len(self._running) == 1)
            except Full:
                youngest = self._running[-1]
                self._preempt(youngest)
                if youngest is request:
                    return False
        return True

    def _preempt(self, request: Request) -> None:
        """Takes its place away; it is computed again when there is room."""
        assert request.entry is not None
        self.cache.discard(request.entry)
        request.entry = None
        self._running.remove(request)
        self._waiting.insert(0, request)
        if request.params is None:
            request.logprobs.clear()
        self.counts.preempted += 1

    def _score(
        self, logits: Any, owners: list[tuple[Request, int]]
    ) -> list[tuple[Request, list[float]]]:
        """Log-probabilities of the tokens that are there."""
        found: list[tuple[Request, list[float]]] = []
        first = 0
        for request, count in owners:
            if request.params is None:
                begin = request.start + len(request.logprobs)
                targets = torch.from_numpy(request.prompt[begin : begin + count])
                own = logits[first : first + count].float()
                chosen = own.gather(-1, targets.to(own.device)[:, None])[:, 0]
                found.append((request, (chosen - own.logsumexp(-1)).tolist()))
            first += count
        return found

    def _accept_scores(self, request: Request, logprobs: list[float]) -> None:
        assert request.entry is not None
        request.logprobs += logprobs
        if len(request.logprobs) == len(request.prompt) - request.start:
            request.entry.scratch = True
            self._leave(request)
            request.done(_floats(request.logprobs))

    def _finish(self, request: Request, reason: StopReason) -> None:
        self._leave(request)
        said = self._spelling.decode(request.tokens)
        request.done(
            Completion(
                text=said.text,
                tokens=np.array(request.tokens, np.int64),
                logprobs=_floats(request.logprobs),
                starts=said.starts,
                stop_reason=reason,
                plain=_floats(request.plain),
            )
        )

    def _leave(self, request: Request) -> None:
        assert request.entry is not None
        self._running.remove(request)
        self.cache.release(request.entry)
        request.entry = None

    def _back_off(self, error: Exception) -> None:
        """Half the lanes, half the prompt tokens a step, nothing kept that is idle."""
        if self.cache.drop() and not self._running:
            return
        least = self._prefill_tokens <= BLOCK
        if not self._running or (len(self._running) == 1 and least):
            request = (self._running or self._waiting).pop(0)
            if request.entry is not None:
                self.cache.discard(request.entry)
            request.done(OutOfMemory(f"out of memory with a single request in flight: {error}"))
            return
        self._lanes = max(1, len(self._running) // 2)
        if not least:
            self._prefill_tokens = max(BLOCK, self._prefill_tokens // 2)
        for request in self._running[self._lanes :][::-1]:
            self._preempt(request)
        log.warning(
            "out of memory: going on with %d lanes and %d prompt tokens a step",
            self._lanes,
            self._prefill_tokens,
        )


def _floats(values: list[float]) -> FloatArray:
    return np.array(values, np.float32)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on a GPU or in main memory."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and "allocate memory" in str(error)
