"""What asking an endpoint costs beside the asking itself; and a served model beside a local one.

    python bench/endpoint.py
    python bench/endpoint.py --address http://127.0.0.1:8000/v1#smollm2

The first compares the engine with the bare HTTP client on a server that answers at once. The second
also plays the same smollm2 debates at an address and on this machine.
"""

import argparse
import asyncio
import json
import multiprocessing
import socket
import statistics
import time
from pathlib import Path

import httpx2
from machine import describe

import rostra
from rostra.engines.chat import Message
from rostra.engines.sampling import SamplingParams

RESULTS = Path(__file__).parent / "results" / "endpoint.json"
LANES = 64
REPEATS = 5
ANSWER = {
    "choices": [{"message": {"content": "17 " * 200}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1000, "completion_tokens": 200},
}


def serve(listening: socket.socket) -> None:
    """A server that has thought before it is asked."""
    body = json.dumps(ANSWER).encode()
    head = (
        f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    reply = head.encode() + body

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                asked = await reader.readuntil(b"\r\n\r\n")
                fields = dict(line.lower().split(b": ", 1) for line in asked.split(b"\r\n")[1:-2])
                await reader.readexactly(int(fields.get(b"content-length", 0)))
                writer.write(reply)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def run() -> None:
        server = await asyncio.start_server(answer, sock=listening)
        await server.serve_forever()

    asyncio.run(run())


async def bare(url: str, body: bytes, requests: int) -> float:
    """Requests a second with the client alone."""
    free = asyncio.Semaphore(LANES)
    limits = httpx2.Limits(max_connections=LANES, max_keepalive_connections=LANES)
    async with httpx2.AsyncClient(limits=limits, timeout=None, trust_env=False) as client:

        async def ask() -> None:
            async with free:
                (await client.post(f"{url}/chat/completions", content=body)).json()

        await asyncio.gather(*(ask() for _ in range(LANES)))
        began = time.perf_counter()
        await asyncio.gather(*(ask() for _ in range(requests)))
        return requests / (time.perf_counter() - began)


async def through(url: str, prompt: str, requests: int) -> float:
    """Requests a second through the engine."""
    engine = rostra.OpenAIEngine(f"{url}#model", lanes=LANES)
    sampler = await engine.sampler()
    asked = engine.chat.open([Message("system", "You debate."), Message("user", prompt)])
    params = SamplingParams(stop=("</comparison>",))
    await asyncio.gather(*(sampler.sample(asked, 1, params) for _ in range(LANES)))
    began = time.perf_counter()
    await asyncio.gather(*(sampler.sample(asked, 1, params) for _ in range(requests)))
    return requests / (time.perf_counter() - began)


def overhead(url: str, size: int, requests: int) -> dict[str, float]:
    prompt = "x" * size
    messages = [{"role": "user", "content": prompt}]
    body = json.dumps({"model": "model", "messages": messages}).encode()
    rates = [
        (
            asyncio.run(bare(url, body, requests)),
            asyncio.run(through(url, prompt, requests)),
        )
        for _ in range(REPEATS)
    ]
    client, engine = (statistics.median(rate[i] for rate in rates) for i in (0, 1))
    return {"client": round(client), "engine": round(engine), "ratio": round(engine / client, 2)}


def debates(model: rostra.Engine, count: int) -> dict[str, float]:
    """Debates of three agents, two rounds and a ballot, all at once."""
    rules = rostra.peer_v2(agents=3, rounds=2, max_tokens=60)
    asked = [
        rostra.Debate.peer(rostra.Question(str(i), f"What is {i} + 24?"), rules, seed=i)
        for i in range(count)
    ]

    async def play() -> tuple[int, float]:
        player = rostra.ModelPlayer(await model.policy(), model.chat)
        began = time.perf_counter()
        played = await rostra.play(asked, player)
        seconds = time.perf_counter() - began
        return sum(turn.sampled for t in played.transcripts for turn in t.turns), seconds

    tokens, seconds = asyncio.run(play())
    return {"tokens": tokens, "seconds": round(seconds, 1), "tokens/s": round(tokens / seconds)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", help="where smollm2 is served")
    parser.add_argument("--debates", type=int, default=8)
    parser.add_argument("--requests", type=int, default=2000)
    given = parser.parse_args()
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    server = multiprocessing.get_context("fork").Process(
        target=serve, args=(listening,), daemon=True
    )
    server.start()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
    found["requests/s"] = {}
    for size in (1_000, 10_000):
        row = found["requests/s"][f"{size} characters"] = overhead(url, size, given.requests)
        print(f"{size:6,} characters: client {row['client']:5} a second, engine {row['engine']:5}")
    server.terminate()
    if given.address:
        served = debates(rostra.OpenAIEngine(given.address), given.debates)
        local = debates(rostra.LocalEngine("smollm2"), given.debates)
        found["debates"] = {"count": given.debates, "served": served, "local": local}
        for name, row in (("served", served), ("local", local)):
            print(
                f"{name}: {row['tokens']} tokens in {row['seconds']} s, {row['tokens/s']} a second"
            )
    RESULTS.write_text(json.dumps({"machine": describe(), **found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
