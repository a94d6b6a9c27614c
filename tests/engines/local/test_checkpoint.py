"""Checkpoints: what goes on from one is what never stopped, and damage is seen in time."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from rostra.engines.local.engine import LocalEngine
from rostra.engines.local.lora import Lora
from rostra.engines.local.toy import toy_model
from rostra.engines.local.trainer import LocalTrainer
from rostra.engines.training import Adam, Datum
from rostra.errors import ConfigError, DataError

LORA = Lora(rank=3, alpha=6.0)
KINDS = pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])

Make = Callable[..., LocalEngine]


def datum(seed: int, length: int = 10) -> Datum:
    tokens = np.random.default_rng(seed).integers(0, 633, length + 1)
    return Datum(
        inputs=tokens[:-1],
        targets=tokens[1:],
        logprobs=np.full(length, -6.5),
        weights=np.ones(length),
        mask=np.ones(length, np.float32),
        streams=np.zeros(length, np.int8),
    )


def train(trainer: LocalTrainer, steps: Sequence[int]) -> list[float]:
    """Losses and gradient norms of some steps, each with data of its own."""

    async def run() -> list[float]:
        seen = []
        for step in steps:
            data = [datum(2 * step), datum(2 * step + 1, 7)]
            seen.append((await trainer.forward_backward(data, "importance_sampling")).loss)
            adam = Adam(learning_rate=1e-2 / (1 + step), weight_decay=0.01)
            seen.append((await trainer.optim_step(adam))["grad_norm"])
        return seen

    return asyncio.run(run())


def begin(make: Make, **options: Any) -> tuple[LocalEngine, LocalTrainer]:
    engine = make(**options)
    return engine, asyncio.run(engine.trainer())


def save(trainer: LocalTrainer, name: str) -> None:
    asyncio.run(trainer.save(name))


def load(trainer: LocalTrainer, name: str) -> None:
    asyncio.run(trainer.load(name))


def weights(engine: LocalEngine) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in engine.weights.trained]


def same(left: Sequence[Tensor], right: Sequence[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def scores(trainer: LocalTrainer) -> np.ndarray:
    return np.asarray(asyncio.run(trainer.forward([datum(50)]))[0])


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@KINDS
def test_going_on_from_a_checkpoint_is_never_having_stopped(fresh: Make, lora: Lora | None) -> None:
    engine, trainer = begin(fresh, lora=lora)
    train(trainer, range(3))
    save(trainer, "middle")
    middle = weights(engine)
    expected = train(trainer, range(3, 6))
    end = weights(engine)
    # In the same engine, from weights that have moved on.
    load(trainer, "middle")
    assert same(weights(engine), middle)
    assert train(trainer, range(3, 6)) == expected
    assert same(weights(engine), end)
    assert not same(middle, end)
    # In another one, which began with other weights.
    other, again = begin(fresh, lora=lora)
    train(again, range(7, 9))
    load(again, "middle")
    assert train(again, range(3, 6)) == expected
    assert same(weights(other), end)


GO_ON = """
import sys
import torch
torch.set_num_threads(1)
sys.path.insert(0, sys.argv[1])
from safetensors.torch import save_file
from rostra.engines.local.engine import LocalEngine
from tests.engines.local.test_checkpoint import LORA, load, train, weights
import asyncio, json
for kind, lora in (("full", None), ("lora", LORA)):
    engine = LocalEngine("toy", folder=sys.argv[2], lora=lora)
    trainer = asyncio.run(engine.trainer())
    load(trainer, kind)
    print(json.dumps(train(trainer, range(3, 5))))
    save_file({str(i): w for i, w in enumerate(weights(engine))}, f"{sys.argv[2]}/{kind}.out")
    engine.close()
"""


def test_a_new_process_goes_on_bit_for_bit(fresh: Make, tmp_path: Path) -> None:
    expected = []
    ends = {}
    for kind, lora in (("full", None), ("lora", LORA)):
        engine, trainer = begin(fresh, lora=lora, folder=tmp_path)
        train(trainer, range(3))
        save(trainer, kind)
        expected.append(train(trainer, range(3, 5)))
        ends[kind] = weights(engine)
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", GO_ON, str(root), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=100,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == expected
    for kind, end in ends.items():
        found = load_file(tmp_path / f"{kind}.out")
        assert same([found[str(i)] for i in range(len(end))], end)


def test_random_numbers_go_on_too(fresh: Make) -> None:
    state = torch.get_rng_state()
    try:
        _, trainer = begin(fresh)
        torch.manual_seed(123)
        save(trainer, "here")
        expected = torch.rand(3)
        torch.rand(5)
        load(trainer, "here")
        assert torch.equal(torch.rand(3), expected)
    finally:
        torch.set_rng_state(state)


def test_a_sampler_of_before_does_not_see_what_was_loaded(fresh: Make) -> None:
    _, trainer = begin(fresh)
    tokens = np.arange(3, 15)

    async def run() -> list[Any]:
        await trainer.save("start")
        for _ in range(2):
            await trainer.forward_backward([datum(0)], "cross_entropy")
            await trainer.optim_step(Adam(learning_rate=1e-2))
        held = await trainer.sampler()
        before = await held.score(tokens, 1)
        await trainer.load("start")
        new = await trainer.sampler()
        return [before, await held.score(tokens, 1), await new.score(tokens, 1)]

    before, held, new = asyncio.run(run())
    assert held == pytest.approx(before, abs=1e-6)
    assert np.abs(new - before).max() > 0.05


@KINDS
def test_saving_over_a_name_replaces_it_and_leaves_nothing_else(
    fresh: Make, tmp_path: Path, lora: Lora | None
) -> None:
    engine, trainer = begin(fresh, lora=lora, folder=tmp_path / "deep" / "down")
    save(trainer, "name")
    train(trainer, range(2))
    save(trainer, "name")
    newest = weights(engine)
    assert names(tmp_path / "deep" / "down") == ["name"]
    train(trainer, range(2))
    load(trainer, "name")
    assert same(weights(engine), newest)


@KINDS
def test_a_checkpoint_of_no_steps_at_all_is_a_checkpoint(fresh: Make, lora: Lora | None) -> None:
    engine, trainer = begin(fresh, lora=lora)
    save(trainer, "start")
    start = weights(engine)
    expected = train(trainer, range(2))
    load(trainer, "start")
    assert same(weights(engine), start)
    assert train(trainer, range(2)) == expected


@KINDS
def test_killed_between_two_renames_the_old_one_is_loaded(
    fresh: Make, tmp_path: Path, lora: Lora | None
) -> None:
    engine, trainer = begin(fresh, lora=lora, folder=tmp_path)
    train(trainer, range(2))
    save(trainer, "name")
    kept = weights(engine)
    (tmp_path / "name").rename(tmp_path / ".name.old")
    train(trainer, range(2))
    load(trainer, "name")
    assert same(weights(engine), kept)
    # The next save makes it whole again.
    train(trainer, range(2))
    save(trainer, "name")
    assert names(tmp_path) == ["name"]
    newest = weights(engine)
    train(trainer, range(1))
    load(trainer, "name")
    assert same(weights(engine), newest)


@pytest.mark.parametrize("old_only", [False, True], ids=["whole", "killed before"])
@pytest.mark.parametrize("moment", ["write", "second rename"])
def test_whenever_a_save_breaks_off_there_is_a_checkpoint_to_load(
    fresh: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, old_only: bool
) -> None:
    engine, trainer = begin(fresh, lora=LORA, folder=tmp_path)
    train(trainer, range(2))
    save(trainer, "name")
    kept = weights(engine)
    if old_only:
        (tmp_path / "name").rename(tmp_path / ".name.old")
    train(trainer, range(2))

    def full_disk(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    def stops(rename: Callable[..., None]) -> Callable[..., None]:
        def stopping(path: Any, target: Any, **options: Any) -> None:
            if ".part-" in Path(path).name:
                raise OSError(5, "Input/output error")
            rename(path, target, **options)

        return stopping

    if moment == "write":
        monkeypatch.setattr(Path, "write_text", full_disk)
    else:
        monkeypatch.setattr(os, "rename", stops(os.rename))
        monkeypatch.setattr(os, "replace", stops(os.replace))
    with pytest.raises(DataError, match="name"):
        save(trainer, "name")
    monkeypatch.undo()
    assert not [name for name in names(tmp_path) if ".part-" in name]
    load(trainer, "name")
    assert same(weights(engine), kept)


@pytest.mark.parametrize("where", ["the folder", "above the folder", "the name"])
def test_a_file_in_the_way_is_an_error_and_stays(fresh: Make, tmp_path: Path, where: str) -> None:
    folder = tmp_path / "a" / "b"
    file = {"the folder": folder, "above the folder": folder.parent, "the name": folder / "name"}
    blocking = file[where]
    blocking.parent.mkdir(parents=True, exist_ok=True)
    blocking.write_text("precious")
    _, trainer = begin(fresh, lora=LORA, folder=folder)
    with pytest.raises(DataError, match="name"):
        save(trainer, "name")
    assert blocking.read_text() == "precious"
    assert not list(tmp_path.rglob(".name*"))


@pytest.mark.parametrize("name", ["", "."])
def test_a_name_that_is_the_folder_itself_does_not_replace_all_checkpoints(
    fresh: Make, tmp_path: Path, name: str
) -> None:
    _, trainer = begin(fresh, lora=LORA, folder=tmp_path / "checkpoints")
    save(trainer, "precious")
    with pytest.raises((ConfigError, DataError)):
        save(trainer, name)
    assert names(tmp_path / "checkpoints") == ["precious"]


def test_others_may_read_the_weights_as_they_may_any_new_file(fresh: Make, tmp_path: Path) -> None:
    _, trainer = begin(fresh, lora=LORA, folder=tmp_path)
    save(trainer, "name")
    (tmp_path / "plain").write_text("x")
    usual = (tmp_path / "plain").stat().st_mode
    modes = {p.name: p.stat().st_mode for p in (tmp_path / "name").rglob("*") if p.is_file()}
    assert {name: oct(mode) for name, mode in modes.items() if mode != usual} == {}


def test_a_gradient_that_no_step_has_used_is_not_forgotten(fresh: Make, tmp_path: Path) -> None:
    _, trainer = begin(fresh, folder=tmp_path)
    asyncio.run(trainer.forward_backward([datum(1)], "cross_entropy"))
    with pytest.raises(ConfigError, match="optim_step"):
        save(trainer, "name")
    assert names(tmp_path) == []
    asyncio.run(trainer.optim_step(Adam()))
    save(trainer, "name")
    # Loading goes back behind it.
    asyncio.run(trainer.forward_backward([datum(1)], "cross_entropy"))
    load(trainer, "name")
    assert asyncio.run(trainer.optim_step(Adam(learning_rate=0.0)))["grad_norm"] == 0


def shorten(path: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        file = folder / path
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])

    return damage


def remove(path: str) -> Callable[[Path], None]:
    return lambda folder: (folder / path).unlink()


def write(text: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / "training" / "state.json").write_text(text)

    return damage


def moments_of_another_shape(folder: Path) -> None:
    file = folder / "training" / "moments.safetensors"
    held = load_file(file)
    key = sorted(k for k in held if k.startswith("exp_avg/"))[0]
    save_file(held | {key: torch.zeros(2, 2)}, file)


def a_moment_less(folder: Path) -> None:
    file = folder / "training" / "moments.safetensors"
    held = load_file(file)
    del held[sorted(k for k in held if k.startswith("exp_avg_sq/"))[0]]
    save_file(held, file)


def torn_random_numbers(folder: Path) -> None:
    file = folder / "training" / "moments.safetensors"
    save_file(load_file(file) | {"rng": torch.zeros(3, dtype=torch.uint8)}, file)


DAMAGE: dict[str, tuple[str, Callable[[Path], None], str]] = {
    # name: (what was trained, the damage, what the message must name)
    "torn adapter": ("lora", shorten("adapter_model.safetensors"), ""),
    "torn model": ("full", shorten("model.safetensors"), ""),
    "torn moments": ("lora", shorten("training/moments.safetensors"), ""),
    "torn state": ("lora", shorten("training/state.json"), ""),
    "no adapter": ("lora", remove("adapter_model.safetensors"), "adapter_model.safetensors"),
    "no model": ("full", remove("model.safetensors"), "model.safetensors"),
    "no moments": ("lora", remove("training/moments.safetensors"), "moments.safetensors"),
    "no state": ("lora", remove("training/state.json"), "state.json"),
    "empty state": ("lora", write("{}"), ""),
    "another state": ("lora", write("[1, 2]"), ""),
    "moments of another shape": ("lora", moments_of_another_shape, ""),
    "a moment less": ("lora", a_moment_less, ""),
    "torn random numbers": ("lora", torn_random_numbers, ""),
}


def refuses(engine: LocalEngine, trainer: LocalTrainer, name: str, path: Path, words: str) -> None:
    """In one sentence, and with nothing changed: training goes on as if nobody had asked."""
    before, random = weights(engine), torch.get_rng_state()
    with pytest.raises(DataError) as error:
        load(trainer, name)
    said = str(error.value)
    assert str(path) in said and "\n" not in said and words in said
    assert len(said) < 500
    assert same(weights(engine), before)
    assert torch.equal(torch.get_rng_state(), random)


Room = tuple[LocalEngine, LocalTrainer, list[float], list[Tensor]]


@pytest.fixture(scope="module")
def rooms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Room]]:
    """Engines with a checkpoint `good`, and what two steps from there come to."""
    found = {}
    for kind, lora in (("full", None), ("lora", LORA)):
        engine = LocalEngine("toy", lora=lora, folder=tmp_path_factory.mktemp(kind))
        trainer = asyncio.run(engine.trainer())
        train(trainer, range(2))
        save(trainer, "good")
        losses = train(trainer, range(2, 4))
        found[kind] = engine, trainer, losses, weights(engine)
    yield found
    for engine, *_ in found.values():
        engine.close()


@pytest.mark.parametrize("damage", list(DAMAGE))
def test_a_damaged_checkpoint_is_refused_and_changes_nothing(
    rooms: dict[str, Room], damage: str
) -> None:
    kind, apply, words = DAMAGE[damage]
    engine, trainer, losses, end = rooms[kind]
    assert engine._folder is not None
    bad = engine._folder / "bad"
    shutil.rmtree(bad, ignore_errors=True)
    load(trainer, "good")
    train(trainer, range(7, 8))
    save(trainer, "bad")
    apply(bad)
    load(trainer, "good")
    refuses(engine, trainer, "bad", bad, words)
    # The moments are as they were, too.
    assert train(trainer, range(2, 4)) == losses
    assert same(weights(engine), end)


def test_a_checkpoint_that_is_not_there_is_refused(fresh: Make, tmp_path: Path) -> None:
    engine, trainer = begin(fresh, folder=tmp_path)
    refuses(engine, trainer, "nothing", tmp_path / "nothing", "no such checkpoint")
    (tmp_path / "file").write_text("x")
    refuses(engine, trainer, "file", tmp_path / "file", "")
    (tmp_path / "empty").mkdir()
    refuses(engine, trainer, "empty", tmp_path / "empty", "")


@pytest.mark.parametrize(
    ("saved", "here"),
    [
        (Lora(rank=3), Lora(rank=2)),
        (Lora(rank=3), None),
        (None, Lora(rank=3)),
        (Lora(rank=3, targets=("q_proj",)), Lora(rank=3)),
        (Lora(rank=3), Lora(rank=3, targets=("q_proj",))),
        (Lora(rank=3, alpha=6.0), Lora(rank=3, alpha=60.0)),
    ],
    ids=["rank", "adapter", "all weights", "fewer layers", "more layers", "alpha"],
)
def test_a_checkpoint_of_something_else_is_refused(
    fresh: Make, tmp_path: Path, saved: Lora | None, here: Lora | None
) -> None:
    _, source = begin(fresh, lora=saved, folder=tmp_path)
    train(source, range(1))
    save(source, "name")
    engine, trainer = begin(fresh, lora=here, folder=tmp_path)
    train(trainer, range(1, 2))
    refuses(engine, trainer, "name", tmp_path / "name", "")


def model_folder(folder: Path, **changes: Any) -> str:
    """A toy of other measures, as a folder."""
    module, tokenizer = toy_model(0)
    config = transformers.LlamaConfig(**(module.config.to_dict() | changes))
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize(
    "changes",
    [{"intermediate_size": 64}, {"num_hidden_layers": 5}, {"num_hidden_layers": 3}],
    ids=["width", "deeper", "shallower"],
)
def test_a_checkpoint_of_another_model_is_refused(
    fresh: Make, tmp_path: Path, changes: dict[str, int]
) -> None:
    other = LocalEngine(model_folder(tmp_path / "other", **changes), folder=tmp_path)
    save(asyncio.run(other.trainer()), "name")
    other.close()
    engine, trainer = begin(fresh, folder=tmp_path)
    refuses(engine, trainer, "name", tmp_path / "name", "")


def test_all_weights_load_with_plain_transformers_and_as_a_model(
    fresh: Make, tmp_path: Path
) -> None:
    _, trainer = begin(fresh, folder=tmp_path)
    train(trainer, range(3))
    save(trainer, "name")
    said = scores(trainer)
    folder = tmp_path / "name"

    module = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    one = datum(50)
    with torch.inference_mode():
        logp = module(torch.from_numpy(one.inputs)[None]).logits[0].log_softmax(-1)
    plain = logp.gather(-1, torch.from_numpy(one.targets)[:, None])[:, 0].numpy()
    assert plain == pytest.approx(said, abs=1e-5)
    text = "The better solution is 12, <|im_end|> because"
    assert tokenizer(text).input_ids == toy_model(0)[1](text).input_ids

    engine = LocalEngine(str(folder), folder=tmp_path / "more")
    try:
        again = asyncio.run(engine.trainer())
        assert scores(again) == pytest.approx(said, abs=1e-6)
        save(again, "second")
    finally:
        engine.close()
    assert "config.json" in os.listdir(tmp_path / "more" / "second")
    shutil.rmtree(tmp_path / "more")
