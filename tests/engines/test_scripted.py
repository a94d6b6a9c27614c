"""An engine without a model: scripted words, true numbers."""

import asyncio
import contextlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rostra.engines.bytechat import END, VOCABULARY, ByteChat, encode
from rostra.engines.chat import Message
from rostra.engines.engine import Engine
from rostra.engines.sampling import Completion, SamplingParams
from rostra.engines.scripted import Prompt, ScriptedEngine, ScriptedTrainer
from rostra.engines.training import Adam, Datum, Loss
from rostra.errors import ConfigError, DataError, EngineError, RostraError
from rostra.seeds import derive

PROMPT = ByteChat().open([Message("system", "Short."), Message("user", "6 * 7?")])
WARM = Adam(learning_rate=0.1)
EVERY_TOKEN = np.arange(VOCABULARY)


def say(text: str, n: int = 1, **params: object) -> list[Completion]:
    async def run() -> list[Completion]:
        sampler = await ScriptedEngine(lambda prompt, seed: text).sampler()
        return list(await sampler.sample(PROMPT, n, SamplingParams(**params)))  # type: ignore[arg-type]

    return asyncio.run(run())


def test_it_is_an_engine_like_any_other() -> None:
    engine: Engine = ScriptedEngine(["x"])
    assert engine.name == "scripted"
    assert engine.chat.extends


def only(completions: list[Completion]) -> Completion:
    (completion,) = completions
    return completion


def trainer(folder: Path) -> ScriptedTrainer:
    return asyncio.run(ScriptedEngine(["x"], folder).trainer())


def datum(text: str, weights: Sequence[float] | float = 1.0, temperature: float = 1.0) -> Datum:
    tokens = encode(text).astype(np.int64)
    n = len(tokens) - 1
    return Datum(
        inputs=tokens[:-1],
        targets=tokens[1:],
        logprobs=np.full(n, -np.log(VOCABULARY)),
        weights=np.broadcast_to(np.asarray(weights, np.float64), n).copy(),
        mask=np.ones(n, np.float32),
        streams=np.zeros(n, np.int8),
        temperature=temperature,
    )


def train(
    model: ScriptedTrainer, data: Sequence[Datum], steps: int, adam: Adam = WARM
) -> list[float]:
    async def run() -> list[float]:
        losses = []
        for _ in range(steps):
            losses.append((await model.forward_backward(data, "cross_entropy")).loss)
            await model.optim_step(adam)
        return losses

    return asyncio.run(run())


def logprobs_of(model: ScriptedTrainer) -> np.ndarray:
    """The log-probability of every token."""

    async def run() -> np.ndarray:
        return await (await model.sampler()).score(EVERY_TOKEN, 0)

    return asyncio.run(run())


def checkpoint(model: ScriptedTrainer, folder: Path, name: str) -> dict[str, list[float]]:
    asyncio.run(model.save(name))
    return json.loads((folder / f"{name}.json").read_text())


# Sampling


def test_a_reply_is_bytes_and_the_end_of_the_turn() -> None:
    reply = only(say("É!"))
    assert reply.text == "É!"
    assert reply.tokens.tolist() == [*"É!".encode(), END]
    assert reply.starts.tolist() == [0, 0, 1, 2]
    assert reply.stop_reason == "stop"
    plain = only(say("ab"))
    assert (plain.text, plain.starts.tolist()) == ("ab", [0, 1, 2])


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        (("</b>",), "<a>x</a><b>y</b>"),
        (("</b>", "</a>"), "<a>x</a>"),
        (("nowhere",), "<a>x</a><b>y</b> and more"),
    ],
)
def test_a_reply_ends_with_the_first_stop_string(stop: tuple[str, ...], expected: str) -> None:
    text = "<a>x</a><b>y</b> and more"
    reply = only(say(text, stop=stop))
    assert reply.text == expected
    assert reply.stop_reason == "stop"
    ended = [END] if expected == text else []
    assert reply.tokens.tolist() == [*expected.encode(), *ended]


def test_a_reply_ends_with_the_first_stop_token() -> None:
    reply = only(say("one, two; three", stop=(ord(";"), ord(","))))
    assert (reply.text, reply.stop_reason) == ("one,", "stop")
    untouched = only(say("one", stop=(ord(";"),)))
    assert untouched.tokens.tolist() == [*b"one", END]


@pytest.mark.parametrize(
    ("limit", "text", "reason"),
    [(3, "abc", "length"), (5, "abcde", "length"), (6, "abcde", "stop"), (9, "abcde", "stop")],
)
def test_a_reply_that_is_too_long_is_cut_off(limit: int, text: str, reason: str) -> None:
    reply = only(say("abcde", max_tokens=limit))
    assert (reply.text, reply.stop_reason) == (text, reason)
    assert len(reply.tokens) == len(reply.logprobs) == len(reply.starts) == min(limit, 6)


def test_a_reply_cut_inside_a_character_shows_the_damage() -> None:
    reply = only(say("a数", max_tokens=3))
    assert reply.text == "a\ufffd\ufffd"
    assert reply.starts.tolist() == [0, 1, 2]
    assert reply.stop_reason == "length"


def test_a_very_long_reply_is_decoded_like_a_short_one() -> None:
    text = "0123456789" * 1000
    reply = only(say(text, max_tokens=20_000))
    assert reply.text == text
    assert reply.starts.tolist() == list(range(10_001))


def test_the_same_seed_gets_the_same_reply_and_another_another() -> None:
    async def run() -> list[str]:
        sampler = await ScriptedEngine(lambda prompt, seed: f"seed {seed}").sampler()
        asked = [(1, 7), (1, 7), (1, 8), (3, 7), (3, 7)]
        replies = [await sampler.sample(PROMPT, n, SamplingParams(seed=s)) for n, s in asked]
        return [", ".join(c.text for c in reply) for reply in replies]

    first, again, other, several, same = asyncio.run(run())
    assert first == again == "seed 7"
    assert other == "seed 8"
    assert several == same
    assert several == ", ".join(f"seed {derive(7, i)}" for i in range(3))
    assert len(set(several.split(", "))) == 3


def test_a_script_is_spoken_in_order_and_then_says_that_it_is_over() -> None:
    async def run() -> list[str]:
        sampler = await ScriptedEngine(["one", "two"]).sampler()
        return [c.text for c in await sampler.sample(PROMPT, 2, SamplingParams())] + [
            c.text for c in await sampler.sample(PROMPT, 1, SamplingParams())
        ]

    with pytest.raises(EngineError, match="all 2 are spoken"):
        asyncio.run(run())
    assert [c.text for c in say("one", 2)] == ["one", "one"]


def test_a_script_reads_its_prompt() -> None:
    asked = Prompt(PROMPT)
    assert asked.text == "<|system|>\nShort.<|end|>\n<|user|>\n6 * 7?<|end|>\n<|assistant|>\n"
    assert asked.last == "<|user|>\n6 * 7?<|end|>\n<|assistant|>\n"
    assert Prompt(encode("bare")).last == "bare"


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_logprobs_are_of_a_distribution_sharpened_by_the_temperature(
    tmp_path: Path, temperature: float
) -> None:
    text = "".join(map(chr, range(128)))

    async def run() -> tuple[Completion, np.ndarray]:
        engine = ScriptedEngine(lambda prompt, seed: text, tmp_path)
        model = await engine.trainer()
        await model.forward_backward([datum("hello hello")], "cross_entropy")
        await model.optim_step(replace(WARM, learning_rate=2.0))
        sampler = await model.sampler()
        params = SamplingParams(temperature=temperature, max_tokens=200)
        (reply,) = await sampler.sample(PROMPT, 1, params)
        return reply, await sampler.score(EVERY_TOKEN, 0)

    reply, scored = asyncio.run(run())
    assert np.exp(scored.astype(np.float64)).sum() == pytest.approx(1, abs=1e-5)
    assert np.ptp(scored) > 1
    powered = np.exp(scored.astype(np.float64) / temperature)
    expected = np.log(powered / powered.sum())[reply.tokens]
    assert reply.logprobs == pytest.approx(expected, abs=1e-5)


def test_scoring_what_was_sampled_at_temperature_one_gives_its_logprobs(tmp_path: Path) -> None:
    model = trainer(tmp_path)
    train(model, [datum("some words")], 3)

    async def run() -> tuple[np.ndarray, np.ndarray]:
        sampler = await model.sampler()
        (reply,) = await sampler.sample(PROMPT, 1, SamplingParams())
        tokens = np.concatenate([PROMPT, reply.tokens])
        return reply.logprobs, await sampler.score(tokens, len(PROMPT))

    sampled, scored = asyncio.run(run())
    assert np.array_equal(sampled, scored)
    assert len(set(logprobs_of(model).tolist())) > 2


def test_a_greedy_reply_is_certain() -> None:
    assert not only(say("sure", temperature=0.0)).logprobs.any()


# Training


def test_cross_entropy_training_lowers_the_loss(tmp_path: Path) -> None:
    losses = train(trainer(tmp_path), [datum("abracadabra"), datum("banana")], 20)
    assert losses[0] == pytest.approx((10 + 5) * np.log(VOCABULARY))
    assert all(later < earlier for earlier, later in zip(losses, losses[1:], strict=False))
    assert losses[-1] < 0.75 * losses[0]


def test_tokens_with_positive_advantage_become_likelier_and_others_less(tmp_path: Path) -> None:
    model = trainer(tmp_path)

    async def run() -> None:
        await model.forward_backward([datum("xab", [1.0, -1.0])], "importance_sampling")
        await model.optim_step(WARM)

    before = logprobs_of(model)
    asyncio.run(run())
    change = logprobs_of(model) - before
    assert change[ord("a")] > 0.05
    assert change[ord("b")] < -0.05
    assert abs(change[ord("c")]) < 0.01


def test_forward_scores_at_the_temperature_of_the_datum(tmp_path: Path) -> None:
    model = trainer(tmp_path)
    train(model, [datum("aaaab")], 5)
    base = logprobs_of(model).astype(np.float64)

    async def run() -> list[np.ndarray]:
        return list(await model.forward([datum("xab"), datum("xab", temperature=0.5)]))

    warm, cold = asyncio.run(run())
    assert warm == pytest.approx(base[[ord("a"), ord("b")]], abs=1e-6)
    sharp = np.exp(2 * base)
    expected = np.log(sharp / sharp.sum())[[ord("a"), ord("b")]]
    assert cold == pytest.approx(expected, abs=1e-6)


def test_forward_backward_reports_the_logprobs_before_the_step(tmp_path: Path) -> None:
    model = trainer(tmp_path)
    data = [datum("abc"), datum("xy", temperature=0.7)]

    async def run() -> tuple[Sequence[np.ndarray], Sequence[np.ndarray]]:
        scored = await model.forward(data)
        return scored, (await model.forward_backward(data, "ppo")).logprobs

    for one, other in zip(*asyncio.run(run()), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("loss", ["cross_entropy", "importance_sampling", "ppo"])
def test_the_gradient_agrees_with_finite_differences(tmp_path: Path, loss: Loss) -> None:
    data = [
        datum("gradient", [1.0, -0.5, 0.25, 0.0, 2.0, -1.0, 0.5]),
        datum("descent", -0.3, temperature=0.6),
    ]
    model = trainer(tmp_path)
    # Small enough a drift that no ratio meets the clip.
    train(model, [datum("agenda")], 1, replace(WARM, learning_rate=0.05))
    start = checkpoint(model, tmp_path, "start")

    async def loss_at(token: int, shift: float) -> float:
        logits = list(start["logits"])
        logits[token] += shift
        (tmp_path / "moved.json").write_text(json.dumps({**start, "logits": logits}))
        await model.load("moved")
        return (await model.forward_backward(data, loss)).loss

    async def step() -> float:
        fresh = {**start, "moments": np.zeros((2, VOCABULARY)).tolist(), "steps": 0}
        (tmp_path / "fresh.json").write_text(json.dumps(fresh))
        await model.load("fresh")
        await model.forward_backward(data, loss)
        # With such an eps one step of Adam is one of plain descent, at rate 1.
        plain = Adam(learning_rate=1e9, beta1=0.0, beta2=0.0, eps=1e9, clip_norm=0.0)
        return (await model.optim_step(plain))["grad_norm"]

    norm = asyncio.run(step())
    after = checkpoint(model, tmp_path, "after")
    gradient = np.array(start["logits"]) - np.array(after["logits"])
    assert np.linalg.norm(gradient) == pytest.approx(norm, rel=1e-6)
    h = 1e-5
    for token in {*b"gradientdescent", ord("z"), END}:
        rise = asyncio.run(loss_at(token, h)) - asyncio.run(loss_at(token, -h))
        assert gradient[token] == pytest.approx(rise / (2 * h), abs=1e-6)


def test_gradients_add_up_until_a_step_is_taken(tmp_path: Path) -> None:
    first, second = datum("one"), datum("two")

    async def stepped(name: str, batches: list[list[Datum]]) -> np.ndarray:
        model = await ScriptedEngine(["x"], tmp_path).trainer()
        for batch in batches:
            await model.forward_backward(batch, "cross_entropy")
        await model.optim_step(WARM)
        await model.save(name)
        return np.array(json.loads((tmp_path / f"{name}.json").read_text())["logits"])

    together = asyncio.run(stepped("together", [[first, second]]))
    apart = asyncio.run(stepped("apart", [[first], [second]]))
    assert np.array_equal(together, apart)
    assert not np.array_equal(together, asyncio.run(stepped("half", [[first]])))


def test_a_long_gradient_is_clipped_and_its_length_reported(tmp_path: Path) -> None:
    # With a huge eps the step is proportional to the gradient that Adam was given.
    linear = Adam(learning_rate=1e9, beta1=0.0, beta2=0.0, eps=1e9)

    async def stepped(name: str, clip_norm: float) -> tuple[float, float]:
        model = await ScriptedEngine(["x"], tmp_path).trainer()
        await model.forward_backward([datum("clipped", 3.0)], "cross_entropy")
        norm = (await model.optim_step(replace(linear, clip_norm=clip_norm)))["grad_norm"]
        await model.save(name)
        moved = json.loads((tmp_path / f"{name}.json").read_text())["logits"]
        return norm, float(np.linalg.norm(moved))

    free, clipped, loose = (asyncio.run(stepped(f"at{clip}", clip)) for clip in (0.0, 0.5, 1000.0))
    assert free[0] == clipped[0] == loose[0] > 1
    assert free[1] == loose[1] == pytest.approx(free[0], rel=1e-6)
    assert clipped[1] == pytest.approx(0.5, rel=1e-6)


def test_two_steps_of_adam_follow_the_book(tmp_path: Path) -> None:
    adam = Adam(learning_rate=0.1, beta1=0.8, beta2=0.9, eps=1e-3, weight_decay=0.5, clip_norm=0)
    data = [datum("aab", 2.0)]
    model = trainer(tmp_path)
    train(model, data, 2, adam)
    logits, first, second = np.zeros((3, VOCABULARY))
    for t in (1, 2):
        p = np.exp(logits) / np.exp(logits).sum()
        gradient = 4 * p
        gradient[ord("a")] -= 2
        gradient[ord("b")] -= 2
        first = 0.8 * first + 0.2 * gradient
        second = 0.9 * second + 0.1 * gradient**2
        update = (first / (1 - 0.8**t)) / (np.sqrt(second / (1 - 0.9**t)) + 1e-3)
        logits = logits - 0.1 * (update + 0.5 * logits)
    trained = checkpoint(model, tmp_path, "trained")["logits"]
    assert np.array(trained) == pytest.approx(logits, abs=1e-12)


def test_a_sampler_never_sees_newer_weights(tmp_path: Path) -> None:
    model = trainer(tmp_path)

    before = logprobs_of(model)

    async def run() -> np.ndarray:
        sampler = await model.sampler()
        await model.forward_backward([datum("newer")], "cross_entropy")
        await model.optim_step(WARM)
        return await sampler.score(EVERY_TOKEN, 0)

    assert np.array_equal(asyncio.run(run()), before)
    assert not np.array_equal(before, logprobs_of(model))


def test_a_greedy_datum_never_poisons_the_weights(tmp_path: Path) -> None:
    model = trainer(tmp_path)

    async def run() -> None:
        await model.forward_backward([datum("greedy", temperature=0.0)], "cross_entropy")
        await model.optim_step(WARM)

    with contextlib.suppress(RostraError):
        asyncio.run(run())
    assert np.all(np.isfinite(logprobs_of(model)))


# Checkpoints


def test_a_run_that_was_stopped_and_loaded_ends_exactly_like_one_that_was_not(
    tmp_path: Path,
) -> None:
    data = [datum("never stopped"), datum("or stopped", temperature=0.7)]
    whole = trainer(tmp_path / "whole")
    losses = train(whole, data, 6)
    stopped = trainer(tmp_path / "parts")
    early = train(stopped, data, 3)
    asyncio.run(stopped.save("middle"))
    resumed = trainer(tmp_path / "parts")
    asyncio.run(resumed.load("middle"))
    assert early + train(resumed, data, 3) == losses
    assert checkpoint(resumed, tmp_path / "parts", "end") == checkpoint(
        whole, tmp_path / "whole", "end"
    )


def test_loading_forgets_gradients_that_were_not_stepped(tmp_path: Path) -> None:
    model = trainer(tmp_path)
    asyncio.run(model.save("start"))
    asyncio.run(model.forward_backward([datum("half a step")], "cross_entropy"))
    asyncio.run(model.load("start"))
    assert asyncio.run(model.optim_step(WARM))["grad_norm"] == 0


def test_saving_leaves_nothing_half_written_behind(tmp_path: Path) -> None:
    model = trainer(tmp_path / "new" / "folder")
    asyncio.run(model.save("a"))
    asyncio.run(model.save("a"))
    assert [p.name for p in (tmp_path / "new" / "folder").iterdir()] == ["a.json"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "[]",
        lambda text: "7",
        lambda text: "{}",
        lambda text: json.dumps(json.loads(text) | {"logits": [0.0]}),
        lambda text: json.dumps(json.loads(text) | {"moments": [[0.0], [0.0, 1.0]]}),
        lambda text: json.dumps(json.loads(text) | {"steps": None}),
        lambda text: json.dumps(json.loads(text) | {"logits": ["a"] * VOCABULARY}),
    ],
    ids=["torn", "empty", "list", "number", "object", "short", "ragged", "steps", "words"],
)
def test_a_damaged_checkpoint_is_named_and_changes_nothing(tmp_path: Path, damage: object) -> None:
    model = trainer(tmp_path)
    train(model, [datum("kept")], 2)
    asyncio.run(model.save("good"))
    before = logprobs_of(model)
    text = (tmp_path / "good.json").read_text()
    (tmp_path / "bad.json").write_text(damage(text))  # type: ignore[operator]
    with pytest.raises(DataError, match=r"bad\.json"):
        asyncio.run(model.load("bad"))
    assert np.array_equal(logprobs_of(model), before)


def test_a_checkpoint_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.json"):
        asyncio.run(trainer(tmp_path).load("gone"))


def test_training_without_a_folder_is_a_mistake_in_the_settings() -> None:
    with pytest.raises(ConfigError, match="folder"):
        asyncio.run(ScriptedEngine(["x"]).trainer())
