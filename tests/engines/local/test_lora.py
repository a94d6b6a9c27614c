"""Low-rank adapters: the arithmetic, and the way to PEFT and back."""

import asyncio
import json
import shutil
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
from torch import Tensor

from rostra.engines.local.engine import LocalEngine
from rostra.engines.local.lora import Lora, LowRank
from rostra.engines.local.toy import toy_model
from rostra.engines.training import Adam, Datum
from rostra.errors import ConfigError, DataError

Make = Callable[..., LocalEngine]


def numbers(*shape: int, grad: bool = True) -> Tensor:
    draw = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=draw, dtype=torch.float64).requires_grad_(grad)


@pytest.mark.parametrize("biased", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("shape", [(5, 4), (2, 3, 4)], ids=["flat", "deep"])
@pytest.mark.parametrize("moving", [True, False], ids=["inner layer", "first layer"])
def test_the_gradients_of_an_adapted_layer_are_right(
    biased: bool, shape: tuple[int, ...], moving: bool
) -> None:
    x, a, b = numbers(*shape, grad=moving), numbers(2, 4), numbers(6, 2)
    weight, bias = numbers(6, 4, grad=False), numbers(6, grad=False) if biased else None
    assert torch.autograd.gradcheck(
        lambda x, a, b: LowRank.apply(x, weight, bias, a, b, 1.7), (x, a, b)
    )
    plain = torch.nn.functional.linear(x, weight, bias) + 1.7 * (x @ a.t()) @ b.t()
    assert torch.allclose(LowRank.apply(x, weight, bias, a, b, 1.7), plain)


def test_a_gradient_that_does_not_lie_in_a_row_is_fine() -> None:
    x, a, b, weight = numbers(2, 3, 4), numbers(2, 4), numbers(6, 2), numbers(6, 4, grad=False)
    assert torch.autograd.gradcheck(
        lambda x, a, b: LowRank.apply(x.transpose(0, 1), weight, None, a, b, 0.5).mT, (x, a, b)
    )


def datum(tokens: Sequence[int]) -> Datum:
    n = len(tokens) - 1
    return Datum(
        inputs=np.array(tokens[:-1]),
        targets=np.array(tokens[1:]),
        logprobs=np.zeros(n),
        weights=np.ones(n),
        mask=np.ones(n, np.float32),
        streams=np.zeros(n, np.int8),
    )


TOKENS = [int(t) for t in np.random.default_rng(0).integers(0, 633, 20)]


def trained(engine: LocalEngine) -> Any:
    """The trainer after a few large steps."""

    async def run() -> Any:
        trainer = await engine.trainer()
        for seed in range(3):
            tokens = np.random.default_rng(seed).integers(0, 633, 12)
            await trainer.forward_backward([datum(list(tokens))], "cross_entropy")
            await trainer.optim_step(Adam(learning_rate=2e-2))
        return trainer

    return asyncio.run(run())


def scores(trainer: Any) -> np.ndarray:
    return np.asarray(asyncio.run(trainer.forward([datum(TOKENS)]))[0])


def plain_scores(module: Any) -> np.ndarray:
    """With transformers and PEFT alone."""
    tokens = torch.tensor([TOKENS])
    with torch.inference_mode():
        logp = module.eval()(tokens[:, :-1]).logits[0].log_softmax(-1)
    return logp.gather(-1, tokens[0, 1:, None])[:, 0].numpy()


def saved(make: Make, folder: Path, **options: Any) -> tuple[Path, np.ndarray]:
    """A trained adapter on disk, and what it says."""
    trainer = trained(make(folder=folder, **options))
    asyncio.run(trainer.save("adapter"))
    said = scores(trainer)
    untrained = plain_scores(toy_model(options.get("seed", 0))[0])
    assert np.abs(said - untrained).max() > 0.1
    return folder / "adapter", said


@pytest.mark.parametrize(
    "lora", [Lora(rank=4), Lora(rank=2, alpha=3.0, targets=("q_proj", "down_proj"))]
)
def test_plain_peft_loads_what_was_saved_here(fresh: Make, tmp_path: Path, lora: Lora) -> None:
    folder, said = saved(fresh, tmp_path, lora=lora, seed=5)
    plain = peft.PeftModel.from_pretrained(toy_model(5)[0], folder)
    assert plain_scores(plain) == pytest.approx(said, abs=1e-5)


def test_an_adapter_folder_is_a_place_to_begin(fresh: Make, tmp_path: Path) -> None:
    folder, said = saved(fresh, tmp_path, lora=Lora(rank=4))
    engine = fresh(adapter=folder)
    trainer = asyncio.run(engine.trainer())
    assert scores(trainer) == pytest.approx(said, abs=1e-6)

    async def score(make: Callable[[], Any]) -> Any:
        return await (await make()).score(np.array(TOKENS), 1)

    assert asyncio.run(score(trainer.sampler)) == pytest.approx(said, abs=1e-5)
    assert asyncio.run(score(engine.policy)) == pytest.approx(said, abs=1e-5)
    base = plain_scores(toy_model(0)[0])
    assert asyncio.run(score(engine.sampler)) == pytest.approx(base, abs=1e-5)
    # And it trains on from there.
    assert np.abs(scores(trained(engine)) - said).max() > 0.1


def test_adapters_of_plain_peft_with_ranks_of_all_kinds_say_the_same_here(
    fresh: Make, tmp_path: Path
) -> None:
    config = peft.LoraConfig(
        r=4,
        lora_alpha=9,
        use_rslora=True,
        rank_pattern={"q_proj": 2},
        alpha_pattern={"v_proj": 5},
        target_modules=["q_proj", "v_proj", "up_proj"],
        init_lora_weights=False,
        task_type="CAUSAL_LM",
    )
    plain = peft.get_peft_model(toy_model(0)[0], config)
    plain.save_pretrained(tmp_path / "adapter")
    trainer = asyncio.run(fresh(adapter=tmp_path / "adapter").trainer())
    assert scores(trainer) == pytest.approx(plain_scores(plain), abs=1e-5)
    assert np.abs(scores(trainer) - plain_scores(toy_model(0)[0])).max() > 0.05


def test_a_new_adapter_changes_nothing_and_comes_from_the_seed(fresh: Make) -> None:
    base = plain_scores(toy_model(0)[0])
    state = torch.get_rng_state()
    engines = [fresh(lora=Lora(rank=4)) for _ in range(2)]
    assert torch.equal(torch.get_rng_state(), state)
    for engine in engines:
        assert scores(asyncio.run(engine.trainer())) == pytest.approx(base, abs=1e-5)
    first, second = (list(engine.weights.trained) for engine in engines)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    other = fresh(lora=Lora(rank=4), seed=1)
    asyncio.run(other.trainer())
    assert not torch.equal(first[0], other.weights.trained[0])


def test_only_the_adapter_is_trained(fresh: Make) -> None:
    engine = fresh(lora=Lora(rank=4))
    still = {n: p.clone() for n, p in engine.weights.module.named_parameters() if "lora" not in n}
    trained(engine)
    now = dict(engine.weights.module.named_parameters())
    assert len(engine.weights.trained) == 4 * 7 * 2
    assert all(torch.equal(now[name], before) for name, before in still.items())


@pytest.mark.parametrize(
    ("options", "words"),
    [({"rank": 0}, "rank = 0"), ({"targets": ()}, "targets"), ({"targets": ""}, "targets")],
)
def test_an_adapter_of_nothing_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Lora(**options)


@pytest.mark.parametrize("targets", [("nonsense",), ("q_proj", "nonsense")])
def test_layers_that_the_model_does_not_have_are_refused(
    fresh: Make, targets: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError, match="nonsense.*q_proj"):
        fresh(lora=Lora(targets=targets))


def test_one_layer_may_be_named_without_a_list(fresh: Make) -> None:
    engine = fresh(lora=Lora(rank=2, targets="q_proj"))
    asyncio.run(engine.trainer())
    assert len(engine.weights.trained) == 4 * 2


@pytest.mark.parametrize("layer", ["lm_head", "embed_tokens"])
def test_layers_that_cannot_be_adapted_are_refused(fresh: Make, layer: str) -> None:
    with warnings.catch_warnings(), pytest.raises(ConfigError):
        warnings.simplefilter("ignore")  # PEFT has an opinion of its own on tied layers
        asyncio.run(fresh(lora=Lora(targets=(layer,))).trainer())


def others() -> dict[str, Any]:
    plain = {"r": 2, "target_modules": ["q_proj"], "task_type": "CAUSAL_LM"}
    return {
        "dora": peft.LoraConfig(**plain, use_dora=True),
        "dropout": peft.LoraConfig(**plain, lora_dropout=0.1),
        "bias of adapters": peft.LoraConfig(**plain, lora_bias=True, init_lora_weights=False),
        "whole layers": peft.LoraConfig(**plain, modules_to_save=["norm"]),
        "not low-rank": peft.IA3Config(
            target_modules=["q_proj"], feedforward_modules=[], task_type="CAUSAL_LM"
        ),
    }


@pytest.mark.parametrize("kind", list(others()))
def test_adapters_of_another_kind_are_refused(fresh: Make, tmp_path: Path, kind: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PEFT's, on adapters that cannot be merged
        peft.get_peft_model(toy_model(0)[0], others()[kind]).save_pretrained(tmp_path / "other")
        with pytest.raises(ConfigError, match="plain LoRA"):
            fresh(adapter=tmp_path / "other")


def change_config(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / "adapter_config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    return change


def cut(folder: Path) -> None:
    file = folder / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def lose_a_weight(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "adapter_model.safetensors")
    del weights[sorted(weights)[0]]
    save_file(weights, folder / "adapter_model.safetensors")


DAMAGE: dict[str, Callable[[Path], None]] = {
    "no config": lambda folder: (folder / "adapter_config.json").unlink(),
    "no weights": lambda folder: (folder / "adapter_model.safetensors").unlink(),
    "torn weights": cut,
    "a weight less": lose_a_weight,
    "torn config": lambda folder: (folder / "adapter_config.json").write_text('{"r": '),
    "empty config": lambda folder: (folder / "adapter_config.json").write_text("{}"),
    "another rank": change_config(r=8),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter of plain PEFT."""
    folder = tmp_path_factory.mktemp("adapters") / "whole"
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    peft.get_peft_model(toy_model(0)[0], config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("damage", list(DAMAGE))
def test_a_damaged_adapter_is_refused_in_one_sentence(
    fresh: Make, tmp_path: Path, whole: Path, damage: str
) -> None:
    folder = tmp_path / "adapter"
    shutil.copytree(whole, folder)
    DAMAGE[damage](folder)
    with pytest.raises(DataError) as error:
        fresh(adapter=folder)
    assert str(folder) in str(error.value) and "\n" not in str(error.value)


def test_an_adapter_that_is_not_there_is_refused(fresh: Make, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere.*adapter_config.json"):
        fresh(adapter=tmp_path / "nowhere")
