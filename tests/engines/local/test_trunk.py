"""The gradients that are written out by hand, and what speed may not change."""

import asyncio
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from rostra.engines.local.engine import LocalEngine, SamplerOptions
from rostra.engines.local.linear import ROWS, FusedLinear
from rostra.engines.local.trunk import RmsNorm, Rotary, SwiGlu
from rostra.engines.sampling import SamplingParams


def doubles(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def test_gradients_written_by_hand_are_right() -> None:
    torch.manual_seed(0)
    assert torch.autograd.gradcheck(
        lambda x, w: RmsNorm.apply(x, w, 1e-5), (doubles(5, 8), doubles(8))
    )
    assert torch.autograd.gradcheck(SwiGlu.apply, (doubles(4, 6), doubles(4, 6)))
    angle = torch.randn(4, 1, 3, dtype=torch.float64)
    cos, sin = torch.cat([angle.cos()] * 2, -1), torch.cat([-angle.sin(), angle.sin()], -1)
    assert torch.autograd.gradcheck(lambda x: Rotary.apply(x, cos, sin), (doubles(4, 2, 6),))


@pytest.mark.parametrize("rows", [1, 5, ROWS, ROWS + 1])
def test_layers_side_by_side_give_what_each_gives(rows: int) -> None:
    torch.manual_seed(0)
    for inner in (16, 300):  # small ones are kept side by side, large ones laid out by oneDNN
        layers = [torch.nn.Linear(inner, size, bias=False) for size in (320, 64, 64)]
        fused = FusedLinear(layers, pack=True)
        x = torch.randn(rows, inner)
        with torch.inference_mode():
            for part, layer in zip(fused(x), layers, strict=True):
                assert torch.allclose(part, layer(x), atol=1e-5)
            layers[1].weight.data.mul_(2)
            fused.forget()
            assert torch.allclose(fused(x)[1], layers[1](x), atol=1e-5)


def test_a_second_layout_of_the_weights_changes_no_token() -> None:
    def speak(fast: bool) -> list[Any]:
        engine = LocalEngine("toy", sampling=SamplerOptions(fast=fast))
        engine.ends = frozenset()

        async def run() -> list[Any]:
            sampler = await engine.sampler()
            return await asyncio.gather(
                *[
                    sampler.sample(np.arange(5, 25) + i, 1, SamplingParams(max_tokens=20, seed=i))
                    for i in range(6)
                ]
            )

        found = [replies[0] for replies in asyncio.run(run())]
        engine.close()
        return found

    for one, other in zip(speak(True), speak(False), strict=True):
        assert one.tokens.tolist() == other.tokens.tolist()
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def test_freed_memory_is_kept_for_the_next_pass() -> None:
    """Page faults of making a large tensor again and again, with and without."""
    code = (
        "import resource, sys, torch\n"
        "from rostra.engines.local.memory import keep_freed_memory\n"
        "if sys.argv[1] == 'keep': assert keep_freed_memory()\n"
        "torch.ones(12_000_000)\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "for _ in range(20): torch.ones(12_000_000)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)\n"
    )
    if not sys.platform.startswith("linux"):
        pytest.skip("glibc only")

    def faults(how: str) -> int:
        command = [sys.executable, "-c", code, how]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert faults("keep") * 5 < faults("leave")
