"""The wire: real sockets, and everything that can go wrong on them."""

import asyncio
import gc
import gzip
import logging
import socket
import time
import traceback
import weakref
from collections.abc import Awaitable
from contextlib import closing
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rostra.engines.address import Address, read_address
from rostra.engines.openai import endpoint
from rostra.engines.openai.endpoint import Endpoint, Refused
from rostra.errors import ConfigError, EngineError, EngineUnavailable, RostraError
from tests.engines.openai.server import (
    Answer,
    Asked,
    Reply,
    Server,
    broken_off,
    drip,
    flood,
    hang_up,
    raw,
    refusal,
    reply,
    reset,
    said,
    silence,
    slow,
)

T = TypeVar("T")
KEY = "sk-test-0123456789abcdef"
OWN = "ROSTRA_KEY_127_0_0_1"
CHAT = "/chat/completions"


def on(server: Server, **limits: Any) -> Endpoint:
    return Endpoint(read_address(server.address), **({"patience": 5, "timeout": 5} | limits))


def ask(wire: Endpoint, body: dict[str, Any] | None = None) -> Any:
    return asyncio.run(wire.ask(CHAT, body or {"n": 1}))


def failure(wire: Endpoint, kind: type[Exception] = RostraError) -> str:
    """What a request fails with; it names the server."""
    with pytest.raises(kind) as caught:
        ask(wire)
    assert wire.address.url in str(caught.value)
    assert str(caught.value).isprintable()
    return str(caught.value)


def nobody() -> str:
    """An address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"http://127.0.0.1:{taken.getsockname()[1]}/v1#small"


def test_a_request_is_json_and_so_is_its_answer() -> None:
    with Server([said("Hi. é数")]) as server:
        data = ask(on(server), {"messages": [{"role": "user", "content": "Hé 数 \x00"}]})
    assert data["choices"][0]["message"]["content"] == "Hi. é数"
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("POST", "/v1/chat/completions")
    assert asked.headers["content-type"] == "application/json"
    assert asked.data["messages"][0]["content"] == "Hé 数 \x00"


def test_an_address_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(ConfigError, match="http://300.1.1.1/v1: not an address"):
        Endpoint(read_address("http://300.1.1.1"))


# Whether somebody is there


def reach(wire: Endpoint) -> None:
    asyncio.run(wire.reach())


def test_where_nobody_listens_is_said_at_once() -> None:
    wire = Endpoint(read_address(nobody()))
    begun = time.monotonic()
    with pytest.raises(EngineUnavailable, match=r"does not answer \(.*Is the server up") as caught:
        reach(wire)
    assert wire.address.url in str(caught.value)
    assert time.monotonic() - begun < 2


def test_a_name_that_nobody_has_is_said_at_once() -> None:
    with pytest.raises(EngineUnavailable, match=r"nowhere\.invalid"):
        reach(Endpoint(read_address("http://nowhere.invalid/v1")))


@pytest.mark.parametrize(
    "models",
    [
        Reply(b"<html>", 404),
        Reply(b"not json"),
        reply({"error": "busy"}, 503),
        Reply(b"no gzip", headers={"content-encoding": "gzip"}),
        Reply(b"", 307, {"location": "http://127.0.0.1:9/"}),
    ],
    ids=["404", "text", "503", "compressed wrongly", "redirect"],
)
def test_who_answers_is_there_whatever_he_says(models: Reply) -> None:
    with Server(models=models) as server:
        reach(on(server))
        assert asyncio.run(on(server).served()) == []


def test_one_connection_that_breaks_is_no_proof_that_nobody_is_there() -> None:
    calls = [reset, raw(reply({}).raw())]
    with Server(models=lambda connection: calls.pop(0)(connection)) as server:
        reach(on(server))
    assert len(server.probed) == 2
    with Server(models=reset) as server, pytest.raises(EngineUnavailable):
        reach(on(server))
    assert len(server.probed) == 2


def test_who_takes_the_call_and_says_nothing_is_not_there() -> None:
    with Server(models=silence) as server:
        with pytest.raises(EngineUnavailable, match="not in time"):
            reach(on(server, timeout=0.2))
        assert asyncio.run(on(server, timeout=0.2).served()) == []


def test_who_does_not_even_take_the_call_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "PROBE_SECONDS", 0.3)
    with closing(socket.socket()) as deaf, closing(socket.socket()) as first:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        first.connect(deaf.getsockname())  # fills the queue
        wire = Endpoint(
            read_address(f"http://127.0.0.1:{deaf.getsockname()[1]}/v1#m"), patience=0.1
        )
        begun = time.monotonic()
        with pytest.raises(EngineUnavailable, match="not in time"):
            ask(wire)
        assert time.monotonic() - begun < 1.2


@pytest.mark.parametrize("status", [401, 403])
def test_a_locked_server_names_the_variable_for_its_key(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = refusal("Who are you?", status)
    with Server([locked], models=locked) as server:
        for call in (reach, ask):
            with pytest.raises(ConfigError, match=f"a key is needed .{status}.: Who are.*{OWN}"):
                call(on(server))
        monkeypatch.setenv(OWN, KEY)
        for call in (reach, ask):
            with pytest.raises(ConfigError, match=f"the key is refused .{status}.: Who are"):
                call(on(server))
    assert len(server.asked) == 2


def test_the_models_that_are_served_are_listed() -> None:
    with Server() as server:
        assert asyncio.run(on(server).served()) == ["small", "large"]


@pytest.mark.parametrize(
    "body", [b"null", b"[]", b'{"data": 1}', b'{"data": ["x"]}', b'{"data": [{"name": 1}]}', b"["]
)
def test_a_list_of_models_that_is_none_is_empty(body: bytes) -> None:
    with Server(models=Reply(body)) as server:
        assert asyncio.run(on(server).served()) == []


# What passes by itself


@pytest.mark.parametrize(
    "fault",
    [
        hang_up,
        reset,
        broken_off,
        raw(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"),
        raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{"),
        refusal("later", 429),
        refusal("later", 503),
        refusal("later", 529),
        refusal("crash", 500),
    ],
    ids=["closed", "reset", "broken off", "cut", "cut chunk", "429", "503", "529", "500"],
)
def test_what_passes_by_itself_is_waited_for(fault: Answer) -> None:
    with Server([fault, fault, said("There.")]) as server:
        data = ask(on(server))
    assert data["choices"][0]["message"]["content"] == "There."
    assert len(server.asked) == 3
    assert len({asked.body for asked in server.asked}) == 1


def test_a_server_that_comes_up_late_is_waited_for() -> None:
    address = read_address(nobody())
    port = int(address.url.rsplit(":", 1)[1].removesuffix("/v1"))

    async def late() -> Any:
        wire = Endpoint(address, patience=5)
        asked = asyncio.ensure_future(wire.ask(CHAT, {}))
        await asyncio.sleep(0.1)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(said("Late.").raw())
            await writer.drain()
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", port):
            return await asked

    assert asyncio.run(late())["choices"][0]["message"]["content"] == "Late."


def test_a_busy_server_is_given_the_time_it_asks_for() -> None:
    with Server([reply({}, 429, retry_after="0.6"), said()]) as server:
        begun = time.monotonic()
        ask(on(server))
        assert 0.6 < time.monotonic() - begun < 2


def test_who_asks_for_hardly_any_time_is_still_not_asked_without_a_pause() -> None:
    with Server([reply({}, 429, retry_after="0.000001")]) as server:
        failure(on(server, patience=0.3), EngineUnavailable)
    assert 2 <= len(server.asked) < 30


@pytest.mark.parametrize("wait", ["1e300", "86400", "61"])
def test_who_asks_for_more_time_than_there_is_patience_is_given_up_at_once(wait: str) -> None:
    with Server([reply({"error": "quota"}, 429, retry_after=wait)]) as server:
        begun = time.monotonic()
        message = failure(on(server, patience=60), EngineUnavailable)
        assert time.monotonic() - begun < 2
    assert "has no time for us (429: quota)" in message
    assert len(server.asked) == 1


@pytest.mark.parametrize("wait", ["nan", "inf", "-5", "0", "soon", "", "Wed, 21 Oct 2026 07:28:00"])
def test_a_wait_that_is_no_number_of_seconds_is_not_heeded(wait: str) -> None:
    with Server([reply({}, 429, retry_after=wait), said()]) as server:
        begun = time.monotonic()
        ask(on(server))
        assert time.monotonic() - begun < 1


def test_a_server_that_stays_away_ends_everything_by_its_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wire = Endpoint(read_address(nobody()), patience=0.5)
    begun = time.monotonic()
    message = failure(wire, EngineUnavailable)
    assert 0.1 < time.monotonic() - begun < 2
    assert "Is the server up?" in message
    (record,) = caplog.records
    assert "Trying again for up to" in record.getMessage()


def test_a_server_without_time_for_anybody_ends_everything_and_is_warned_about_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Server([refusal("overloaded", 503)]) as server:
        wire = on(server, patience=0.4)

        async def many() -> list[Any]:
            asked = (wire.ask(CHAT, {}) for _ in range(8))
            return await asyncio.gather(*asked, return_exceptions=True)

        errors = asyncio.run(many())
    assert {type(error) for error in errors} == {EngineUnavailable}
    assert all("overloaded" in str(e) and "model.lanes" in str(e) for e in errors)
    assert len(caplog.records) == 1


def test_who_goes_away_twice_is_warned_about_twice(caplog: pytest.LogCaptureFixture) -> None:
    with Server([hang_up, hang_up, said(), said(), reset, reset, said()]) as server:
        wire = on(server)
        for _ in range(3):
            ask(wire)
    assert len(caplog.records) == 2


def test_patience_begins_with_the_trouble_and_not_with_the_question() -> None:
    def crash_late(connection: socket.socket) -> None:
        time.sleep(0.6)

    with Server([crash_late, said("Again.")]) as server:
        data = ask(on(server, patience=0.5))
    assert data["choices"][0]["message"]["content"] == "Again."


def test_one_request_without_luck_at_a_server_that_serves_others_is_one_failure() -> None:
    def answer(asked: Asked) -> Answer:
        return refusal("rate limit", 429) if asked.data["who"] == "unlucky" else said()

    with Server(answer) as server:
        wire = on(server, patience=0.5)

        async def both() -> BaseException:
            unlucky = asyncio.ensure_future(wire.ask(CHAT, {"who": "unlucky"}))
            while not unlucky.done():
                await wire.ask(CHAT, {"who": "lucky"})
                await asyncio.sleep(0.02)
            error = unlucky.exception()
            assert error is not None
            return error

        error = asyncio.run(both())
    assert type(error) is EngineError
    assert "rate limit" in str(error)


def test_a_request_that_makes_the_server_fail_each_time_is_to_blame() -> None:
    with Server([refusal("index out of range", 500)]) as server:
        message = failure(on(server), Refused)
    assert "500: index out of range" in message
    assert len(server.asked) == 3


# What will not pass


def test_a_refusal_says_what_the_server_says_and_which_parameter_it_blames() -> None:
    refused = refusal("No such\n\x1b[2J thing.", param="seed")
    with Server([refused]) as server, pytest.raises(Refused) as caught:
        ask(on(server))
    assert (caught.value.told, caught.value.parameter) == ("No such [2J thing.", "seed")
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (reply({"error": "plain"}, 400), "plain"),
        (reply({"detail": "of fastapi"}, 422), "of fastapi"),
        (reply({"message": "bare"}, 400), "bare"),
        (reply({"detail": [{"loc": ["body", "seed"]}]}, 422), '{"detail": [{"loc": ["body", "seed'),
        (reply({"error": {"message": None}, "detail": "inner first"}, 400), '{"error"'),
        (reply(["a", "list"], 400), '["a", "list"]'),
        (Reply(b"words", 400, {"content-type": "text/plain"}), "words"),
        (Reply(b"w\xffrds", 400, {"content-type": "text/plain; charset=zlib"}), "w\ufffdrds"),
        (Reply(b"words", 400, {"content-type": "text/plain; charset=undefined"}), "words"),
        (Reply(b"<h1>Bad</h1>", 400, {"content-type": "text/html"}), "no reason given"),
        (Reply(b"", 400), "no reason given"),
        (refusal("long " * 1000), "long long"),
        (refusal("deep", 418, param=["no", "name"]), "deep"),
    ],
)
def test_every_server_has_its_own_way_to_say_no(answer: Reply, told: str) -> None:
    with Server([answer]) as server:
        message = failure(on(server), Refused)
    assert message.startswith(f"{server.url}: {answer.status}: {told}")
    assert len(message) < 400


def test_a_model_that_is_not_there_is_named_with_those_that_are() -> None:
    with Server([refusal("no model", 404)]) as server:
        assert "(it serves: small, large): no model" in failure(on(server), ConfigError)
    with Server([Reply(b"", 405)], models=Reply(b"")) as server:
        message = failure(on(server), ConfigError)
    assert "the address is not one up to and with /v1: no reason given" in message


def test_nobody_is_followed_to_another_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OWN, KEY)
    with Server([said()]) as other:
        for status in (301, 302, 307, 308):
            sent_on = Reply(b"", status, {"location": f"{other.url}{CHAT}"})
            with Server([sent_on], models=sent_on) as server:
                wire = on(server)
                reach(wire)
                assert "sends us on to another address" in failure(wire, ConfigError)
                assert asyncio.run(wire.served()) == []
        around = Reply(b"", 302, {"location": "/v1/chat/completions"})
        with Server([around]) as server:
            failure(on(server), ConfigError)
        assert len(server.asked) == 1
    assert other.asked == other.probed == []
    assert not other.ports


GARBAGE: dict[str, Answer] = {
    "html": Reply(b"<html>Welcome!</html>", headers={"content-type": "text/html"}),
    "nothing": Reply(b""),
    "no content": Reply(b"", 204),
    "null": Reply(b"null"),
    "cut": Reply(b'{"choices": [{"mess'),
    "deep": Reply(b"[" * 200_000),
    "deep and whole": Reply(b"[" * 200_000 + b"]" * 200_000),
    "deep error": Reply(b'{"error": ' * 20_000 + b"1" + b"}" * 20_000, 400),
    "many digits": Reply(b'{"choices": ' + b"9" * 10_000 + b"}"),
    "not utf-8": Reply(b'{"a": "\xff\xfe"}'),
    "half utf-16": Reply(b"\xff\xfe{"),
    "no gzip": Reply(b"{}", headers={"content-encoding": "gzip"}),
    "half gzip": Reply(gzip.compress(b"{" * 999)[:20], headers={"content-encoding": "gzip"}),
    "no deflate": Reply(b"\x00{}", headers={"content-encoding": "deflate"}),
    "no br or zstd": Reply(b"{", headers={"content-encoding": "br, zstd"}),
    "odd status": Reply(b"{}", 299 + 300),
    "no http": raw(b"SSH-2.0-OpenSSH_9.6\r\n"),
    "half a header": raw(b"HTTP/1.1 200 OK\r\ncontent-"),
    "two lengths": raw(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}"),
    "bad length": raw(b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n{}"),
    "bad chunk": raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"),
    "endless header": raw(b"HTTP/1.1 200 OK\r\na: " + b"b" * 300_000),
    "bad redirect": raw(b"HTTP/1.1 302 x\r\nlocation: http://[::1\r\ncontent-length: 0\r\n\r\n"),
    "switching": raw(b"HTTP/1.1 101 x\r\nupgrade: y\r\nconnection: upgrade\r\n\r\n"),
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_is_a_failure_that_names_the_server(kind: str) -> None:
    with Server([GARBAGE[kind]]) as server:
        assert len(failure(on(server, patience=0), EngineError)) < 500


pieces = st.sampled_from(
    [
        *(b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 400 \r\n", b"HTTP/1.0 429 x\r\n"),
        *(b"HTTP/1.1 301 x\r\n", b"location: ::\r\n", b"set-cookie: a=b\r\n", b"\r\n\r\n"),
        *(
            b"content-length: 3\r\n",
            b"transfer-encoding: chunked\r\n",
            b"content-encoding: gzip\r\n",
        ),
        *(b"content-type: a;charset=hex\r\n", b"retry-after: 1e9\r\n", b"\r\n", b"3\r\n"),
        *(b'{"error":', b'{"a": 1}', b"[]"),
    ]
)


def test_whatever_comes_is_data_or_one_of_our_errors() -> None:
    now = [b""]

    def send(connection: socket.socket) -> None:
        connection.sendall(now[0])

    with Server([send], models=send) as server, asyncio.Runner() as runner:
        wire = on(server, patience=0, timeout=2)

        @settings(max_examples=100, deadline=None)
        @given(st.lists(pieces | st.binary(max_size=8), max_size=8).map(b"".join))
        def check(content: bytes) -> None:
            now[:] = [content]
            for call in (wire.ask(CHAT, {}), wire.reach()):
                try:
                    runner.run(call)
                except RostraError as error:
                    assert server.url in str(error)
                    assert str(error).isprintable()
            assert isinstance(runner.run(wire.served()), list)

        check()


# What does not end


@pytest.mark.parametrize("fault", [drip, silence])
def test_a_reply_that_does_not_come_in_time_is_a_failure(fault: Answer) -> None:
    with Server([fault]) as server:
        begun = time.monotonic()
        message = failure(on(server, timeout=0.4), EngineError)
        assert 0.4 <= time.monotonic() - begun < 2
        assert "no reply within 0.4 s" in message
        assert server.deserted()


def test_a_reply_without_an_end_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "LARGEST", 2**20)
    bomb = gzip.compress(b" " * 2**26)
    assert len(bomb) < 2**17
    with Server([flood, Reply(bomb, headers={"content-encoding": "gzip"})]) as server:
        assert "more than 1 MB" in failure(on(server), EngineError)
        assert "more than 1 MB" in failure(on(server), EngineError)
        assert server.deserted()
    assert len(server.asked) == 2


def test_a_long_reply_arrives_whole() -> None:
    text = "0123456789" * 500_000
    with Server([said(text)]) as server:
        assert ask(on(server))["choices"][0]["message"]["content"] == text


# Many at once, and again


def test_no_more_are_asked_at_once_than_there_are_lanes() -> None:
    with Server(lambda asked: slow(said(), 0.05)) as server:
        wire = on(server, lanes=3)

        async def many() -> list[Any]:
            return await asyncio.gather(*(wire.ask(CHAT, {"i": i}) for i in range(12)))

        assert len(asyncio.run(many())) == 12
    assert server.busiest == 3
    assert sorted(asked.data["i"] for asked in server.asked) == list(range(12))


def test_connections_are_used_again() -> None:
    def answer(asked: Asked) -> Answer:
        time.sleep(0.01)
        return said()

    with Server(answer) as server:
        wire = on(server, lanes=2)

        async def many() -> None:
            await asyncio.gather(*(wire.ask(CHAT, {}) for _ in range(12)))

        asyncio.run(many())
    assert sum(server.ports.values()) == 12
    assert len(server.ports) <= 2


def test_an_endpoint_outlives_event_loops_and_leaves_nothing_behind() -> None:
    async def several(wire: Endpoint) -> weakref.ref[asyncio.AbstractEventLoop]:
        await asyncio.gather(*(wire.ask(CHAT, {}) for _ in range(4)))
        return weakref.ref(asyncio.get_running_loop())

    with Server([said()]) as server:
        wire = on(server, lanes=2)
        loops = [asyncio.run(several(wire)) for _ in range(3)]
        assert server.deserted()
        ask(wire)
        gc.collect()
        assert [loop() for loop in loops] == [None] * 3
    assert len(server.asked) == 13


@pytest.mark.parametrize("before", [False, True])
def test_connections_of_a_forgotten_endpoint_are_closed_with_the_loop(before: bool) -> None:
    async def forget(server: Server) -> None:
        wire = on(server)
        await wire.ask(CHAT, {})
        if before:
            del wire
            gc.collect()
            await asyncio.sleep(0.02)

    with Server([said()]) as server:
        asyncio.run(forget(server))
        gc.collect()
        assert server.deserted()


async def interrupted(work: Awaitable[T], seconds: float) -> list[asyncio.Task[Any]]:
    """Cancels some work in the midst of it; the tasks that are left then."""
    task = asyncio.ensure_future(work)
    await asyncio.sleep(seconds)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return [other for other in asyncio.all_tasks() if other is not asyncio.current_task()]


@pytest.mark.parametrize("fault", [silence, drip, reply({}, 429, retry_after="30")])
def test_work_that_is_cancelled_leaves_no_task_and_no_lane_behind(fault: Answer) -> None:
    with Server([fault, fault, said()]) as server:
        wire = on(server, lanes=2, patience=60, timeout=60)

        async def run() -> Any:
            both = asyncio.gather(wire.ask(CHAT, {}), wire.ask(CHAT, {}))
            assert await interrupted(both, 0.2) == []
            return await asyncio.gather(wire.ask(CHAT, {}), wire.ask(CHAT, {}))

        assert len(asyncio.run(run())) == 2
        assert server.deserted()


def test_a_loop_that_is_interrupted_leaves_no_connection_behind() -> None:
    with Server([silence]) as server:
        wire = on(server, timeout=60)

        async def stop() -> None:
            loop = asyncio.get_running_loop()
            work = [asyncio.ensure_future(wire.ask(CHAT, {})) for _ in range(3)]
            loop.call_later(0.2, lambda: (_ for _ in ()).throw(KeyboardInterrupt))
            await asyncio.gather(*work)

        with pytest.raises(KeyboardInterrupt):
            asyncio.run(stop())
        assert server.deserted()


# Keys


def test_a_key_goes_with_every_request_and_without_one_none_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody-else")
    with Server([said()]) as server:
        ask(on(server))
        reach(on(server))
        monkeypatch.setenv(OWN, KEY)
        wire = on(server)
        ask(wire)
        reach(wire)
    for first, second in (server.asked, server.probed):
        assert "authorization" not in first.headers
        assert "somebody" not in str(first)
        assert second.headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in f"{wire!r} {wire.address!r} {wire.address}"


ECHOES: dict[str, Answer] = {
    "message": refusal(f"wrong key: {KEY}", 400),
    "locked": refusal(f"wrong key: {KEY}", 401),
    "not found": refusal(f"no {KEY}", 404),
    "busy": refusal(f"slow down, {KEY}", 429),
    "crash": refusal(f"Traceback: {KEY}", 500),
    "detail": reply({"detail": [{"input": {"authorization": f"Bearer {KEY}"}}]}, 422),
    "text": Reply(KEY.encode() * 30, 400, {"content-type": "text/plain"}),
    "cut off": Reply(b" " * 1180 + KEY.encode(), 400, {"content-type": "text/plain"}),
    "kind": Reply(b"{", 200, {"content-type": f"text/{KEY}"}),
    "status line": raw(KEY.encode() + b"\r\n\r\n"),
    "header line": raw(f"HTTP/1.1 200 OK\r\n{KEY} {KEY}\r\n\r\n".encode()),
    "reason": raw(f"HTTP/1.1 400 {KEY}\r\ncontent-length: 0\r\n\r\n".encode()),
    "location": Reply(b"", 302, {"location": f"http://[{KEY}"}),
    "chunk": raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + KEY.encode()),
}


@pytest.mark.parametrize("kind", ECHOES)
def test_a_key_that_the_server_repeats_is_told_to_nobody(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv(OWN, KEY)
    models = reply({"data": [{"id": f"small-{KEY}\x1b"}]})
    with Server([ECHOES[kind]], models=models) as server:
        wire = on(server, patience=0.2)
        with pytest.raises(RostraError) as caught:
            ask(wire)
    assert server.asked[0].headers["authorization"].endswith(KEY)
    told = "".join(traceback.format_exception(caught.value)) + repr(caught.value.__dict__)
    for part in (KEY, KEY[:16]):
        assert part not in told
        assert part not in "".join(r.getMessage() for r in caplog.records if "rostra" in r.name)
    assert str(caught.value).isprintable()


def test_no_log_of_any_package_holds_the_key(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv(OWN, KEY)
    with Server([hang_up, said()]) as server:
        ask(on(server))
    assert {r.name.split(".")[0] for r in caplog.records} >= {"httpcore2"}
    assert KEY not in "".join(r.getMessage() + repr(r.args) for r in caplog.records)


def test_a_key_of_few_letters_does_not_spoil_what_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OWN, "EMPTY")
    with Server() as server:
        wire = on(server)
        assert wire.without_key("The set is EMPTY.") == "The set is EMPTY."
        assert wire.plain("wrong key EMPTY") == "wrong key ..."
        monkeypatch.setenv(OWN, KEY)
        assert on(server).without_key(f"The key is {KEY}!") == "The key is ...!"


# Proxies


def through(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, proxy)


def test_no_proxy_stands_between_us_and_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server([said()]) as proxy, Server([said("Direct.")]) as server:
        through(monkeypatch, proxy.url.removesuffix("/v1"))
        assert ask(on(server))["choices"][0]["message"]["content"] == "Direct."
    assert not proxy.ports


def test_a_proxy_that_could_read_the_key_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    address = read_address("http://model.internal/v1#m")
    with Server([said("Through.")]) as proxy:
        through(monkeypatch, proxy.url.removesuffix("/v1"))
        assert ask(Endpoint(address))["choices"][0]["message"]["content"] == "Through."
        assert len(proxy.asked) == 1
        monkeypatch.setenv("ROSTRA_KEY_MODEL_INTERNAL", KEY)
        failure(Endpoint(address, patience=0), EngineUnavailable)
    assert len(proxy.asked) == 1


def test_a_proxy_sees_of_an_encrypted_request_only_where_it_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ROSTRA_KEY_MODEL_EXAMPLE", KEY)
    with Server([refusal("not here", 407)]) as proxy:
        through(monkeypatch, proxy.url.removesuffix("/v1").replace("//", "//me:hunter2@"))
        wire = Endpoint(read_address("https://model.example/v1#m"), patience=0)
        message = failure(wire, EngineUnavailable)
    (asked,) = proxy.asked
    assert (asked.method, asked.path) == ("CONNECT", "model.example:443")
    assert KEY not in str(asked)
    assert "hunter2" not in message


@pytest.mark.parametrize(
    "proxy", ["gopher://me:hunter2@host", "http://me:hunter2@host:x", "socks5://me:hunter2@host"]
)
def test_a_proxy_that_cannot_be_used_is_one_sentence_without_its_password(
    proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    through(monkeypatch, proxy)
    wire = Endpoint(Address("https://model.example/v1", "model.example", "m"))
    message = failure(wire, ConfigError)
    assert "see to HTTP_PROXY" in message
    assert "hunter2" not in message
    monkeypatch.delenv("all_proxy")
    through(monkeypatch, "http://127.0.0.1:9")
    assert "does not answer" in failure(Endpoint(wire.address, patience=0), EngineUnavailable)


def test_certificates_that_cannot_be_read_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", __file__)
    wire = Endpoint(read_address("https://model.example/v1"), patience=0)
    assert "SSL_CERT_FILE" in failure(wire, ConfigError)


@pytest.mark.parametrize(
    ("text", "alone"),
    [
        ("https://api.example.com", True),
        ("http://api.example.com", False),
        ("http://8.8.8.8:8000", False),
        ("http://127.0.0.1:8000", True),
        ("http://10.0.0.5:8000", True),
        ("http://gpu-box:8000", True),
    ],
)
def test_a_key_that_others_can_read_on_the_way_is_warned_about(
    text: str, alone: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    address = read_address(text)
    Endpoint(address)
    assert not caplog.records
    monkeypatch.setenv(address.key_variables[0], KEY)
    Endpoint(address)
    assert ["use https://" in record.getMessage() for record in caplog.records] == [True][alone:]
    assert KEY not in caplog.text
