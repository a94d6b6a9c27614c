"""The local trainer: its gradients against plain autograd, its steps against plain AdamW."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
from torch import Tensor

from rostra.engines.local.engine import LocalEngine
from rostra.engines.local.lora import Lora
from rostra.engines.local.toy import toy_model
from rostra.engines.local.trainer import LocalTrainer, TrainerOptions
from rostra.engines.sampling import SamplingParams
from rostra.engines.training import Adam, Datum, Loss, TrainOutput
from rostra.errors import ConfigError, EngineError

LOSSES: tuple[Loss, ...] = ("cross_entropy", "importance_sampling", "ppo", "cispo")
VOCABULARY = 633
LORA = Lora(rank=3, alpha=5.0)
KINDS = pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])

Make = Callable[..., LocalEngine]


def datum(length: int, prompt: int, seed: int, temperature: float = 1.0) -> Datum:
    """Random tokens; the positions from `prompt` on are the reply."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, VOCABULARY, length + 1)
    mask = (np.arange(length) >= prompt).astype(np.float32)
    return Datum(
        inputs=tokens[:-1],
        targets=tokens[1:],
        logprobs=np.where(mask > 0, -6.5, 0.0),
        weights=rng.uniform(0.3, 1.5, length) * rng.choice([-1.0, 1.0], length) * mask,
        mask=mask,
        streams=np.zeros(length, np.int8),
        temperature=temperature,
    )


def mixed() -> list[Datum]:
    """Several lengths and two temperatures."""
    return [
        datum(9, 4, seed=1),
        datum(5, 1, seed=2, temperature=0.7),
        datum(12, 7, seed=3, temperature=0.7),
        datum(8, 0, seed=4),
        datum(9, 8, seed=5),
    ]


def warm(make: Make, **options: Any) -> tuple[LocalEngine, LocalTrainer]:
    """An engine whose weights are far from their beginnings: no part of it is nearly idle."""
    engine = make(**options)
    trainer = asyncio.run(engine.trainer())
    shake(engine, 0.04)
    return engine, trainer


def shake(engine: LocalEngine, size: float) -> None:
    draw = torch.Generator().manual_seed(11)
    move(engine, [size * torch.randn(p.shape, generator=draw) for p in engine.weights.trained])


def move(engine: LocalEngine, steps: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for parameter, step in zip(engine.weights.trained, steps, strict=True):
            parameter.add_(step)
    engine.weights.changed()


def off_policy(trainer: LocalTrainer, data: Sequence[Datum]) -> list[Datum]:
    """With log q such that p / q is well inside the clip range here and well outside there."""
    found = asyncio.run(trainer.forward(data))
    result = []
    for index, (one, logp) in enumerate(zip(data, found, strict=True)):
        rng = np.random.default_rng(100 + index)
        ratio = rng.choice([0.5, 0.7, 0.9, 1.0, 1.1, 1.3, 1.6], len(logp))
        result.append(replace(one, logprobs=np.where(one.mask > 0, logp - np.log(ratio), 0.0)))
    return result


def backward(trainer: LocalTrainer, data: Sequence[Datum], loss: Loss) -> TrainOutput:
    return asyncio.run(trainer.forward_backward(data, loss))


def taken(trainer: LocalTrainer) -> list[Tensor]:
    """The gradient so far, taken away."""
    gradient, trainer._gradient = trainer._gradient, None
    assert gradient is not None
    return gradient


def gradient(trainer: LocalTrainer, data: Sequence[Datum], loss: Loss) -> list[Tensor]:
    backward(trainer, data, loss)
    return taken(trainer)


def flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().double().flatten() for tensor in tensors])


def distance(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Relative to what is expected."""
    a, b = flat(found), flat(expected)
    assert b.norm() > 0
    return float((a - b).norm() / b.norm())


def snapshot(engine: LocalEngine) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in engine.weights.trained]


def same(left: Sequence[Tensor], right: Sequence[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def reference(engine: LocalEngine) -> tuple[Any, list[torch.nn.Parameter]]:
    """The same weights in plain transformers and PEFT, in float64, and the trained ones of them."""
    module, _ = toy_model(0)
    if engine.peft is not None:
        config = peft.LoraConfig(
            r=LORA.rank,
            lora_alpha=LORA.alpha,
            target_modules="all-linear",
            task_type="CAUSAL_LM",
        )
        module = peft.get_peft_model(module, config).base_model.model
    module.load_state_dict(engine.weights.module.state_dict())
    module = module.double().eval()
    for part in module.modules():
        if type(part).__name__ == "LlamaRMSNorm":  # its own goes through float32
            part.forward = lambda x, part=part: (
                part.weight * x * torch.rsqrt(x.pow(2).mean(-1, True) + part.variance_epsilon)
            )
    trained = {id(p) for p in engine.weights.trained}
    names = [n for n, p in engine.weights.module.named_parameters() if id(p) in trained]
    known = dict(module.named_parameters())
    parameters = [known[name] for name in names]
    module.requires_grad_(False)
    for parameter in parameters:
        parameter.requires_grad_(True)
    return module, parameters


def plain_logprobs(module: Any, one: Datum) -> Tensor:
    """Full logits of one sequence."""
    logits = module(torch.from_numpy(one.inputs)[None], use_cache=False).logits[0]
    logp = (logits / one.temperature).log_softmax(-1)
    return logp.gather(-1, torch.from_numpy(one.targets)[:, None])[:, 0]


def plain_loss(
    logprobs: Sequence[Tensor], data: Sequence[Datum], loss: Loss, held: Sequence[Tensor]
) -> Tensor:
    """The definition of a loss; `held` is where cispo takes its ratio from."""
    total = torch.zeros((), dtype=torch.float64)
    for logp, one, fixed in zip(logprobs, data, held, strict=True):
        sampled, weights = torch.from_numpy(one.logprobs), torch.from_numpy(one.weights)
        used = weights != 0
        logp, fixed, sampled, weights = logp[used], fixed[used], sampled[used], weights[used]
        ratio = (logp - sampled).exp()
        match loss:
            case "cross_entropy":
                total = total - (weights * logp).sum()
            case "importance_sampling":
                total = total - (ratio * weights).sum()
            case "ppo":
                clipped = ratio.clamp(0.8, 1.2)
                total = total - torch.minimum(ratio * weights, clipped * weights).sum()
            case "cispo":
                clipped = (fixed - sampled).exp().clamp(0.8, 1.2)
                total = total - (clipped * weights * logp).sum()
    return total


@KINDS
@pytest.mark.parametrize("loss", LOSSES)
def test_a_gradient_is_that_of_plain_autograd_and_of_finite_differences(
    fresh: Make, loss: Loss, lora: Lora | None
) -> None:
    engine, trainer = warm(fresh, lora=lora, training=TrainerOptions(batch_tokens=20))
    data = off_policy(trainer, mixed())
    output = backward(trainer, data, loss)
    found = taken(trainer)

    module, parameters = reference(engine)
    logprobs = [plain_logprobs(module, one) for one in data]
    held = [logp.detach() for logp in logprobs]
    total = plain_loss(logprobs, data, loss, held)
    expected = torch.autograd.grad(total, parameters)
    assert output.loss == pytest.approx(float(total.detach()), rel=1e-5, abs=1e-5)
    for one, mine, logp in zip(data, output.logprobs, held, strict=True):
        assert mine == pytest.approx(np.where(one.mask > 0, logp.numpy(), 0), abs=2e-5)
    for mine, plain in zip(found, expected, strict=True):
        assert mine.shape == plain.shape
        assert float((mine - plain).norm()) < 1e-5 * float(plain.norm())

    def value() -> float:
        with torch.no_grad():
            return float(
                plain_loss([plain_logprobs(module, one) for one in data], data, loss, held)
            )

    draw = torch.Generator().manual_seed(5)
    scale = float(flat(found).norm())
    for _ in range(2):
        direction = [torch.randn(p.shape, generator=draw).double() for p in parameters]
        ends = []
        for sign in (1, -1):
            with torch.no_grad():
                torch._foreach_add_(parameters, direction, alpha=sign * 1e-5)
                ends.append(value())
                torch._foreach_add_(parameters, direction, alpha=-sign * 1e-5)
        slope = (ends[0] - ends[1]) / 2e-5
        # A random direction sees about the length of the gradient.
        assert float(flat(found) @ flat(direction)) == pytest.approx(slope, abs=1e-5 * scale)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_loss_that_is_reported_falls_as_its_gradient_says(fresh: Make, loss: Loss) -> None:
    engine, trainer = warm(fresh)
    data = off_policy(trainer, mixed()[:2])
    held = [torch.from_numpy(np.asarray(x, np.float64)) for x in asyncio.run(trainer.forward(data))]
    found = gradient(trainer, data, loss)
    draw = torch.Generator().manual_seed(6)
    for _ in range(2):
        direction = [g * torch.rand(g.shape, generator=draw) for g in found]
        length = 4e-3 / float(flat(direction).norm())
        ends = []
        for sign in (1, -1):
            before = snapshot(engine)
            move(engine, [sign * length * part for part in direction])
            output = backward(trainer, data, loss)
            taken(trainer)
            if loss == "cispo":  # its ratio has no gradient by definition
                there = [torch.from_numpy(np.asarray(x, np.float64)) for x in output.logprobs]
                ends.append(float(plain_loss(there, data, loss, held)))
            else:
                ends.append(output.loss)
            with torch.no_grad():
                torch._foreach_copy_(list(engine.weights.trained), before)
        slope = (ends[0] - ends[1]) / (2 * length)
        assert float(flat(found) @ flat(direction)) == pytest.approx(slope, rel=1e-2)


@KINDS
def test_importance_sampling_on_policy_is_reinforce(fresh: Make, lora: Lora | None) -> None:
    _, trainer = warm(fresh, lora=lora)
    data = mixed()
    found = asyncio.run(trainer.forward(data))
    data = [replace(one, logprobs=logp) for one, logp in zip(data, found, strict=True)]
    reinforce = gradient(trainer, data, "cross_entropy")  # -sum A log p
    assert distance(gradient(trainer, data, "importance_sampling"), reinforce) < 1e-5


def test_ppo_is_importance_sampling_inside_the_clip_range_and_stands_still_beyond(
    fresh: Make,
) -> None:
    _, trainer = warm(fresh)
    found = asyncio.run(trainer.forward(mixed()))

    def at(ratio: float) -> list[Datum]:
        return [
            replace(one, logprobs=logp - np.log(ratio), weights=np.abs(one.weights))
            for one, logp in zip(mixed(), found, strict=True)
        ]

    for ratio in (0.85, 1.15):
        expected = gradient(trainer, at(ratio), "importance_sampling")
        assert distance(gradient(trainer, at(ratio), "ppo"), expected) < 1e-6
    assert not flat(gradient(trainer, at(1.3), "ppo")).any()


@KINDS
def test_cross_entropy_learns_a_few_sentences_by_heart(fresh: Make, lora: Lora | None) -> None:
    engine = fresh(lora=lora)
    trainer = asyncio.run(engine.trainer())
    data = [replace(datum(10, 2, seed), weights=datum(10, 2, seed).mask) for seed in range(3)]

    async def learn() -> list[float]:
        losses = []
        for _ in range(30):
            losses.append((await trainer.forward_backward(data, "cross_entropy")).loss)
            await trainer.optim_step(Adam(learning_rate=5e-3 if lora is None else 1e-2))
        return losses

    losses = asyncio.run(learn())
    assert losses[0] == pytest.approx(24 * np.log(VOCABULARY), rel=0.1)
    # An adapter cannot move the output layer of an untrained toy, which is all but flat.
    assert losses[-1] < (0.05 if lora is None else 0.7) * losses[0]


@pytest.mark.parametrize(("lora", "tokens"), [(None, 1), (None, 25), (LORA, 13)])
def test_the_gradient_does_not_depend_on_how_much_goes_at_once(
    fresh: Make, lora: Lora | None, tokens: int
) -> None:
    _, whole = warm(fresh, lora=lora)
    data = off_policy(whole, mixed())
    _, parts = warm(fresh, lora=lora, training=TrainerOptions(batch_tokens=tokens))
    sizes = watch(parts)
    expected = gradient(whole, data, "importance_sampling")
    assert distance(gradient(parts, data, "importance_sampling"), expected) < 1e-5
    assert len(sizes) > 1 and sum(sizes) == len(data)


def watch(trainer: LocalTrainer) -> list[int]:
    """How many examples go into each pass."""
    inner, sizes = trainer._pass, []

    def counted(data: list[Datum], *rest: Any) -> Any:
        sizes.append(len(data))
        return inner(data, *rest)

    trainer._pass = counted  # type: ignore[method-assign]
    return sizes


def test_the_gradient_does_not_depend_on_the_order(fresh: Make) -> None:
    _, trainer = warm(fresh, training=TrainerOptions(batch_tokens=20))
    data = off_policy(trainer, mixed())
    there = backward(trainer, data, "ppo")
    expected = taken(trainer)
    back = backward(trainer, data[::-1], "ppo")
    assert distance(taken(trainer), expected) < 1e-5
    assert back.loss == pytest.approx(there.loss, rel=1e-5)
    for one, other in zip(there.logprobs, back.logprobs[::-1], strict=True):
        assert one == pytest.approx(other, abs=1e-5)


@KINDS
def test_two_calls_add_up(fresh: Make, lora: Lora | None) -> None:
    _, trainer = warm(fresh, lora=lora)
    data = off_policy(trainer, mixed())
    whole = backward(trainer, data, "importance_sampling")
    expected = taken(trainer)
    first = backward(trainer, data[:2], "importance_sampling")
    second = backward(trainer, data[2:], "importance_sampling")
    assert first.loss + second.loss == pytest.approx(whole.loss, rel=1e-5)
    assert distance(taken(trainer), expected) < 1e-5


@KINDS
def test_recomputing_activations_gives_the_same_gradient(fresh: Make, lora: Lora | None) -> None:
    _, plain = warm(fresh, lora=lora)
    engine, frugal = warm(fresh, lora=lora, training=TrainerOptions(checkpointing=True))
    kept = [count_saved(trainer, mixed()) for trainer in (plain, frugal)]
    assert kept[1] < kept[0] / 2
    assert distance(taken(frugal), taken(plain)) < 1e-6
    # And the sampler of the same engine works as ever.
    check_sampler(engine, frugal)


def count_saved(trainer: LocalTrainer, data: Sequence[Datum]) -> int:
    """Numbers that are kept for the way back."""
    inner, count = trainer._pass, 0

    def keep(tensor: Tensor) -> Tensor:
        nonlocal count
        count += tensor.numel() if not isinstance(tensor, torch.nn.Parameter) else 0
        return tensor

    def watched(*args: Any) -> Any:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            return inner(*args)

    trainer._pass = watched  # type: ignore[method-assign]
    backward(trainer, data, "cross_entropy")
    return count


def test_positions_that_nobody_asks_for_are_zero_and_do_nothing(fresh: Make) -> None:
    _, trainer = warm(fresh)
    one = replace(datum(12, 0, seed=1), mask=np.zeros(12, np.float32), weights=np.zeros(12))
    one.mask[[3, 5]] = 1
    one.weights[[5, 8]] = 2.0
    output = backward(trainer, [one], "cross_entropy")
    expected = taken(trainer)
    assert sorted(np.flatnonzero(output.logprobs[0])) == [3, 5, 8]
    assert output.loss == pytest.approx(-2 * float(output.logprobs[0][[5, 8]].sum()), rel=1e-6)

    # Other targets, other log q, and other tokens after the last position: all the same.
    other = replace(
        one, inputs=one.inputs.copy(), targets=one.targets.copy(), logprobs=one.logprobs.copy()
    )
    other.inputs[9:] = 7
    idle = [t for t in range(12) if t not in (3, 5, 8)]
    other.targets[idle] = 9
    other.logprobs[idle] = -50.0
    assert same(gradient(trainer, [other], "cross_entropy"), expected)
    # A reply token without weight is scored, and pulls nobody.
    silent = replace(one, mask=np.zeros(12, np.float32))
    assert distance(gradient(trainer, [silent], "cross_entropy"), expected) < 1e-6


def test_no_position_at_all_is_no_work(fresh: Make) -> None:
    engine, trainer = warm(fresh)
    sizes = watch(trainer)
    for loss in LOSSES:
        output = backward(trainer, [datum(6, 6, seed=1)], loss)
        assert output.loss == 0 and not output.logprobs[0].any() and len(output.logprobs[0]) == 6
        nothing = backward(trainer, [], loss)
        assert nothing.loss == 0 and list(nothing.logprobs) == []
    assert list(asyncio.run(trainer.forward([]))) == []
    assert sizes == []
    before = snapshot(engine)
    assert asyncio.run(trainer.optim_step(Adam(learning_rate=0.1))) == {"grad_norm": 0.0}
    assert same(snapshot(engine), before)


def test_an_idle_example_among_others_changes_nothing(fresh: Make) -> None:
    _, trainer = warm(fresh)
    data = mixed()
    expected = gradient(trainer, data, "cross_entropy")
    with_idle = [data[0], datum(6, 6, seed=1), *data[1:]]
    assert same(gradient(trainer, with_idle, "cross_entropy"), expected)


def check_sampler(engine: LocalEngine, trainer: LocalTrainer) -> None:
    """What the sampler says of its own tokens is what the trainer says."""
    prompts = [np.arange(5, 5 + n) for n in (4, 17)]

    async def run() -> tuple[list[Datum], TrainOutput, Sequence[Any]]:
        sampler = await trainer.sampler()
        data = []
        for prompt in prompts:
            params = SamplingParams(max_tokens=12, temperature=0.8, seed=3)
            for reply in await sampler.sample(prompt, 2, params):
                tokens = np.concatenate([prompt, reply.tokens]).astype(np.int64)
                spoken = np.zeros(len(tokens) - 1, np.float32)
                spoken[len(prompt) - 1 :] = 1
                logprobs = np.zeros(len(spoken))
                logprobs[len(prompt) - 1 :] = reply.logprobs
                data.append(
                    Datum(
                        inputs=tokens[:-1],
                        targets=tokens[1:],
                        logprobs=logprobs,
                        weights=spoken.astype(np.float64),
                        mask=spoken,
                        streams=np.zeros(len(spoken), np.int8),
                        temperature=0.8,
                    )
                )
        forward = await trainer.forward(data)
        return data, await trainer.forward_backward(data, "cross_entropy"), forward

    data, output, forward = asyncio.run(run())
    assert sum(one.mask.sum() for one in data) >= 20
    for one, logp, mine in zip(data, output.logprobs, forward, strict=True):
        assert logp == pytest.approx(one.logprobs, abs=1e-4)
        assert mine == pytest.approx(logp, abs=1e-5)


@KINDS
def test_trainer_and_sampler_agree_on_what_was_really_sampled(
    fresh: Make, lora: Lora | None
) -> None:
    engine, trainer = warm(fresh, lora=lora)
    check_sampler(engine, trainer)
    asyncio.run(trainer.optim_step(Adam(learning_rate=1e-2)))
    check_sampler(engine, trainer)


@KINDS
def test_an_adapter_leaves_the_base_alone_and_all_weights_do_not(
    fresh: Make, lora: Lora | None
) -> None:
    engine = fresh(lora=lora)
    tokens = np.arange(3, 20)

    async def run() -> list[Any]:
        trainer = await engine.trainer()
        before = await (await engine.sampler()).score(tokens, 1)
        for _ in range(3):
            await trainer.forward_backward(mixed(), "cross_entropy")
            await trainer.optim_step(Adam(learning_rate=1e-2))
        base = await (await engine.sampler()).score(tokens, 1)
        return [before, base, await (await trainer.sampler()).score(tokens, 1)]

    before, base, trained = asyncio.run(run())
    assert np.abs(trained - before).max() > 0.05
    if lora is not None:
        assert base == pytest.approx(before, abs=1e-6)
    else:
        assert base == pytest.approx(trained, abs=1e-6)


@pytest.mark.parametrize("temperature", [0.0, -1.0])
def test_a_datum_of_temperature_0_is_refused(fresh: Make, temperature: float) -> None:
    _, trainer = warm(fresh, training=TrainerOptions(batch_tokens=10))
    data = [*mixed(), datum(3, 1, seed=9, temperature=temperature)]
    with pytest.raises(ConfigError, match="temperature 0"):
        backward(trainer, data, "cross_entropy")
    assert trainer._gradient is None


def test_a_batch_of_less_than_a_token_is_refused() -> None:
    with pytest.raises(ConfigError, match="batch_tokens = 0"):
        TrainerOptions(batch_tokens=0)


@pytest.mark.parametrize(("lora", "clip"), [(None, 0.5), (None, 0.0), (LORA, 0.5), (LORA, 1e6)])
def test_a_step_is_that_of_plain_adamw(fresh: Make, lora: Lora | None, clip: float) -> None:
    engine, trainer = warm(fresh, lora=lora)
    copies = [torch.nn.Parameter(tensor) for tensor in snapshot(engine)]
    adam = Adam(learning_rate=3e-3, beta1=0.8, beta2=0.9, eps=1e-6, weight_decay=0.1)
    plain = torch.optim.AdamW(
        copies, lr=3e-3, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.1, fused=False, foreach=False
    )
    for step in range(3):
        rate = 3e-3 / (step + 1)
        backward(trainer, mixed(), "cross_entropy")
        assert trainer._gradient is not None
        for copy, grad in zip(copies, trainer._gradient, strict=True):
            copy.grad = grad.clone()
        norm = float(flat(trainer._gradient).norm())
        assert norm > 0.5
        if clip:
            torch.nn.utils.clip_grad_norm_(copies, clip)
        plain.param_groups[0]["lr"] = rate
        plain.step()
        metrics = asyncio.run(trainer.optim_step(replace(adam, learning_rate=rate, clip_norm=clip)))
        assert metrics["grad_norm"] == pytest.approx(norm, rel=1e-5)
        assert trainer._gradient is None
    for mine, copy in zip(engine.weights.trained, copies, strict=True):
        assert torch.allclose(mine, copy, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(("lora", "bad"), [(None, np.inf), (LORA, np.nan)])
def test_a_gradient_that_is_no_number_changes_nothing(
    fresh: Make, lora: Lora | None, bad: float
) -> None:
    engine, trainer = warm(fresh, lora=lora)
    other, control = warm(fresh, lora=lora)
    for one in (trainer, control):
        backward(one, mixed(), "cross_entropy")
        asyncio.run(one.optim_step(Adam(learning_rate=1e-3)))
    before = snapshot(engine)
    poison = datum(6, 2, seed=1)
    poison.weights[4] = bad
    backward(trainer, [poison], "cross_entropy")
    with pytest.raises(EngineError, match="not a finite number"):
        asyncio.run(trainer.optim_step(Adam(learning_rate=1e-3, weight_decay=0.5)))
    assert same(snapshot(engine), before)
    # Nor are the moments touched: the next step is that of a trainer that never saw it.
    for one in (trainer, control):
        backward(one, mixed(), "cross_entropy")
        asyncio.run(one.optim_step(Adam(learning_rate=1e-3)))
    assert same(snapshot(engine), snapshot(other))
    assert not same(snapshot(engine), before)


def pending(trainer: LocalTrainer) -> list[Tensor]:
    """A gradient of an earlier call, to be left alone."""
    backward(trainer, [datum(7, 2, seed=20)], "cross_entropy")
    assert trainer._gradient is not None
    return [tensor.clone() for tensor in trainer._gradient]


def test_a_call_that_fails_adds_nothing(fresh: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, trainer = warm(fresh, training=TrainerOptions(batch_tokens=10))
    before, weights = pending(trainer), snapshot(engine)
    inner, calls = trainer._pass, []

    def fails(*args: Any) -> Any:
        calls.append(len(calls))
        if len(calls) == 2:
            raise RuntimeError("something broke")
        return inner(*args)

    monkeypatch.setattr(trainer, "_pass", fails)
    with pytest.raises(EngineError, match="something broke"):
        backward(trainer, mixed(), "cross_entropy")
    assert calls == [0, 1]
    assert trainer._gradient is not None and same(trainer._gradient, before)
    assert same(snapshot(engine), weights)
    monkeypatch.undo()
    backward(trainer, mixed(), "cross_entropy")
    assert distance(trainer._gradient, before) > 0.1


@pytest.mark.parametrize("when", [1, 5])
def test_a_call_that_is_cancelled_adds_nothing(
    fresh: Make, monkeypatch: pytest.MonkeyPatch, when: int
) -> None:
    _, trainer = warm(fresh, training=TrainerOptions(batch_tokens=1))
    before = pending(trainer)
    inner, calls, finished = trainer._pass, [], []
    reached, go = threading.Event(), threading.Event()

    def waits(*args: Any) -> Any:
        calls.append(len(calls))
        if len(calls) == when:
            reached.set()
            go.wait(10)
        found = inner(*args)
        finished.append(found)
        return found

    async def run() -> None:
        task = asyncio.create_task(trainer.forward_backward(mixed(), "cross_entropy"))
        await asyncio.to_thread(reached.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go.set()
        await trainer.forward([])  # comes after it in the queue

    monkeypatch.setattr(trainer, "_pass", waits)
    asyncio.run(run())
    # It stops amid the pass that it was in.
    assert len(calls) == when and len(finished) == when - 1
    assert trainer._gradient is not None and same(trainer._gradient, before)
    # And the trainer goes on as if nothing had been.
    monkeypatch.undo()
    backward(trainer, mixed(), "cross_entropy")
    after = taken(trainer)
    expected = gradient(trainer, [*mixed(), datum(7, 2, seed=20)], "cross_entropy")
    assert distance(after, expected) < 1e-5


def test_a_call_that_is_cancelled_on_the_way_back_adds_nothing(fresh: Make) -> None:
    _, trainer = warm(fresh)
    before = pending(trainer)
    reached, go = threading.Event(), threading.Event()

    def waits(_: Tensor) -> None:
        reached.set()
        go.wait(10)

    async def run() -> None:
        task = asyncio.create_task(trainer.forward_backward(mixed(), "cross_entropy"))
        await asyncio.to_thread(reached.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go.set()
        await trainer.forward([])

    trunk = trainer._weights.trunk

    def hooked(*inputs: Any) -> Tensor:
        hidden = trunk(*inputs)
        if hidden.requires_grad:
            hidden.register_hook(waits)
        return hidden

    trainer._weights.trunk = hooked  # type: ignore[assignment]
    asyncio.run(run())
    trainer._weights.trunk = trunk
    assert reached.is_set()
    assert trainer._gradient is not None and same(trainer._gradient, before)


def short(trainer: LocalTrainer, error: BaseException, most: int) -> list[int]:
    """Memory for no more than `most` examples at once. The sizes of all passes that are tried."""
    inner, sizes = trainer._pass, []

    def bounded(data: list[Datum], *rest: Any) -> Any:
        sizes.append(len(data))
        if len(data) > most:
            raise error
        return inner(data, *rest)

    trainer._pass = bounded  # type: ignore[method-assign]
    return sizes


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
    ids=["cuda", "python", "cpu"],
)
def test_out_of_memory_halves_the_batch_and_says_so(
    fresh: Make, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    _, trainer = warm(fresh)
    data = off_policy(trainer, mixed())
    whole = backward(trainer, data, "ppo")
    expected = taken(trainer)
    sizes = short(trainer, error, most=2)
    output = backward(trainer, data, "ppo")
    assert sizes[0] == 5 and sum(size for size in sizes if size <= 2) == 5
    assert "out of memory" in caplog.text
    assert output.loss == pytest.approx(whole.loss, rel=1e-5)
    for mine, plain in zip(output.logprobs, whole.logprobs, strict=True):
        assert mine == pytest.approx(plain, abs=1e-5)
    assert distance(taken(trainer), expected) < 1e-5


def test_one_shortage_does_not_cut_later_batches_more_than_needed(fresh: Make) -> None:
    # Four batches of four were planned, and two at a time fit: half the budget is enough for good.
    _, trainer = warm(fresh, training=TrainerOptions(batch_tokens=40))
    sizes = short(trainer, torch.OutOfMemoryError("CUDA out of memory"), most=2)
    data = [datum(10, 2, seed) for seed in range(16)]
    backward(trainer, data, "cross_entropy")
    assert sizes[0] == 4
    sizes.clear()
    backward(trainer, data, "cross_entropy")
    assert max(sizes) <= 2
    assert len(sizes) == 8


def test_an_example_that_does_not_fit_alone_says_what_to_do(fresh: Make) -> None:
    _, trainer = warm(fresh)
    before = pending(trainer)
    short(trainer, torch.OutOfMemoryError("CUDA out of memory"), most=0)
    with pytest.raises(EngineError, match="single example.*checkpointing = true"):
        backward(trainer, mixed(), "cross_entropy")
    assert trainer._gradient is not None and same(trainer._gradient, before)


def test_other_errors_are_not_taken_for_a_lack_of_memory(fresh: Make) -> None:
    _, trainer = warm(fresh)
    sizes = short(trainer, RuntimeError("shapes do not match"), most=2)
    with pytest.raises(EngineError, match="shapes do not match"):
        backward(trainer, mixed(), "cross_entropy")
    assert sizes == [5]


@KINDS
def test_a_model_in_half_precision_trains_too(fresh: Make, lora: Lora | None) -> None:
    # bfloat16 is what `auto` takes on a GPU.
    whole = asyncio.run(fresh(lora=lora).trainer())
    half = asyncio.run(fresh(lora=lora, dtype="bfloat16").trainer())
    data = [replace(datum(8, 2, seed), weights=datum(8, 2, seed).mask) for seed in range(3)]
    expected = flat(gradient(whole, data, "cross_entropy"))
    output = backward(half, data, "cross_entropy")
    assert output.loss == pytest.approx(18 * np.log(VOCABULARY), rel=0.1)
    assert half._gradient is not None
    found = flat(half._gradient)
    assert float(torch.nn.functional.cosine_similarity(found, expected, dim=0)) > 0.98
    asyncio.run(half.optim_step(Adam(learning_rate=1e-2)))
    assert backward(half, data, "cross_entropy").loss < output.loss


def test_an_engine_without_a_folder_does_not_train(toy: LocalEngine) -> None:
    with pytest.raises(ConfigError, match="folder"):
        asyncio.run(toy.trainer())


def test_an_engine_has_one_trainer(fresh: Make, tmp_path: Path) -> None:
    engine = fresh()
    assert asyncio.run(engine.trainer()) is asyncio.run(engine.trainer())
