"""Models of other shapes: what transformers computes, and the sentence where that cannot be."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from rostra.engines.local.engine import LocalEngine
from rostra.engines.local.toy import toy_tokenizer
from rostra.engines.local.trunk import LlamaTrunk, PlainTrunk
from rostra.engines.sampling import SamplingParams
from rostra.engines.training import Datum
from rostra.errors import ConfigError

SMALL = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
SHAPES: dict[str, Any] = {
    "llama": lambda n: transformers.LlamaConfig(vocab_size=n, **SMALL),
    "llama with biases": lambda n: transformers.LlamaConfig(
        vocab_size=n, attention_bias=True, mlp_bias=True, **SMALL
    ),
    "llama with scaled rotation": lambda n: transformers.LlamaConfig(
        vocab_size=n,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
        **SMALL,
    ),
    "mistral with a window": lambda n: transformers.MistralConfig(
        vocab_size=n, sliding_window=6, **SMALL
    ),
    "qwen2": lambda n: transformers.Qwen2Config(vocab_size=n, **SMALL),
    "qwen3": lambda n: transformers.Qwen3Config(vocab_size=n, head_dim=16, **SMALL),
    "gemma2": lambda n: transformers.Gemma2Config(
        vocab_size=n, head_dim=16, sliding_window=6, query_pre_attn_scalar=16, **SMALL
    ),
    "gpt2": lambda n: transformers.GPT2Config(
        vocab_size=n, n_embd=32, n_layer=2, n_head=4, n_positions=128
    ),
}


def folder(shape: str, path: Path) -> Path:
    """A small random model in a folder, loud enough that its most likely words vary."""
    tokenizer = toy_tokenizer()
    config = SHAPES[shape](len(tokenizer))
    config.eos_token_id = tokenizer.eos_token_id
    config.pad_token_id = tokenizer.pad_token_id
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter *= 4
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def plain(path: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager"
    ).eval()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_model_of_another_shape_says_what_transformers_says(shape: str, tmp_path: Path) -> None:
    path = folder(shape, tmp_path / "model")
    engine, reference = LocalEngine(str(path)), plain(path)
    engine.ends = frozenset()
    rng = np.random.default_rng(0)
    prompts = [rng.integers(3, 600, size) for size in (3, 19, 30, 11)]

    async def run() -> list[Any]:
        sampler = await engine.sampler()
        params = SamplingParams(max_tokens=16, temperature=0)
        return await asyncio.gather(*[sampler.sample(p, 1, params) for p in prompts])

    found = [replies[0] for replies in asyncio.run(run())]
    for prompt, reply in zip(prompts, found, strict=True):
        whole = torch.tensor([[*prompt.tolist(), *reply.tokens.tolist()]])
        with torch.no_grad():
            logits = reference(whole).logits[0, len(prompt) - 1 : -1]
        assert logits.argmax(-1).tolist() == reply.tokens.tolist()
        expected = logits.log_softmax(-1).gather(-1, whole[0, len(prompt) :, None])[:, 0]
        assert reply.plain == pytest.approx(expected.numpy(), abs=1e-4)
    assert len({token for reply in found for token in reply.tokens.tolist()}) > 8
    engine.close()


@pytest.mark.parametrize("shape", [name for name in SHAPES if name != "gemma2"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_model_of_another_shape_has_the_gradient_of_transformers(
    shape: str, checkpointing: bool, tmp_path: Path
) -> None:
    from rostra.engines.local.trainer import TrainerOptions

    path = folder(shape, tmp_path / "model")
    options = TrainerOptions(checkpointing=checkpointing)
    engine = LocalEngine(str(path), folder=tmp_path / "out", training=options)
    reference = plain(path)
    rng = np.random.default_rng(1)
    data = []
    for size in (9, 30, 21):
        tokens = rng.integers(3, 600, size + 1)
        weights = rng.normal(size=size).astype(np.float32)
        mask = np.ones(size, np.float32)
        data.append(
            Datum(tokens[:-1], tokens[1:], 0 * mask, weights, mask, np.zeros(size, np.int64), 0.7)
        )

    async def run() -> Any:
        trainer = await engine.trainer()
        await trainer.forward_backward(data, "cross_entropy")
        return trainer

    trainer = asyncio.run(run())
    loss = torch.zeros(())
    for datum in data:
        logits = reference(torch.tensor(datum.inputs[None])).logits[0] / 0.7
        chosen = logits.log_softmax(-1).gather(-1, torch.tensor(datum.targets)[:, None])[:, 0]
        loss = loss - (chosen * torch.tensor(datum.weights)).sum()
    loss.backward()
    expected = dict(reference.named_parameters())
    for (name, _), found in zip(trainer._named.items(), trainer._gradient, strict=True):
        grad = expected[name].grad
        scale = float(grad.abs().max()) + 1e-6
        assert float((found - grad).abs().max()) / scale < 2e-4, name
    engine.close()


def test_only_plain_llamas_take_the_short_way(tmp_path: Path) -> None:
    kinds = {}
    for shape in ("llama", "llama with biases", "qwen2"):
        engine = LocalEngine(str(folder(shape, tmp_path / shape)))
        kinds[shape] = type(engine.weights.trunk)
        engine.close()
    assert kinds == {"llama": LlamaTrunk, "llama with biases": PlainTrunk, "qwen2": PlainTrunk}


def test_logits_that_are_bent_afterwards_can_be_sampled_but_not_trained(tmp_path: Path) -> None:
    path = folder("gemma2", tmp_path / "model")
    engine = LocalEngine(str(path), folder=tmp_path / "out")
    with pytest.raises(ConfigError, match="does something to its logits"):
        asyncio.run(engine.trainer())
    engine.close()


def test_a_model_without_the_usual_attention_is_refused(tmp_path: Path) -> None:
    tokenizer = toy_tokenizer()
    config = transformers.MambaConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, state_size=4
    )
    config.max_position_embeddings = 128
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="does not work with packed batches"):
        LocalEngine(str(tmp_path))
