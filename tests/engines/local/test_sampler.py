"""Sampling with a real model: the right tokens, whoever else is in the batch."""

import asyncio
import gc
import logging
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from rostra.engines.local import cache as cache_module  # noqa: E402
from rostra.engines.local import scheduler as scheduler_module  # noqa: E402
from rostra.engines.local.cache import BLOCK  # noqa: E402
from rostra.engines.local.engine import LocalEngine, SamplerOptions  # noqa: E402
from rostra.engines.local.lora import Lora  # noqa: E402
from rostra.engines.local.toy import END, toy_model, toy_tokenizer  # noqa: E402
from rostra.engines.sampling import Completion, SamplingParams  # noqa: E402
from rostra.engines.training import Adam, Datum  # noqa: E402
from rostra.errors import ConfigError, EngineError, EngineUnavailable, RostraError  # noqa: E402

VOCABULARY = 633
TOKEN_BYTES = 2048
"""Keys and values of one token of the toy."""
LOUDER = 3.5
HEAP = "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory"


def louder(module: Any) -> None:
    """Random weights as they come repeat one token for ever; larger ones say something."""
    with torch.no_grad():
        for weight in module.parameters():
            if weight.dim() == 2:
                weight.mul_(LOUDER)


def make_loud(engine: LocalEngine) -> LocalEngine:
    louder(engine.weights.module)
    engine.weights.changed()
    # What is kept goes with the last sampler of its weights.
    engine.held = run(engine.sampler())  # type: ignore[attr-defined]
    return engine


@pytest.fixture(scope="module")
def loud() -> Any:
    """An engine with something to say. Tests must leave it as it is."""
    engine = make_loud(LocalEngine("toy"))
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def plain() -> Any:
    """The same model, as transformers runs it."""
    module, _ = toy_model(0)
    louder(module)
    return module.eval()


@pytest.fixture(autouse=True)
def nothing_kept(request: pytest.FixtureRequest) -> None:
    """Every test begins with an empty cache."""
    if "loud" in request.fixturenames:
        request.getfixturevalue("loud").scheduler.cache.drop()


def run(work: Coroutine[Any, Any, Any], seconds: float = 60) -> Any:
    """A hang is a failure too."""
    return asyncio.run(asyncio.wait_for(work, seconds))


def prompt(size: int, seed: int = 0) -> Any:
    return np.random.default_rng([size, seed]).integers(3, VOCABULARY, size)


class Ask(NamedTuple):
    """One request."""

    prompt: Any
    params: SamplingParams


async def ask(engine: LocalEngine, asks: Sequence[Ask]) -> list[Completion]:
    """All at the same time."""
    sampler = await engine.sampler()
    found = await asyncio.gather(*(sampler.sample(a.prompt, 1, a.params) for a in asks))
    return [completion for (completion,) in found]


def replies(engine: LocalEngine, asks: Sequence[Ask]) -> list[Completion]:
    return run(ask(engine, asks))  # type: ignore[no-any-return]


def reply(engine: LocalEngine, tokens: Any, **params: Any) -> Completion:
    return replies(engine, [Ask(tokens, SamplingParams(**params))])[0]


def scores(engine: LocalEngine, tokens: Any, start: int) -> Any:
    async def score() -> Any:
        return await (await engine.sampler()).score(tokens, start)

    return run(score())


def one_by_one(engine: LocalEngine, asks: Sequence[Ask]) -> list[Completion]:
    """Alone, with nothing kept from before."""
    found = []
    for each in asks:
        engine.scheduler.cache.drop()
        found += replies(engine, [each])
    return found


def logits_of(plain: Any, tokens: Any) -> Any:
    with torch.inference_mode():
        return plain(torch.tensor(np.asarray(tokens))[None]).logits[0].double().numpy()


def log_softmax(values: Any) -> Any:
    values = values - values.max(-1, keepdims=True)
    return values - np.log(np.exp(values).sum(-1, keepdims=True))


def forced(plain: Any, tokens: Any, start: int) -> Any:
    """Log-probabilities of tokens[start:] by one plain pass."""
    rows = log_softmax(logits_of(plain, tokens))[start - 1 : -1]
    return np.take_along_axis(rows, np.asarray(tokens)[start:, None], -1)[:, 0]


def truncated(logits: Any, heat: float, top_p: float, top_k: int) -> Any:
    """Log-probabilities of the distribution that is meant, for one row."""
    chances = np.exp(log_softmax(logits / heat))
    ranked = np.argsort(-chances, kind="stable")[: top_k or None]
    within = chances[ranked] / chances[ranked].sum()
    kept = ranked[np.cumsum(within) - within < top_p] if top_p < 1 else ranked
    result = np.full(len(logits), -np.inf)
    result[kept] = np.log(chances[kept] / chances[kept].sum())
    return result


def same(found: Sequence[Completion], expected: Sequence[Completion]) -> None:
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert a.tokens.tolist() == b.tokens.tolist(), f"reply {i}"
        assert a.text == b.text and a.stop_reason == b.stop_reason
        assert np.allclose(a.logprobs, b.logprobs, atol=1e-4)
        assert a.plain is not None and b.plain is not None
        assert np.allclose(a.plain, b.plain, atol=1e-4)


def crowd(size: int, longest: int = 110, seed: int = 0) -> list[Ask]:
    """Ragged requests of all kinds; half of them share a beginning."""
    rng = np.random.default_rng(seed)
    shared = prompt(70, 1)
    asks = []
    for i in range(size):
        own = prompt(int(rng.integers(1, longest - 69)), 100 + i)
        params = SamplingParams(
            max_tokens=int(rng.integers(1, 30)),
            temperature=[1.0, 0.0, 0.6, 1.4][i % 4],
            top_p=[1.0, 0.8, 1.0][i % 3],
            top_k=[0, 0, 40, 0, 5][i % 5],
            seed=int(rng.integers(2**63)),
        )
        asks.append(Ask(np.concatenate([shared, own]) if i % 2 else own, params))
    return asks


def no_eos(completion: Completion) -> bool:
    return completion.stop_reason == "length"


# What is sampled


def test_greedy_is_what_transformers_generates(loud: LocalEngine, plain: Any) -> None:
    sizes = [(1, 30), (5, 40), (16, 7), (17, 25), (64, 40), (65, 33), (130, 20), (33, 1), (200, 12)]
    asks = [
        Ask(prompt(size), SamplingParams(max_tokens=limit, temperature=0)) for size, limit in sizes
    ]
    found = replies(loud, asks)
    for each, completion in zip(asks, found, strict=True):
        tokens = torch.tensor(each.prompt)[None]
        with torch.inference_mode():
            expected = plain.generate(
                tokens,
                attention_mask=torch.ones_like(tokens),
                do_sample=False,
                max_new_tokens=each.params.max_tokens,
            )[0, len(each.prompt) :]
        assert completion.tokens.tolist() == expected.tolist()
        assert (completion.logprobs == 0).all()
    assert len({token for completion in found for token in completion.tokens.tolist()}) > 50


def test_log_probabilities_are_those_of_teacher_forcing(loud: LocalEngine, plain: Any) -> None:
    asks = crowd(24)
    cut = 0
    for each, completion in zip(asks, replies(loud, asks), strict=True):
        whole = np.concatenate([each.prompt, completion.tokens])
        assert completion.plain is not None
        expected = forced(plain, whole, len(each.prompt))
        assert np.allclose(completion.plain, expected, atol=1e-4)
        if each.params.temperature == 0:
            assert (completion.logprobs == 0).all()
            continue
        rows = logits_of(plain, whole)[len(each.prompt) - 1 : -1]
        for row, token, logprob in zip(rows, completion.tokens, completion.logprobs, strict=True):
            params = each.params
            meant = truncated(row, params.temperature, params.top_p, params.top_k)
            assert logprob == pytest.approx(meant[token], abs=1e-4)
            cut += int(np.isneginf(meant).any())
    assert cut > 20  # truncation did happen


def test_replies_follow_the_model(loud: LocalEngine, plain: Any) -> None:
    """First tokens of many replies, in ten bins of equal probability."""
    tokens = prompt(20)
    chances = np.exp(log_softmax(logits_of(plain, tokens)[-1]))
    bins = np.minimum((np.cumsum(chances) - chances / 2) * 10, 9).astype(int)
    sampler = run(loud.sampler())
    params = SamplingParams(max_tokens=1, seed=5)
    found = [c.tokens[0] for c in run(sampler.sample(tokens, 1500, params))]
    expected = np.bincount(bins, chances, 10) * len(found)
    counts = np.bincount(bins[found], minlength=10)
    assert ((counts - expected) ** 2 / expected).sum() < 27.9  # p = 0.001 with 9 degrees


def test_one_choice_is_greedy(loud: LocalEngine) -> None:
    greedy = reply(loud, prompt(30), max_tokens=20, temperature=0)
    for cut in ({"top_k": 1}, {"top_p": 1e-6}, {"top_k": 1, "temperature": 2.0}):
        found = reply(loud, prompt(30), max_tokens=20, seed=3, **cut)
        assert found.tokens.tolist() == greedy.tokens.tolist()
        assert np.allclose(found.logprobs, 0, atol=1e-6)


def test_seeds_matter_and_n_replies_differ(loud: LocalEngine) -> None:
    sampler = run(loud.sampler())
    params = SamplingParams(max_tokens=12, seed=1)
    several = run(sampler.sample(prompt(20), 5, params))
    assert len({tuple(c.tokens) for c in several}) == 5
    again = run(sampler.sample(prompt(20), 5, params))
    same(again, several)
    others = run(sampler.sample(prompt(20), 5, replace(params, seed=2)))
    assert not {tuple(c.tokens) for c in others} & {tuple(c.tokens) for c in several}


# Who else is there


@pytest.fixture(scope="module")
def alone(loud: LocalEngine) -> list[Completion]:
    """Forty ragged requests, each by itself."""
    return one_by_one(loud, crowd(40))


def test_a_reply_does_not_depend_on_who_else_is_in_the_batch(
    loud: LocalEngine, alone: list[Completion]
) -> None:
    same(replies(loud, crowd(40)), alone)
    assert len({c.tokens.size for c in alone}) > 10


def test_a_reply_does_not_depend_on_the_order_they_came_in(
    loud: LocalEngine, alone: list[Completion]
) -> None:
    same(replies(loud, crowd(40)[::-1]), alone[::-1])


def test_a_reply_does_not_depend_on_what_is_kept(
    loud: LocalEngine, alone: list[Completion]
) -> None:
    replies(loud, crowd(40))
    before = loud.counts.reused
    same(replies(loud, crowd(40)), alone)
    assert loud.counts.reused - before > 1000


@pytest.mark.parametrize(
    ("options", "size"),
    [
        (SamplerOptions(lanes=1), 16),
        (SamplerOptions(lanes=3, prefill_tokens=7), 20),
        (SamplerOptions(prefill_tokens=1), 8),
        (SamplerOptions(fast=False), 40),
        (SamplerOptions(cache_bytes=1), 10),
    ],
    ids=["one lane", "three lanes", "one prompt token", "not fast", "no cache"],
)
def test_a_reply_does_not_depend_on_the_options(
    fresh: Callable[..., LocalEngine],
    alone: list[Completion],
    options: SamplerOptions,
    size: int,
) -> None:
    engine = make_loud(fresh(sampling=options))
    same(replies(engine, crowd(40)[:size]), alone[:size])


def test_a_reply_does_not_depend_on_room(
    fresh: Callable[..., LocalEngine], alone: list[Completion]
) -> None:
    limit = 700 * TOKEN_BYTES
    engine = make_loud(fresh(sampling=SamplerOptions(cache_bytes=limit)))
    same(replies(engine, crowd(40)), alone)
    assert engine.scheduler.cache.dropped > 0
    assert engine.scheduler.cache.bytes <= limit


@pytest.fixture(scope="module")
def growing(loud: LocalEngine) -> tuple[list[Ask], list[Completion]]:
    """Requests for replies that outgrow the place they begin with, and those replies."""
    asks = [
        Ask(prompt(41 + i), SamplingParams(max_tokens=160, temperature=0.9, seed=i))
        for i in range(10)
    ]
    pairs = [(a, c) for a, c in zip(asks, replies(loud, asks), strict=True) if no_eos(c)]
    assert len(pairs) >= 3
    return [a for a, _ in pairs[:3]], [c for _, c in pairs[:3]]


def test_a_reply_that_lost_its_place_is_the_same(
    fresh: Callable[..., LocalEngine], growing: tuple[list[Ask], list[Completion]]
) -> None:
    """Three replies outgrow their places together, and there is no room for that."""
    asks, expected = growing
    limit = 3 * 192 * TOKEN_BYTES
    engine = make_loud(fresh(sampling=SamplerOptions(cache_bytes=limit)))
    same(replies(engine, asks), expected)
    assert engine.counts.preempted > 0
    assert engine.scheduler.cache.bytes <= limit


def test_scores_survive_a_lost_place(
    fresh: Callable[..., LocalEngine], growing: tuple[list[Ask], list[Completion]], plain: Any
) -> None:
    """A long text is scored slowly beside a reply that grows: the younger one has to go."""
    asks, expected = growing[0][:1], growing[1][:1]
    options = SamplerOptions(cache_bytes=2 * 192 * TOKEN_BYTES, prefill_tokens=1)
    engine = make_loud(fresh(sampling=options))
    long = prompt(190, 9)

    async def both() -> Any:
        sampler = await engine.sampler()
        sampling = asyncio.create_task(ask(engine, asks))
        while engine.counts.sampled < 60:
            await asyncio.sleep(0.001)
        score = asyncio.create_task(sampler.score(long, 5))
        return await sampling, await score

    found, score = run(both())
    assert engine.counts.preempted > 0
    assert np.allclose(score, forced(plain, long, 5), atol=1e-4)
    same(found, expected)


def test_the_next_turn_comes_also_when_it_needs_a_larger_place_than_there_is(
    loud: LocalEngine, fresh: Callable[..., LocalEngine]
) -> None:
    """Nobody else is there: the bound must give way, or what is kept must go."""
    engine = make_loud(fresh(sampling=SamplerOptions(cache_bytes=100 * TOKEN_BYTES)))
    first = reply(engine, prompt(40), max_tokens=10)
    longer = np.concatenate([prompt(40), first.tokens, prompt(70, 1)])
    expected = reply(loud, longer, max_tokens=5)
    same([run(ask_one(engine, longer, max_tokens=5), 5)], [expected])


async def ask_one(engine: LocalEngine, tokens: Any, **params: Any) -> Completion:
    return (await ask(engine, [Ask(tokens, SamplingParams(**params))]))[0]


# What is computed


def cost(engine: LocalEngine, work: Callable[[], Any]) -> tuple[int, int]:
    """Tokens computed and tokens reused."""
    computed, reused = engine.counts.computed, engine.counts.reused
    work()
    return engine.counts.computed - computed, engine.counts.reused - reused


def test_the_next_turn_computes_only_what_is_new(loud: LocalEngine) -> None:
    history, kept = prompt(50), 0
    for turn in range(4):
        computed, reused = loud.counts.computed, loud.counts.reused
        said = reply(loud, history, max_tokens=20, seed=4)
        assert no_eos(said)
        assert loud.counts.reused - reused == kept
        assert loud.counts.computed - computed == len(history) - kept + len(said.tokens) - 1
        kept = len(history) + len(said.tokens) - 1
        history = np.concatenate([history, said.tokens, prompt(10, turn)])


def test_n_replies_compute_their_prompt_once(loud: LocalEngine) -> None:
    sampler = run(loud.sampler())
    found: list[Completion] = []
    params = SamplingParams(max_tokens=8)
    computed, reused = cost(loud, lambda: found.extend(run(sampler.sample(prompt(300), 4, params))))
    assert computed <= 300 + 3 + sum(len(c.tokens) - 1 for c in found)
    assert reused >= 3 * 299


def test_the_same_prompt_again_is_not_computed_again(loud: LocalEngine) -> None:
    reply(loud, prompt(100), max_tokens=3)
    computed, reused = cost(loud, lambda: reply(loud, prompt(100), max_tokens=1, seed=1))
    assert (computed, reused) == (1, 99)


def test_requests_at_the_same_time_compute_a_common_beginning_once(loud: LocalEngine) -> None:
    shared = prompt(400)
    asks = [
        Ask(np.concatenate([shared, prompt(6, i)]), SamplingParams(max_tokens=1, seed=i))
        for i in range(8)
    ]
    computed, reused = cost(loud, lambda: replies(loud, asks))
    assert computed <= 400 + 8 * (6 + BLOCK)
    assert reused >= 7 * (400 - BLOCK)


def test_a_common_beginning_is_computed_once_also_in_small_steps(
    fresh: Callable[..., LocalEngine], loud: LocalEngine
) -> None:
    engine = make_loud(fresh(sampling=SamplerOptions(prefill_tokens=50)))
    shared = prompt(400)
    asks = [
        Ask(np.concatenate([shared, prompt(6, i)]), SamplingParams(max_tokens=3, seed=i))
        for i in range(8)
    ]
    computed, _ = cost(engine, lambda: same(replies(engine, asks), one_by_one(loud, asks)))
    assert computed <= 400 + 8 * (6 + BLOCK + 2)


@pytest.mark.parametrize("together", [False, True])
def test_two_scores_with_one_beginning_cost_one_prefill(loud: LocalEngine, together: bool) -> None:
    shared = prompt(250)
    texts = [np.concatenate([shared, prompt(30, i)]) for i in range(2)]

    async def both() -> None:
        sampler = await loud.sampler()
        await asyncio.gather(*(sampler.score(text, 251) for text in texts))

    def work() -> None:
        if together:
            run(both())
        else:
            for text in texts:
                scores(loud, text, 251)

    computed, reused = cost(loud, work)
    assert computed <= 250 + 2 * 30 + 1
    assert reused >= 249


def test_a_score_leaves_its_text_for_the_next_turn(loud: LocalEngine) -> None:
    text = prompt(120)
    scores(loud, text, 100)
    computed, _ = cost(loud, lambda: reply(loud, text, max_tokens=1))
    assert computed <= 2


def test_policies_do_not_share_what_is_kept(fresh: Callable[..., LocalEngine]) -> None:
    engine = fresh(lora=Lora(rank=4))
    text = prompt(100)

    async def both() -> tuple[Any, Any, int]:
        base = await engine.sampler()
        trainer = await engine.trainer()
        adapted = await trainer.sampler()
        await teach(trainer, 0.05)
        old = await base.score(text, 1)
        trained = await trainer.sampler()
        before = engine.counts.reused
        new = await trained.score(text, 1)
        await adapted.score(text, 60)
        return old, new, engine.counts.reused - before

    old, new, reused = run(both())
    assert np.abs(old - new).max() > 1e-3
    assert reused == 0


# Scores


@pytest.mark.parametrize("size", [2, 16, 17, 40])
def test_scores_are_those_of_teacher_forcing_from_every_start(
    loud: LocalEngine, plain: Any, size: int
) -> None:
    text = prompt(size)
    expected = forced(plain, text, 1)
    for start in range(1, size + 1):
        found = scores(loud, text, start)
        assert found.shape == (size - start,)
        assert np.allclose(found, expected[start - 1 :], atol=1e-4)


def test_scores_go_across_steps(loud: LocalEngine, plain: Any) -> None:
    text = prompt(1100)
    expected = forced(plain, text, 1)
    for start in (1, 512, 513, 514, 1025, 1099):
        loud.scheduler.cache.drop()
        assert np.allclose(scores(loud, text, start), expected[start - 1 :], atol=1e-4)


def test_scores_in_small_steps_beside_replies(
    fresh: Callable[..., LocalEngine], loud: LocalEngine, plain: Any
) -> None:
    engine = make_loud(fresh(sampling=SamplerOptions(prefill_tokens=7)))
    texts = [prompt(size) for size in (2, 7, 8, 9, 15, 40, 71)]
    asks = crowd(6)

    async def both() -> Any:
        sampler = await engine.sampler()
        pairs = [(text, start) for text in texts for start in {1, len(text) // 2, len(text) - 1}]
        tasks = [asyncio.create_task(sampler.score(text, start)) for text, start in pairs]
        sampled = await ask(engine, asks)
        return sampled, pairs, [await task for task in tasks]

    sampled, pairs, found = run(both())
    same(sampled, one_by_one(loud, asks))
    for (text, start), score in zip(pairs, found, strict=True):
        assert np.allclose(score, forced(plain, text, start), atol=1e-4)


def test_scoring_begins_after_the_first_token(loud: LocalEngine) -> None:
    for start in (0, -1, 11):
        with pytest.raises(ConfigError, match=f"start = {start}"):
            scores(loud, prompt(10), start)
    assert scores(loud, prompt(10), 10).shape == (0,)


def test_what_was_sampled_scores_the_same(loud: LocalEngine) -> None:
    found = reply(loud, prompt(30), max_tokens=40, temperature=0.7, seed=2)
    text = np.concatenate([prompt(30), found.tokens])
    assert np.allclose(scores(loud, text, 30), found.plain, atol=1e-4)


# Where a reply ends


def spelt(engine: LocalEngine, tokens: Any) -> list[bytes]:
    table = engine.scheduler._spelling.table
    return [table[token] for token in tokens]


def borders(pieces: list[bytes]) -> list[tuple[str, int]]:
    """Strings that span the borders of tokens, and the number of the token they end in."""
    found = []
    for width in (2, 3):
        for i in range(len(pieces) - width + 1):
            raw = pieces[i][-1:] + b"".join(pieces[i + 1 : i + width - 1])
            raw += pieces[i + width - 1][:1]
            if all(pieces[i : i + width]) and raw.isascii() and raw.decode().isprintable():
                found.append((raw.decode(), i + width - 1))
    return found


def first_end(pieces: list[bytes], stops: Sequence[str]) -> int:
    """The token in which a stop string is complete for the first time."""
    for i in range(len(pieces)):
        if any(stop.encode() in b"".join(pieces[: i + 1]) for stop in stops):
            return i
    return len(pieces)


def test_stop_strings_end_a_reply_also_across_tokens(loud: LocalEngine) -> None:
    params = SamplingParams(max_tokens=40)
    whole = replies(loud, [Ask(prompt(20), replace(params, seed=seed)) for seed in range(12)])
    asks, ends = [], []
    for seed, completion in enumerate(whole):
        pieces = spelt(loud, completion.tokens)
        for stop, last in borders(pieces):
            for stops in ((stop,), ("never said, of course", stop)):
                asks.append(Ask(prompt(20), replace(params, seed=seed, stop=stops)))
                assert first_end(pieces, stops) <= last
                ends.append((completion, first_end(pieces, stops)))
    assert len(asks) >= 40
    for found, (completion, last) in zip(replies(loud, asks[:120]), ends[:120], strict=True):
        assert found.stop_reason == "stop"
        assert found.tokens.tolist() == completion.tokens[: last + 1].tolist()
        assert np.array_equal(found.starts, completion.starts[: last + 1])


def test_a_stop_string_inside_a_token_keeps_the_whole_token(loud: LocalEngine) -> None:
    whole = replies(
        loud, [Ask(prompt(20), SamplingParams(max_tokens=60, seed=seed)) for seed in range(8)]
    )
    tried = 0
    for seed, completion in enumerate(whole):
        pieces = spelt(loud, completion.tokens)
        long = [piece for piece in pieces if len(piece) >= 4 and piece.isascii()]
        for piece in long[:2]:
            stop = piece[1:3].decode()
            found = reply(loud, prompt(20), max_tokens=60, seed=seed, stop=(stop,))
            last = first_end(pieces, [stop])
            assert found.tokens.tolist() == completion.tokens[: last + 1].tolist()
            assert stop in found.text and found.stop_reason == "stop"
            tried += 1
    assert tried >= 4


def test_a_stop_string_of_several_bytes_is_found_across_tokens(
    loud: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drawn tokens are scripted: the bytes of a character, one by one."""
    script = toy_tokenizer().encode("a\u6570b\U0001f600c", add_special_tokens=False)
    whole = scripted(loud, monkeypatch, script, ())
    assert whole.text == "a\u6570b\U0001f600c"
    assert whole.starts.tolist() == [0, 1, 1, 1, 2, 3, 3, 3, 3, 4]
    for stop, count in (("\u6570", 4), ("\u6570b", 5), ("b\U0001f600", 9), ("\U0001f600c", 10)):
        found = scripted(loud, monkeypatch, script, (stop,))
        assert found.tokens.tolist() == script[:count]
        assert found.text.endswith(stop)
        assert found.stop_reason == ("stop")
    cut = scripted(loud, monkeypatch, script[:3], ())
    assert cut.text == "a\ufffd\ufffd"
    assert cut.starts.tolist() == [0, 1, 2]
    assert cut.stop_reason == "length"


def test_a_stop_string_is_not_matched_across_an_end_or_in_the_prompt(
    loud: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = toy_tokenizer()
    asked = np.array(tokenizer.encode("the answer is", add_special_tokens=False))
    script = tokenizer.encode(" yes", add_special_tokens=False) * 3
    found = scripted(loud, monkeypatch, script, ("is yes",), asked)
    assert found.tokens.tolist() == script and found.stop_reason == "length"


def scripted(
    engine: LocalEngine,
    monkeypatch: pytest.MonkeyPatch,
    script: list[int],
    stop: tuple[str, ...],
    tokens: Any = None,
) -> Completion:
    """A reply whose logits leave no choice."""
    forward = engine.scheduler._forward
    step = iter(script)

    def only(*args: Any) -> Any:
        logits = torch.full_like(forward(*args), -1e4)
        if len(logits):
            logits[:, next(step)] = 0.0
        return logits

    with monkeypatch.context() as patch:
        patch.setattr(engine.scheduler, "_forward", only)
        asked = prompt(5) if tokens is None else tokens
        return reply(engine, asked, max_tokens=len(script), stop=stop)


def test_stop_tokens_end_a_reply(loud: LocalEngine) -> None:
    for seed in range(5):
        whole = reply(loud, prompt(20), max_tokens=30, seed=seed).tokens.tolist()
        for stop in (whole[3], whole[-2]):
            found = reply(loud, prompt(20), max_tokens=30, seed=seed, stop=(1, stop))
            assert found.tokens.tolist() == whole[: whole.index(stop) + 1]
            assert found.stop_reason == "stop"


def test_the_end_of_the_turn_ends_a_reply(toy: LocalEngine) -> None:
    end = toy_tokenizer().convert_tokens_to_ids(END)
    assert toy.ends == {end}
    sampler = run(toy.sampler())
    found = run(sampler.sample(prompt(10), 16, SamplingParams(max_tokens=200, seed=1)))
    ended = [c for c in found if c.stop_reason == "stop"]
    assert ended
    for completion in found:
        assert (completion.tokens[:-1] != end).all()
        if completion.stop_reason == "stop":
            assert completion.tokens[-1] == end
            assert completion.starts[-1] == len(completion.text)
        else:
            assert completion.tokens[-1] != end and len(completion.tokens) == 200
        assert END not in completion.text


def test_every_reply_has_the_text_and_the_places_of_its_bytes(loud: LocalEngine) -> None:
    broken = 0
    for completion in replies(loud, crowd(40)):
        pieces = spelt(loud, completion.tokens)
        text = b"".join(pieces).decode(errors="surrogateescape")
        ends = np.cumsum([len(c.encode(errors="surrogateescape")) for c in text])
        firsts = np.cumsum([0, *map(len, pieces)])[:-1]
        assert completion.starts.tolist() == [int((ends <= first).sum()) for first in firsts]
        lone = [0xDC80 <= ord(c) <= 0xDCFF for c in text]
        readable = "".join("\ufffd" if bad else c for bad, c in zip(lone, text, strict=True))
        assert completion.text == readable
        broken += sum(lone)
    assert broken > 10


def test_a_reply_ends_at_the_token_limit(loud: LocalEngine) -> None:
    for limit in (1, 2, 17):
        found = reply(loud, prompt(9), max_tokens=limit, temperature=0)
        assert len(found.tokens) == limit
        assert found.stop_reason == "length"
        assert len(found.logprobs) == len(found.starts) == limit


def test_a_reply_ends_where_the_context_ends(loud: LocalEngine, plain: Any) -> None:
    text = prompt(4092)
    found = reply(loud, text, max_tokens=50, temperature=0)
    assert len(found.tokens) == 4
    assert found.stop_reason == "length"
    whole = np.concatenate([text, found.tokens])
    assert np.allclose(found.plain, forced(plain, whole, 4092), atol=1e-4)
    assert len(reply(loud, whole[:4095], max_tokens=50).tokens) == 1
    assert scores(loud, whole, 4090).shape == (6,)


# What is refused


def test_a_prompt_that_does_not_fit_is_refused(loud: LocalEngine) -> None:
    with pytest.raises(EngineError, match=r"\b5000\b.*\b4096\b"):
        reply(loud, prompt(5000))
    with pytest.raises(EngineError, match=r"\b4096\b.*\b4096\b"):
        reply(loud, prompt(4096))
    with pytest.raises(EngineError, match=r"\b4097\b.*\b4096\b"):
        scores(loud, prompt(4097), 4000)


@pytest.mark.parametrize("tokens", [[], [5, -1], [5, VOCABULARY], [2**40]])
def test_a_prompt_that_makes_no_sense_is_refused(loud: LocalEngine, tokens: list[int]) -> None:
    with pytest.raises(RostraError, match="prompt"):
        reply(loud, np.array(tokens, np.int64))
    with pytest.raises(RostraError):
        scores(loud, np.array(tokens, np.int64), 1)
    assert len(reply(loud, prompt(3), max_tokens=2).tokens) == 2


@pytest.mark.parametrize(
    "options", [{"lanes": 0}, {"prefill_tokens": 0}, {"cache_bytes": -1}], ids=str
)
def test_options_that_make_no_sense_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        SamplerOptions(**options)


# Cancelling, closing, failing


def test_a_cancelled_reply_frees_its_lane(
    fresh: Callable[..., LocalEngine], loud: LocalEngine
) -> None:
    engine = make_loud(fresh(sampling=SamplerOptions(lanes=1)))
    patient = Ask(prompt(30, 1), SamplingParams(max_tokens=9))

    async def play() -> list[Completion]:
        sampler = await engine.sampler()
        greedy = SamplingParams(max_tokens=3000, temperature=0, top_k=1)
        long = asyncio.create_task(sampler.sample(prompt(20), 1, greedy))
        while engine.counts.sampled < 5:
            await asyncio.sleep(0.001)
        others = asyncio.create_task(ask(engine, [patient]))
        waiting = asyncio.create_task(sampler.sample(prompt(21), 1, greedy))
        await asyncio.sleep(0.02)
        assert not others.done()
        long.cancel()
        waiting.cancel()
        for task in (long, waiting):
            with pytest.raises(asyncio.CancelledError):
                await task
        return await others

    same(run(play()), replies(loud, [patient]))
    assert engine.counts.sampled < 1000
    assert not engine.scheduler.busy


def test_a_cancelled_reply_leaves_what_it_computed(loud: LocalEngine) -> None:
    async def play() -> None:
        sampler = await loud.sampler()
        before = loud.counts.sampled
        long = asyncio.create_task(sampler.sample(prompt(200), 3, SamplingParams(max_tokens=900)))
        while loud.counts.sampled < before + 9:
            await asyncio.sleep(0.001)
        long.cancel()
        with pytest.raises(asyncio.CancelledError):
            await long
        while loud.scheduler.busy:
            await asyncio.sleep(0.001)

    run(play())
    computed, _ = cost(loud, lambda: reply(loud, prompt(200), max_tokens=1))
    assert computed == 1


@pytest.mark.parametrize("n", [1, 3])
def test_a_closed_engine_is_unavailable(fresh: Callable[..., LocalEngine], n: int) -> None:
    engine = fresh()
    sampler = run(engine.sampler())
    run(sampler.sample(prompt(5), 1, SamplingParams(max_tokens=2)))
    engine.close()
    with pytest.raises(EngineUnavailable, match="closed"):
        run(sampler.sample(prompt(5), n, SamplingParams(max_tokens=2)))
    with pytest.raises(EngineUnavailable, match="closed"):
        run(sampler.score(prompt(5), 1))
    engine.close()


def test_closing_fails_what_is_in_flight(fresh: Callable[..., LocalEngine]) -> None:
    engine = fresh(sampling=SamplerOptions(lanes=1))

    async def play() -> None:
        sampler = await engine.sampler()
        params = SamplingParams(max_tokens=4000, temperature=0)
        tasks = [asyncio.create_task(sampler.sample(prompt(5, i), 1, params)) for i in range(3)]
        while engine.counts.sampled < 5:
            await asyncio.sleep(0.001)
        began = time.perf_counter()
        await asyncio.to_thread(engine.close)
        assert time.perf_counter() - began < 2
        for task in tasks:
            with pytest.raises(EngineUnavailable):
                await task

    run(play(), 20)


def test_closing_fails_also_who_came_during_the_last_step(
    fresh: Callable[..., LocalEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = fresh()
    forward = engine.scheduler._forward
    inside, go_on = threading.Event(), threading.Event()

    def slow(*args: Any) -> Any:
        inside.set()
        go_on.wait(20)
        return forward(*args)

    monkeypatch.setattr(engine.scheduler, "_forward", slow)

    async def play() -> None:
        sampler = await engine.sampler()
        params = SamplingParams(max_tokens=4)
        first = asyncio.create_task(sampler.sample(prompt(5), 1, params))
        assert await asyncio.to_thread(inside.wait, 10)
        second = asyncio.create_task(sampler.sample(prompt(5), 1, params))
        await asyncio.sleep(0.02)
        engine.worker.close(0)
        go_on.set()
        for task in (first, second):
            with pytest.raises(EngineUnavailable):
                await asyncio.wait_for(task, 3)

    run(play(), 30)


@pytest.mark.parametrize("n", [1, 3])
def test_a_step_that_fails_fails_who_is_in_flight_and_nobody_else(
    fresh: Callable[..., LocalEngine], monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    engine = fresh()
    sampler = run(engine.sampler())
    expected = run(sampler.sample(prompt(40), n, SamplingParams(max_tokens=6)))
    forward = engine.scheduler._forward
    left = [2]

    def broken(*args: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise ValueError("the wrong shape")
        return forward(*args)

    monkeypatch.setattr(engine.scheduler, "_forward", broken)
    with pytest.raises(EngineError, match="the wrong shape"):
        run(sampler.sample(prompt(40), n, SamplingParams(max_tokens=6)))
    same(run(sampler.sample(prompt(40), n, SamplingParams(max_tokens=6))), expected)
    engine.scheduler.cache.drop()
    assert engine.scheduler.cache.bytes == 0


# Out of memory


def out_of_memory(kind: str) -> Exception:
    return torch.OutOfMemoryError("no more") if kind == "gpu" else RuntimeError(HEAP)


@pytest.mark.parametrize(("kind", "fits"), [("gpu", 5), ("main", 1)])
def test_fewer_go_on_when_memory_runs_out(
    fresh: Callable[..., LocalEngine],
    alone: list[Completion],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kind: str,
    fits: int,
) -> None:
    engine = make_loud(fresh(sampling=SamplerOptions(lanes=16)))
    forward = engine.scheduler._forward
    rows: list[int] = []

    def small(tokens: Any, places: Any, wanted: Any, step: Any) -> Any:
        rows.append(len(step.order))
        if rows[-1] > fits:
            raise out_of_memory(kind)
        return forward(tokens, places, wanted, step)

    monkeypatch.setattr(engine.scheduler, "_forward", small)
    with caplog.at_level(logging.WARNING):
        same(replies(engine, crowd(40)[:16]), alone[:16])
    assert max(rows) > fits
    assert engine.scheduler._lanes <= fits
    assert "out of memory" in caplog.text
    assert engine.counts.preempted > 0


def test_small_steps_are_never_made_larger(
    fresh: Callable[..., LocalEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = fresh(sampling=SamplerOptions(prefill_tokens=4))
    forward = engine.scheduler._forward
    sizes: list[int] = []

    def small(tokens: Any, places: Any, wanted: Any, step: Any) -> Any:
        if len(step.order) > 1:
            raise out_of_memory("gpu")
        sizes.append(len(tokens))
        return forward(tokens, places, wanted, step)

    monkeypatch.setattr(engine.scheduler, "_forward", small)
    asks = [Ask(prompt(5 + i), SamplingParams(max_tokens=2)) for i in range(4)]
    asks.append(Ask(prompt(60), SamplingParams(max_tokens=2)))
    replies(engine, asks)
    assert max(sizes) <= 4


@pytest.mark.parametrize("first", [True, False])
def test_only_who_does_not_fit_alone_fails(
    fresh: Callable[..., LocalEngine],
    alone: list[Completion],
    monkeypatch: pytest.MonkeyPatch,
    first: bool,
) -> None:
    engine = make_loud(fresh())
    forward = engine.scheduler._forward

    def short(tokens: Any, places: Any, *rest: Any) -> Any:
        if places.max() >= 200:
            raise out_of_memory("gpu")
        return forward(tokens, places, *rest)

    monkeypatch.setattr(engine.scheduler, "_forward", short)
    asks = crowd(40)[:12]

    async def play() -> list[Any]:
        sampler = await engine.sampler()
        jobs = [sampler.sample(a.prompt, 1, a.params) for a in asks]
        jobs.insert(0 if first else 6, sampler.sample(prompt(230), 1, SamplingParams()))
        return await asyncio.gather(*jobs, return_exceptions=True)

    found = run(play())
    error = found.pop(0 if first else 6)
    assert isinstance(error, EngineError) and not isinstance(error, EngineUnavailable)
    assert "out of memory" in str(error)
    same([completion for (completion,) in found], alone[:12])
    same(replies(engine, asks[:2]), alone[:2])


@pytest.mark.parametrize("where", ["draw", "Chunk"])
def test_memory_may_run_out_anywhere(
    fresh: Callable[..., LocalEngine],
    alone: list[Completion],
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    """Not only in the model: also when drawing, or when a place for keys is made."""
    engine = make_loud(fresh())
    module = scheduler_module if where == "draw" else cache_module
    real = getattr(module, where)
    left = [2 if where == "Chunk" else 4]

    def failing(*args: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise out_of_memory("gpu")
        return real(*args)

    monkeypatch.setattr(module, where, failing)
    same(replies(engine, crowd(40)[:12]), alone[:12])
    assert left[0] < 0


# Weights that change


def datum(tokens: Any) -> Datum:
    size = len(tokens) - 1
    return Datum(
        inputs=tokens[:-1],
        targets=tokens[1:],
        logprobs=np.zeros(size),
        weights=np.ones(size),
        mask=np.ones(size, np.float32),
        streams=np.zeros(size, np.int8),
    )


async def teach(trainer: Any, rate: float) -> None:
    await trainer.forward_backward([datum(prompt(30, 77))], "cross_entropy")
    await trainer.optim_step(Adam(learning_rate=rate))


@pytest.mark.parametrize("lora", [None, Lora(rank=4)], ids=["all weights", "adapter"])
def test_a_sampler_never_sees_newer_weights(
    fresh: Callable[..., LocalEngine], lora: Lora | None
) -> None:
    engine = fresh(lora=lora)
    text = prompt(60)
    params = SamplingParams(max_tokens=10, seed=3)

    async def play() -> None:
        trainer = await engine.trainer()
        await teach(trainer, 0.02)
        samplers, before, said = [], [], []
        for _ in range(3):
            samplers.append(await trainer.sampler())
            before.append(await samplers[-1].score(text, 1))
            (today,) = await trainer.forward([datum(text)])
            assert np.allclose(before[-1], today, atol=1e-4)
            said.append((await samplers[-1].sample(text, 1, params))[0])
            await teach(trainer, 0.02)
        newest = await (await trainer.sampler()).score(text, 1)
        for _ in range(2):
            engine.scheduler.cache.drop()
            for sampler, old, words in zip(samplers, before, said, strict=True):
                assert np.allclose(await sampler.score(text, 1), old, atol=1e-5)
                same([(await sampler.sample(text, 1, params))[0]], [words])
        together = await asyncio.gather(*(s.score(text, 1) for s in samplers))
        for i, old in enumerate(before):
            assert np.allclose(together[i], old, atol=1e-5)
        for a, b in zip(before, [*before[1:], newest], strict=True):
            assert np.abs(a - b).max() > 1e-2
        assert np.allclose(await (await trainer.sampler()).score(text, 1), newest, atol=1e-5)

    run(play())


def test_a_reply_in_progress_keeps_the_weights_it_began_with(
    fresh: Callable[..., LocalEngine],
) -> None:
    text, params = prompt(20), SamplingParams(max_tokens=70, seed=1)

    async def play(train: bool) -> Completion:
        engine = fresh()
        trainer = await engine.trainer()
        sampler = await trainer.sampler()
        task = asyncio.create_task(sampler.sample(text, 1, params))
        while engine.counts.sampled < 3:
            await asyncio.sleep(0.001)
        if train:
            await teach(trainer, 0.05)
            assert not task.done()
        return (await task)[0]

    same([run(play(True))], [run(play(False))])


def test_samplers_of_the_same_weights_share_a_policy(fresh: Callable[..., LocalEngine]) -> None:
    engine = fresh()

    async def play() -> None:
        trainer = await engine.trainer()
        await (await trainer.sampler()).score(prompt(40), 1)
        first = await trainer.sampler()
        await first.score(prompt(100), 1)
        before = engine.counts.reused
        await (await trainer.sampler()).score(prompt(100), 90)
        assert engine.counts.reused - before == 89

    run(play())


@pytest.mark.parametrize("held", [True, False])
def test_old_weights_are_copied_only_for_who_still_holds_them(
    fresh: Callable[..., LocalEngine], monkeypatch: pytest.MonkeyPatch, held: bool
) -> None:
    engine = fresh()
    before_change = engine.weights.before_change
    clone = torch.Tensor.clone
    copies: list[int] = []

    def counted() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(
                torch.Tensor, "clone", lambda x, **o: (copies.append(x.numel()), clone(x, **o))[1]
            )
            before_change()

    monkeypatch.setattr(engine.weights, "before_change", counted)

    async def play() -> None:
        trainer = await engine.trainer()
        sampler = await trainer.sampler()
        await sampler.sample(prompt(40), 2, SamplingParams(max_tokens=3))
        policy = weakref.ref(sampler._policy)
        if not held:
            del sampler
            for _ in range(100):
                gc.collect()
                if policy() is None:
                    break
                await asyncio.sleep(0.01)
            assert policy() is None
        await teach(trainer, 0.01)
        if held:
            await sampler.score(prompt(5), 1)

    run(play())
    size = sum(p.numel() for p in engine.weights.module.parameters())
    assert sum(copies) == (size if held else 0)


def test_what_was_kept_for_weights_that_are_gone_is_dropped(
    fresh: Callable[..., LocalEngine],
) -> None:
    engine = fresh()

    async def play() -> None:
        trainer = await engine.trainer()
        old = await trainer.sampler()
        for seed in range(5):
            await old.sample(prompt(300, seed), 1, SamplingParams(max_tokens=2))
        del old
        gc.collect()
        await teach(trainer, 0.01)
        full = engine.scheduler.cache.bytes
        new = await trainer.sampler()
        await new.sample(prompt(20), 1, SamplingParams(max_tokens=2))
        assert engine.scheduler.cache.bytes < full

    run(play())
