"""The local engine on smollm2, beside what a user would pick instead and what the machine can do.

Decoding and whole debates against `transformers.generate`, training against TRL's loss step. Every
contender runs in a process of its own, so that its peak memory is its own. Nothing else may run
meanwhile: a busy second process slows products on two threads down several times over.
"""

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from machine import describe

RESULTS = Path(__file__).parent / "results" / "engine.json"

LANES = (1, 8, 24, 48)
PROMPT = 64
NEW = 48
DEBATES, AGENTS, ROUNDS = 8, 3, 3
QUESTION, REPLY = 200, 120
ROUND_COUNTS = (1, 2, 4, 8)
TRAINED = 6
"""Trajectories in one training step."""
LORA_RANK, LORA_ALPHA = 16, 32

PERSONAS = (
    "You are Agent 0, a methodical analyst. Work step by step and check every result.",
    "You are Agent 1, a creative problem solver. Look for a way that others would not take.",
    "You are Agent 2, the devil's advocate. Doubt every claim and look for a counterexample.",
)
STORY = (
    "A farmer keeps hens, ducks and geese on three ponds. Every morning she counts the birds, "
    "writes the number of each kind into a book, and sells a part of the eggs at the market. "
)


def timed(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def report(**values: Any) -> None:
    """A contender's result, with the most memory its process ever held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(values | {"peak_mb": round(peak)}))


def question(engine_tokenizer: Any, index: int) -> str:
    """About 200 tokens, another for every debate."""
    text = f"Question {index}. " + STORY * 12
    ids = engine_tokenizer.encode(text, add_special_tokens=False)[:QUESTION]
    return str(engine_tokenizer.decode(ids))


# The machine ------------------------------------------------------------------------------------


def machine_limits() -> None:
    """What two plain operations reach: a large product, and reading memory."""
    import torch

    a, b = torch.randn(2048, 2048), torch.randn(2048, 2048)
    line = torch.ones(64_000_000)
    flops, bandwidth = [], []
    for _ in range(12):
        flops.append(2 * 2048**3 / timed(lambda: a @ b))
        bandwidth.append(line.numel() * 4 / timed(line.sum))
    report(flops=statistics.median(flops[2:]), bandwidth=statistics.median(bandwidth[2:]))


# Decoding ---------------------------------------------------------------------------------------


def prompts(lanes: int, vocabulary: int) -> list[Any]:
    rng = np.random.default_rng(lanes)
    return [rng.integers(100, vocabulary, PROMPT) for _ in range(lanes)]


def local_engine(**options: Any) -> Any:
    from rostra.engines.local.engine import LocalEngine

    engine = LocalEngine("smollm2", **options)
    engine.ends = frozenset()  # every reply runs to its limit
    return engine


def plain_model() -> tuple[Any, Any]:
    """smollm2 as transformers would load it from the folder of the conversion."""
    from rostra.engines.local.models import load_model

    loaded = load_model("smollm2")
    loaded.module.generation_config.eos_token_id = None
    return loaded.module, loaded.tokenizer


def decode_local(repeats: int) -> None:
    from rostra.engines.sampling import SamplingParams

    engine = local_engine()

    async def batch(lanes: int, new: int, seed: int) -> float:
        sampler = await engine.sampler()
        engine.scheduler.cache.drop()
        params = SamplingParams(max_tokens=new, seed=seed)
        start = time.perf_counter()
        await asyncio.gather(*[sampler.sample(p, 1, params) for p in prompts(lanes, 49000)])
        return time.perf_counter() - start

    report(rates=_rates(lambda lanes, new, seed: asyncio.run(batch(lanes, new, seed)), repeats))


def decode_generate(repeats: int) -> None:
    import torch

    model, _ = plain_model()

    def batch(lanes: int, new: int, seed: int) -> float:
        torch.manual_seed(seed)
        ids = torch.tensor(np.stack(prompts(lanes, 49000)))
        return timed(lambda: generate(model, ids, torch.ones_like(ids), new))

    report(rates=_rates(batch, repeats))


def generate(model: Any, ids: Any, mask: Any, new: int) -> Any:
    import torch

    with torch.inference_mode():
        return model.generate(
            ids, attention_mask=mask, max_new_tokens=new, do_sample=True, top_k=0, pad_token_id=2
        )


def _rates(batch: Callable[[int, int, int], float], repeats: int) -> dict[str, float]:
    """Tokens a second without the prompt: from the difference of a long and a short reply."""
    rates = {}
    for lanes in LANES:
        batch(lanes, 2, 0)
        found = []
        for seed in range(repeats):
            short, long = batch(lanes, 2, seed), batch(lanes, 2 + NEW, seed)
            found.append(lanes * NEW / (long - short))
        rates[str(lanes)] = statistics.median(found)
    return rates


# A debate ---------------------------------------------------------------------------------------


def debate_local(repeats: int) -> None:
    engine = local_engine()
    seconds, computed = [], 0
    for seed in range(repeats):
        engine.scheduler.cache.drop()
        before = engine.counts.computed
        seconds.append(timed(lambda seed=seed: asyncio.run(debates(engine, DEBATES, ROUNDS, seed))))
        computed = engine.counts.computed - before
    report(seconds=statistics.median(seconds), all=seconds, computed=computed)


async def debates(engine: Any, count: int, rounds: int, seed: int) -> list[list[Any]]:
    """Debates side by side; in each, all agents speak at once, then read each other."""
    from rostra.engines.chat import Message
    from rostra.engines.sampling import SamplingParams
    from rostra.seeds import derive

    sampler = await engine.sampler()
    chat = engine.chat

    async def one(index: int) -> list[Any]:
        asked = question(engine.tokenizer, index)
        history = [
            chat.open([Message("system", persona), Message("user", asked)]) for persona in PERSONAS
        ]
        for turn in range(rounds):
            said = await asyncio.gather(
                *[
                    sampler.sample(
                        prompt,
                        1,
                        SamplingParams(max_tokens=REPLY, seed=derive(seed, index, turn, seat)),
                    )
                    for seat, prompt in enumerate(history)
                ]
            )
            replies = [found[0] for found in said]
            for seat, reply in enumerate(replies):
                heard = others([r.text for r in replies], seat)
                rest = chat.extend(reply.tokens, [Message("user", heard)])
                history[seat] = np.concatenate([history[seat], reply.tokens, rest])
        return history

    return await asyncio.gather(*[one(index) for index in range(count)])


def others(texts: list[str], seat: int) -> str:
    return "\n\n".join(f"Agent {i} says:\n{t}" for i, t in enumerate(texts) if i != seat)


def debate_generate(repeats: int, together: bool) -> None:
    """generate with the whole prompt every turn: one call per turn, or one per round for all."""
    import torch

    model, tokenizer = plain_model()
    tokenizer.padding_side = "left"
    tokenizer.pad_token = tokenizer.eos_token
    torch.manual_seed(0)

    def play(indices: list[int]) -> None:
        talks = [
            [
                {"role": "system", "content": persona},
                {"role": "user", "content": question(tokenizer, index)},
            ]
            for index in indices
            for persona in PERSONAS
        ]
        for _ in range(ROUNDS):
            texts = tokenizer.apply_chat_template(talks, tokenize=False, add_generation_prompt=True)
            groups = [texts] if together else [[text] for text in texts]
            said: list[str] = []
            for group in groups:
                batch = tokenizer(group, return_tensors="pt", padding=True)
                out = generate(model, batch.input_ids, batch.attention_mask, REPLY)
                said += tokenizer.batch_decode(
                    out[:, batch.input_ids.shape[1] :], skip_special_tokens=True
                )
            for i, talk in enumerate(talks):
                debate = said[i // AGENTS * AGENTS : (i // AGENTS + 1) * AGENTS]
                talk.append({"role": "assistant", "content": said[i]})
                talk.append({"role": "user", "content": others(debate, i % AGENTS)})

    if together:
        seconds = [timed(lambda: play(list(range(DEBATES)))) for _ in range(repeats)]
    else:
        # Turns of one debate after the other: eight debates take eight times as long as one.
        seconds = [timed(lambda i=i: play([i])) * DEBATES for i in range(repeats)]
    report(seconds=statistics.median(seconds), all=seconds)


def debate_parts(_: int) -> None:
    """Where the time of a debate goes: steps with prompts and without, products and attention."""
    from rostra.engines.local import linear, steps

    engine = local_engine()
    scheduler = engine.scheduler
    spent: dict[str, float] = {}

    def watch(owner: Any, name: str, label: Callable[..., str]) -> None:
        inner = getattr(owner, name)

        def timed_call(*args: Any) -> Any:
            start = time.perf_counter()
            found = inner(*args)
            key = label(*args)
            spent[key] = spent.get(key, 0.0) + time.perf_counter() - start
            return found

        setattr(owner, name, timed_call)

    def kind(batch: Any) -> str:
        return "decoding" if all(piece.tokens == 1 for _, piece in batch) else "prompts"

    watch(scheduler, "_compute", kind)
    watch(linear.FastLinear, "__call__", lambda *_: "products with weights")
    watch(linear.FusedLinear, "__call__", lambda *_: "products with weights")
    watch(steps._Row, "attend", lambda *_: "attention while decoding")
    watch(steps._Single, "attend", lambda *_: "attention in prompts")
    watch(scheduler, "_draw", lambda *_: "drawing tokens")
    whole = timed(lambda: asyncio.run(debates(engine, DEBATES, ROUNDS, 0)))
    report(shares={part: seconds / whole for part, seconds in spent.items()})


def rounds_local(repeats: int) -> None:
    engine = local_engine()
    rows = {}
    for rounds in ROUND_COUNTS:
        seconds = []
        for seed in range(repeats):
            engine.scheduler.cache.drop()
            before = engine.counts.computed
            start = time.perf_counter()
            histories = asyncio.run(debates(engine, 2, rounds, seed))
            seconds.append(time.perf_counter() - start)
            computed = engine.counts.computed - before
        # What one call per turn with the whole prompt would have computed.
        growth = [len(h) for talk in histories for h in talk]
        first = 2 * AGENTS * (QUESTION + 40)
        anew = sum(
            first + (sum(growth) - first) * turn / rounds + 2 * AGENTS * REPLY
            for turn in range(rounds)
        )
        rows[str(rounds)] = {
            "seconds": statistics.median(seconds),
            "computed": computed,
            "anew": round(anew),
        }
    report(rows=rows)


# Training ---------------------------------------------------------------------------------------


def trajectories() -> list[tuple[Any, Any, Any]]:
    """Tokens, mask and advantages of debates: three replies of 120 tokens in about 1,000."""
    rng = np.random.default_rng(0)
    found = []
    for index in range(TRAINED):
        parts, masks = [rng.integers(100, 49000, 245 + 3 * index)], [np.zeros(245 + 3 * index)]
        for turn in range(ROUNDS):
            parts.append(rng.integers(100, 49000, REPLY))
            masks.append(np.ones(REPLY))
            if turn < ROUNDS - 1:
                heard = 2 * REPLY + 20 + int(rng.integers(-20, 20))
                parts.append(rng.integers(100, 49000, heard))
                masks.append(np.zeros(heard))
        mask = np.concatenate(masks)
        weights = mask * (1.0 if index % 2 else -0.5) / 1000
        found.append((np.concatenate(parts), mask, weights))
    return found


def train_local(repeats: int) -> None:
    from rostra.engines.local.lora import Lora
    from rostra.engines.training import Datum

    data = [
        Datum(
            inputs=tokens[:-1],
            targets=tokens[1:],
            logprobs=(-10 * mask[1:]).astype(np.float32),
            weights=weights[1:].astype(np.float32),
            mask=mask[1:].astype(np.float32),
            streams=np.where(mask[1:] > 0, 0, -1),
        )
        for tokens, mask, weights in trajectories()
    ]

    async def go() -> list[float]:
        with tempfile.TemporaryDirectory() as folder:
            engine = local_engine(lora=Lora(LORA_RANK, LORA_ALPHA), folder=folder)
            trainer = await engine.trainer()
            seconds = []
            for _ in range(repeats + 1):
                start = time.perf_counter()
                await trainer.forward_backward(data, "importance_sampling")
                seconds.append(time.perf_counter() - start)
            return seconds[1:]

    seconds = asyncio.run(go())
    tokens = sum(len(d.inputs) for d in data)
    report(seconds=statistics.median(seconds), all=seconds, tokens=tokens, flops=_flops())


def _flops() -> float:
    """What the step cannot do without: products with frozen weights forwards and backwards, the
    output layer at trained positions, attention over earlier tokens."""
    width, inner, kept, layers, vocabulary = 576, 1536, 192, 30, 49152
    weights = layers * (2 * width * width + 2 * width * kept + 3 * width * inner)
    adapters = layers * LORA_RANK * (4 * width + 2 * (width + kept) + 3 * (width + inner))
    total = 0.0
    for tokens, mask, _ in trajectories():
        n = len(tokens) - 1
        total += 4 * weights * n + 6 * adapters * n
        total += 4 * width * vocabulary * float(mask[1:].sum())
        total += layers * width * 2 * n * n * (1 + 2)
    return total


def train_trl(repeats: int, mode: str) -> None:
    """TRL's GRPO loss and its gradient on the same trajectories, one sequence at a time.

    stock: as TRL runs on a CPU, logits at every position. compact: the path it takes on a GPU,
    logits at completion positions only. Its own default, gradient checkpointing, is switched off.
    """
    import torch
    from peft import LoraConfig
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer
    from trl.trainer import utils
    from trl.trainer.utils import pad

    from rostra.engines.local.models import _folder

    from datasets import Dataset  # isort: skip

    where = str(_folder("smollm2"))
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=where,
            args=GRPOConfig(
                output_dir=folder,
                use_cpu=True,
                bf16=False,
                beta=0.0,
                report_to="none",
                gradient_checkpointing=False,
                per_device_train_batch_size=4,
                num_generations=4,
                model_init_kwargs={"dtype": "float32"},
            ),
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            train_dataset=Dataset.from_dict({"prompt": ["a"] * 4}),
            processing_class=AutoTokenizer.from_pretrained(where, padding_side="left"),
            peft_config=LoraConfig(
                r=LORA_RANK,
                lora_alpha=LORA_ALPHA,
                target_modules="all-linear",
                task_type="CAUSAL_LM",
            ),
        )
        if mode == "compact":
            utils._use_triton = lambda device: True
        trainer.model.train()
        data = trajectories()
        trainer.current_gradient_accumulation_steps = len(data)
        items = torch.tensor(sum(int(mask.sum()) for _, mask, _ in data))

        def batch(tokens: Any, mask: Any, weights: Any) -> dict[str, Any]:
            start = int(np.flatnonzero(mask)[0])
            prompt, rest = torch.tensor(tokens[:start]), torch.tensor(tokens[start:])
            right = {"padding_side": "right"}
            return {
                "prompt_ids": pad([prompt], padding_value=2, padding_side="left"),
                "prompt_mask": torch.ones(1, start, dtype=torch.long),
                "completion_ids": pad([rest], padding_value=2, **right),
                "completion_mask": torch.ones(1, len(rest), dtype=torch.long),
                "tool_mask": torch.tensor(mask[start:]).long()[None],
                "advantages": torch.tensor(weights[start:]).float()[None],
                "num_items_in_batch": items,
            }

        def step() -> None:
            trainer.model.zero_grad()
            for tokens, mask, weights in data:
                trainer.compute_loss(trainer.model, batch(tokens, mask, weights)).backward()

        step()
        seconds = [timed(step) for _ in range(repeats)]
    tokens = sum(len(t) - 1 for t, _, _ in data)
    report(seconds=statistics.median(seconds), all=seconds, tokens=tokens)


CONTENDERS: dict[str, Callable[[int], None]] = {
    "machine": lambda _: machine_limits(),
    "decode, rostra": decode_local,
    "decode, generate": decode_generate,
    "debate, rostra": debate_local,
    "debate, generate per turn": lambda n: debate_generate(n, together=False),
    "debate, generate batched": lambda n: debate_generate(n, together=True),
    "debate, parts": debate_parts,
    "rounds, rostra": rounds_local,
    "training, rostra": train_local,
    "training, TRL": lambda n: train_trl(n, "stock"),
    "training, TRL compact": lambda n: train_trl(n, "compact"),
}
REPEATS = {"debate, generate batched": 1, "debate, rostra": 3, "rounds, rostra": 1}
"""Fewer where one run takes minutes."""


def table(found: dict[str, Any]) -> str:
    """What a person reads."""
    weights, kept = 134_515_008, 30 * 2 * 192 * 4
    flops, bandwidth = found["machine"]["flops"], found["machine"]["bandwidth"]
    lines = [f"machine: {flops / 1e9:.0f} GFLOP/s, {bandwidth / 1e9:.1f} GB/s", ""]

    def peak(*names: str) -> str:
        sizes = [f"{n.split(', ')[1]} {found[n]['peak_mb']} MB" for n in names if n in found]
        return "peak memory: " + ", ".join(sizes)

    if "decode, rostra" in found:
        lines += ["decode, tokens/s", "lanes  rostra  generate  ratio  limit  of limit"]
        ours, theirs = found["decode, rostra"]["rates"], found["decode, generate"]["rates"]
        for lanes in LANES:
            read = 4 * weights + lanes * kept * (PROMPT + NEW / 2)
            limit = lanes / max(read / bandwidth, 2 * weights * lanes / flops)
            a, b = ours[str(lanes)], theirs[str(lanes)]
            row = f"{lanes:>5}  {a:>6.1f}  {b:>8.1f}  {a / b:>4.1f}x  {limit:>5.0f}"
            lines.append(f"{row}  {a / limit:>7.0%}")
        lines += [peak("decode, rostra", "decode, generate"), ""]
    if "debate, rostra" in found:
        own = found["debate, rostra"]["seconds"]
        lines += [
            f"{DEBATES} debates of {AGENTS} agents and {ROUNDS} rounds",
            "contender  s  ratio",
        ]
        lines.append(f"rostra  {own:.1f}  1.0x")
        for name, aim in (("generate per turn", 9), ("generate batched", 3)):
            if f"debate, {name}" in found:
                other = found[f"debate, {name}"]["seconds"]
                lines.append(f"{name}  {other:.1f}  {other / own:.1f}x  (aim {aim}x)")
        lines.append(
            peak("debate, rostra", "debate, generate per turn", "debate, generate batched")
        )
        if "debate, parts" in found:
            shares = found["debate, parts"]["shares"]
            parts = [f"{part} {share:.0%}" for part, share in shares.items()]
            lines.append("of rostra's time: " + ", ".join(parts))
        lines.append("")
    if "rounds, rostra" in found:
        lines += ["2 debates by rounds", "rounds  computed  per round  anew each turn  seconds"]
        for rounds, row in found["rounds, rostra"]["rows"].items():
            lines.append(
                f"{rounds:>6}  {row['computed']:>8}  {row['computed'] / int(rounds):>9.0f}  "
                f"{row['anew']:>14}  {row['seconds']:>7.1f}"
            )
        lines += [peak("rounds, rostra"), ""]
    if "training, rostra" in found:
        own = found["training, rostra"]
        rate, limit = own["tokens"] / own["seconds"], own["tokens"] / (own["flops"] / flops)
        lines += [f"LoRA training on {TRAINED} trajectories", "contender  tokens/s  ratio"]
        lines.append(f"rostra  {rate:.0f}  1.0x  {rate / limit:.0%} of the limit (aim 60%)")
        for name in ("TRL", "TRL compact"):
            if f"training, {name}" in found:
                other = found[f"training, {name}"]
                theirs = other["tokens"] / other["seconds"]
                lines.append(f"{name}  {theirs:.0f}  {rate / theirs:.1f}x  (aim 1.5x)")
        lines.append(peak("training, rostra", "training, TRL", "training, TRL compact"))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contender", choices=CONTENDERS, help="run one in this process")
    parser.add_argument("--only", help="run those whose name begins so; keep the other results")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    if options.contender:
        repeats = min(options.repeats, REPEATS.get(options.contender, options.repeats))
        CONTENDERS[options.contender](repeats)
        return
    found: dict[str, Any] = {}
    if options.only and RESULTS.exists():
        found = json.loads(RESULTS.read_text())["contenders"]
    for name in CONTENDERS:
        if options.only and not name.startswith(options.only):
            continue
        print(f"{name} ...", file=sys.stderr, flush=True)
        command = [sys.executable, __file__, "--contender", name, "--repeats", str(options.repeats)]
        found[name] = json.loads(subprocess.check_output(command, text=True).splitlines()[-1])
    text = table(found)
    print(text)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"machine": describe(), "contenders": found}, indent=2) + "\n")
    RESULTS.with_suffix(".txt").write_text(text + "\n")


if __name__ == "__main__":
    main()
