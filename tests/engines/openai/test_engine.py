"""A model behind an endpoint, as an engine that samples."""

import asyncio
import json
import logging
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rostra.engines.bytechat import END, ByteChat
from rostra.engines.chat import Message
from rostra.engines.engine import Engine
from rostra.engines.openai.engine import OPTIONAL, OpenAIEngine
from rostra.engines.sampling import Completion, SamplingParams, Usage
from rostra.errors import ConfigError, EngineError, EngineUnavailable
from rostra.seeds import derive
from tests.engines.openai.server import (
    Answer,
    Answers,
    Asked,
    Reply,
    Server,
    refusal,
    reply,
    reset,
    said,
    silence,
)

ASKED = [Message("system", "Be brief."), Message("user", "6 * 7?")]
PROMPT = ByteChat().open(ASKED)
KEY = "sk-test-0123456789abcdef"


def on(server: Server, **limits: Any) -> OpenAIEngine:
    return OpenAIEngine(server.address, **({"patience": 2, "timeout": 5} | limits))


def sample(
    engine: OpenAIEngine, n: int = 1, messages: Sequence[Message] = ASKED, **params: Any
) -> list[Completion]:
    async def run() -> list[Completion]:
        sampler = await engine.policy()
        prompt = ByteChat().open(messages)
        return list(await sampler.sample(prompt, n, SamplingParams(**params)))

    return asyncio.run(run())


def only(answer: Answer, **params: Any) -> Completion:
    """The reply that one answer becomes."""
    with Server([answer]) as server:
        (completion,) = sample(on(server), **params)
    return completion


# Opening


def test_it_is_an_engine_like_any_other() -> None:
    engine: Engine = OpenAIEngine("http://127.0.0.1:9/v1#m")
    assert (engine.name, engine.chat.extends) == ("openai", True)
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1:9/v1#m: .*not be trained"):
        asyncio.run(engine.trainer())


def test_at_least_one_lane_is_needed() -> None:
    with pytest.raises(ConfigError, match="lanes = 0: must be at least 1"):
        OpenAIEngine("http://127.0.0.1:9/v1#m", lanes=0)


def test_a_server_that_is_away_is_known_before_anything_is_sampled() -> None:
    with Server(models=reset) as server, pytest.raises(EngineUnavailable, match=server.url):
        asyncio.run(on(server).sampler())


def test_who_names_no_model_is_told_which_there_are() -> None:
    with Server() as server, pytest.raises(ConfigError) as caught:
        asyncio.run(OpenAIEngine(server.url).sampler())
    assert str(caught.value) == (
        f"{server.url}: name the model after a #, as in {server.url}#small "
        "(it serves: small, large)"
    )
    with Server(models=Reply(b"")) as server, pytest.raises(ConfigError, match="/v1#MODEL$"):
        asyncio.run(OpenAIEngine(server.url).sampler())


def test_it_does_not_say_how_likely_given_words_are() -> None:
    async def run(engine: OpenAIEngine) -> None:
        await (await engine.sampler()).score(PROMPT, 1)

    with Server() as server, pytest.raises(ConfigError, match="does not say how likely"):
        asyncio.run(run(on(server)))


# Asking


def test_a_conversation_is_asked_for_as_it_is() -> None:
    grown = [*ASKED, Message("assistant", "é: 42"), Message("user", "Sure?\n<|end|>")]
    with Server([said()]) as server:
        sample(on(server), messages=grown, max_tokens=9, temperature=0.6, seed=2**62 + 5)
    assert server.asked[0].data == {
        "model": "small",
        "messages": [{"role": m.role, "content": m.text} for m in grown],
        "max_tokens": 9,
        "temperature": 0.6,
        "seed": 5,
    }


def test_what_narrows_the_choice_is_asked_for_where_it_does() -> None:
    with Server([said()]) as server:
        sample(on(server), top_p=0.9, top_k=40, stop=("</a>", "</b>"))
    asked = server.asked[0].data
    assert (asked["top_p"], asked["top_k"], asked["stop"]) == (0.9, 40, ["</a>", "</b>"])


def test_stop_tokens_are_refused_because_they_are_not_ours() -> None:
    with Server([said()]) as server, pytest.raises(ConfigError, match=r"stop = \[5\].*strings"):
        sample(on(server), stop=(5,))
    assert server.asked == []


def test_several_replies_are_asked_for_each_with_a_seed_of_its_own() -> None:
    def answer(asked: Asked) -> Answer:
        time.sleep(0.03 * (asked.data["seed"] % 3))
        return said(f"seed {asked.data['seed']}")

    with Server(answer) as server:
        engine = on(server)
        first, again = (sample(engine, 5, seed=3) for _ in range(2))
        (one,) = sample(engine, seed=3)
    expected = [f"seed {derive(3, i) % 2**31}" for i in range(5)]
    assert [c.text for c in first] == [c.text for c in again] == expected
    assert one.text == "seed 3"


def test_lanes_hold_for_all_who_sample_at_once() -> None:
    def answer(asked: Asked) -> Answer:
        time.sleep(0.03)
        return said()

    async def run(engine: OpenAIEngine) -> int:
        samplers = [await engine.sampler() for _ in range(4)]
        params = SamplingParams()
        replies = await asyncio.gather(*(s.sample(PROMPT, 3, params) for s in samplers))
        return sum(map(len, replies))

    with Server(answer) as server:
        assert asyncio.run(run(on(server, lanes=4))) == 12
    assert server.busiest == 4


def test_one_failure_ends_the_others_and_leaves_no_task_behind() -> None:
    bad = derive(0, 2) % 2**31

    def answer(asked: Asked) -> Answer:
        return refusal("no such thing") if asked.data["seed"] == bad else silence

    async def run(engine: OpenAIEngine) -> None:
        sampler = await engine.sampler()
        with pytest.raises(EngineError, match="no such thing"):
            await sampler.sample(PROMPT, 4, SamplingParams())
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with Server(answer) as server:
        asyncio.run(run(on(server)))
        assert server.deserted()


def test_who_is_interrupted_leaves_no_task_behind() -> None:
    async def run(engine: OpenAIEngine) -> None:
        sampler = await engine.sampler()
        asking = asyncio.ensure_future(sampler.sample(PROMPT, 4, SamplingParams()))
        await asyncio.sleep(0.2)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with Server([silence]) as server:
        asyncio.run(run(on(server)))
        assert server.deserted()


# Replies


def test_a_reply_is_bytes_and_the_end_of_the_turn() -> None:
    completion = only(said("Né 数"))
    assert completion.text == "Né 数"
    assert completion.tokens.tolist() == [*"Né 数".encode(), END]
    assert completion.starts.tolist() == [0, 1, 1, 2, 3, 3, 3, 4]
    assert completion.logprobs.tolist() == [0.0] * 8
    assert completion.logprobs.dtype == np.float32
    assert (completion.stop_reason, completion.usage) == ("stop", Usage(7, 3))


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        *((finish, "stop") for finish in ("stop", "stop_sequence", "eos", "eos_token", "end_turn")),
        (None, "stop"),
        ("length", "length"),
        ("max_tokens", "length"),
    ],
)
def test_every_server_has_its_own_word_for_the_end(finish: str | None, reason: str) -> None:
    completion = only(said("So be it", finish))
    assert completion.stop_reason == reason
    assert (completion.tokens[-1] == END) == (reason == "stop")


@pytest.mark.parametrize("finish", ["content_filter", "tool_calls", "", "\ud800", "\x1b[2J" * 999])
def test_a_reply_that_was_withheld_is_a_failure(finish: str) -> None:
    with pytest.raises(EngineError, match="gave no reply") as caught:
        only(said("Half", finish))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("text", [None, ""])
def test_a_reply_without_a_word_is_a_reply(text: str | None) -> None:
    completion = only(said(text))
    assert (completion.text, completion.tokens.tolist()) == ("", [END])


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (said("<a>x</a> more"), "<a>x</a>"),
        (said("<a>x</a> more", "length"), "<a>x</a>"),
        (said("<b>x</b><a>y</a>"), "<b>x</b>"),
        (said("<a>x", stop_reason="</a>"), "<a>x</a>"),
        (said("<a>x", stop_reason="</c>"), "<a>x"),
        (said("<a>x", stop_reason=151645), "<a>x"),
        (said("<a>x", stop_reason={"odd": []}), "<a>x"),
    ],
)
def test_a_reply_ends_with_the_stop_string_that_it_stopped_at(answer: Reply, text: str) -> None:
    completion = only(answer, stop=("</a>", "</b>"))
    assert (completion.text, completion.stop_reason) == (text, "stop")
    assert (completion.tokens[-1] == END) == (text == "<a>x")


def test_half_a_character_is_no_reason_to_lose_a_reply() -> None:
    message = b'{"choices": [{"message": {"content": "Yes \\ud83d"}, "finish_reason": "length"}]}'
    completion = only(Reply(message))
    assert (completion.text, completion.stop_reason) == ("Yes ?", "length")


def test_any_text_is_read_by_the_one_who_is_asked_next() -> None:
    chat, params, answers = ByteChat(), SamplingParams(), [said()]
    with Server(answers) as server, asyncio.Runner() as runner:
        sampler = runner.run(on(server).sampler())

        @settings(max_examples=60, deadline=None)
        @given(st.text(st.characters(exclude_categories=()), max_size=20))
        def check(text: str) -> None:
            answers[:] = [said(text)]
            (first,) = runner.run(sampler.sample(PROMPT, 1, params))
            more = chat.extend(first.tokens, [Message("user", "And?")])
            grown = np.concatenate([PROMPT, first.tokens, more])
            runner.run(sampler.sample(grown, 1, params))
            assert first.text == text.encode("utf-8", "replace").decode()
            heard = [message["content"] for message in server.asked[-1].data["messages"]]
            assert heard[2:] == [first.text, "And?"]
            assert len(first.tokens) == len(first.starts) == len(first.logprobs)

        check()


def test_a_key_that_the_server_puts_into_a_reply_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ROSTRA_KEY_127_0_0_1", KEY)
    completion = only(said(f"You sent Bearer {KEY}."))
    assert completion.text == "You sent Bearer ...."
    with pytest.raises(EngineError, match="gave no reply") as caught:
        only(said("x", KEY))
    assert KEY not in str(caught.value)
    with Server([refusal(f"{KEY}: seed is not supported"), said()]) as server:
        engine = on(server)
        sample(engine)
    assert KEY not in caplog.text
    assert KEY not in repr(engine)


# Answers without form


@pytest.mark.parametrize(
    ("data", "where"),
    [
        ([], "anything"),
        ("words", "anything"),
        (7, "anything"),
        ({}, "choices"),
        ({"choices": None}, "choices"),
        ({"choices": []}, "choices"),
        ({"choices": {}}, "choices"),
        ({"choices": ["x"]}, "choices.0"),
        ({"choices": [{}]}, "choices.0.message"),
        ({"choices": [{"message": None}]}, "choices.0.message"),
        ({"choices": [{"message": {"content": 5}}]}, "choices.0.message.content"),
        ({"choices": [{"message": {"content": [{"text": "x"}]}}]}, "choices.0.message.content"),
        ({"choices": [{"message": {}, "finish_reason": 1}]}, "choices.0.finish_reason"),
        ({"error": {"message": "in spite of 200"}}, "choices"),
    ],
)
def test_an_answer_of_another_form_is_a_failure_that_says_where(data: object, where: str) -> None:
    with Server([reply(data)]) as server, pytest.raises(EngineError) as caught:
        sample(on(server))
    assert f"{server.url}: an answer without what" in str(caught.value)
    assert f"({where}: " in str(caught.value)
    assert not isinstance(caught.value, EngineUnavailable)


jsonish = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "message", "content", "finish_reason", "stop_reason", "usage"]
                + ["prompt_tokens", "completion_tokens", "error"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
shaped = st.fixed_dictionaries(
    {
        "choices": st.lists(
            st.fixed_dictionaries(
                {"message": st.fixed_dictionaries({"content": jsonish}) | jsonish},
                optional={"finish_reason": jsonish, "stop_reason": jsonish},
            ),
            max_size=2,
        )
    },
    optional={"usage": jsonish | st.fixed_dictionaries({"prompt_tokens": jsonish})},
)


def test_any_data_is_a_reply_or_a_failure() -> None:
    answers: list[Answer] = [said()]
    with Server(answers) as server, asyncio.Runner() as runner:
        sampler = runner.run(on(server).sampler())

        @settings(max_examples=100, deadline=None)
        @given(shaped | jsonish)
        def check(data: object) -> None:
            answers[:] = [reply(data)]
            try:
                (completion,) = runner.run(sampler.sample(PROMPT, 1, SamplingParams(stop=("a",))))
            except EngineError:
                return
            assert len(completion.text.encode()) == np.count_nonzero(completion.tokens < END)
            assert completion.usage is not None
            assert all(0 <= count < 2**31 for count in completion.usage)

        check()


# What it costs


@pytest.mark.parametrize(
    "usage",
    [
        {},
        [],
        "many",
        {"total_tokens": 10},
        {"prompt_tokens": None, "completion_tokens": None},
        {"prompt_tokens": -1, "completion_tokens": 3},
        {"prompt_tokens": 7, "completion_tokens": 2**31},
        {"prompt_tokens": 10**4000, "completion_tokens": 3},
        {"prompt_tokens": float("nan"), "completion_tokens": 3},
    ],
)
def test_a_server_that_does_not_count_is_counted_for_and_warned_about_once(
    usage: object, caplog: pytest.LogCaptureFixture
) -> None:
    with Server([said("123456789", usage=usage)]) as server:
        engine = on(server)
        replies = sample(engine, 3) + sample(engine)
    expected = Usage(len(PROMPT) // 4, 3)
    assert [completion.usage for completion in replies] == [expected] * 4
    assert (engine.counts.read, engine.counts.sampled) == (4 * expected.read, 12)
    (record,) = caplog.records
    assert "does not say how many tokens it takes: one for every 4 bytes" in record.getMessage()


def test_what_was_spent_is_added_up() -> None:
    with Server([said(), said(usage={"prompt_tokens": 10, "completion_tokens": 0})]) as server:
        engine = on(server)
        assert [c.usage for c in sample(engine) + sample(engine)] == [Usage(7, 3), Usage(10, 0)]
    assert (engine.counts.read, engine.counts.sampled) == (17, 3)


# What a server does not want to be told


def picky(*unwanted: str, blame: bool = False) -> Answers:
    """A server that refuses some parameters, one at a time, with or without naming them apart."""

    def answer(asked: Asked) -> Answer:
        time.sleep(0.01)
        for name in unwanted:
            if name in asked.data:
                named = {"param": name} if blame else {}
                return refusal(f"Unsupported parameter: '{name}' is not supported.", **named)
        return said()

    return answer


@pytest.mark.parametrize("blame", [False, True])
@pytest.mark.parametrize("unwanted", OPTIONAL)
def test_what_a_server_does_not_want_is_told_no_more_and_warned_about_once(
    unwanted: str, blame: bool, caplog: pytest.LogCaptureFixture
) -> None:
    params: dict[str, Any] = {"top_p": 0.5, "top_k": 9, "stop": ("x",), "max_tokens": 77}
    with Server(picky(unwanted, blame=blame)) as server:
        engine = on(server, lanes=6)
        assert len(sample(engine, 6, **params)) == 6
        told = len(server.asked)
        sample(engine, 4, **params)
    assert all(unwanted not in asked.data for asked in server.asked[told:])
    assert len(server.asked) == told + 4
    assert told <= 12
    limit = "max_completion_tokens" if unwanted == "max_tokens" else "max_tokens"
    assert server.asked[-1].data[limit] == 77
    wished = {"model", "messages", limit, "temperature", "top_p", "top_k", "stop", "seed"}
    assert set(server.asked[-1].data) == wished - {unwanted}
    (record,) = caplog.records
    assert f"{engine.address} takes no {unwanted}: {OPTIONAL[unwanted]}" == record.getMessage()


def test_a_server_that_wants_nothing_but_words_gets_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Server(picky(*OPTIONAL, "max_completion_tokens")) as server:
        engine = on(server)
        with pytest.raises(EngineError, match="'max_completion_tokens' is not supported"):
            sample(engine, 4, top_p=0.5, top_k=3, stop=("x",))
    assert set(server.asked[-1].data) == {"model", "messages", "max_completion_tokens"}
    assert len(caplog.records) == len(OPTIONAL)


def test_a_reply_is_still_cut_at_a_stop_string_that_the_server_was_not_told() -> None:
    def answer(asked: Asked) -> Answer:
        return refusal("unknown field stop") if "stop" in asked.data else said("a</a>b")

    with Server(answer) as server:
        (completion,) = sample(on(server), stop=("</a>",))
    assert (completion.text, completion.stop_reason) == ("a</a>", "stop")


@pytest.mark.parametrize(
    "answer",
    [
        reply(
            {"detail": [{"loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}]}, 422
        ),
        reply({"error": "Unexpected keys in the request: {'seed'}"}, 422),
        refusal("Unrecognized request argument supplied: seed"),
        refusal("seed: unknown field", 500),
    ],
)
def test_every_server_has_its_own_way_to_blame_a_parameter(answer: Reply) -> None:
    with Server(lambda asked: answer if "seed" in asked.data else said("Well.")) as server:
        assert sample(on(server))[0].text == "Well."
    assert "temperature" in server.asked[-1].data


@pytest.mark.parametrize(
    "answer",
    [
        refusal("The prompt is too long."),
        refusal("temperature must be at most 2"),
        refusal("seeds are not supported"),
        refusal("This model does not support images", param="messages"),
        refusal("'seed' is not supported", param="messages"),
        refusal("top_p is not supported"),
    ],
)
def test_a_refusal_of_what_cannot_be_left_out_is_a_failure(answer: Reply) -> None:
    with Server([answer]) as server, pytest.raises(EngineError, match=f"{server.url}: 400: "):
        sample(on(server))
    assert len(server.asked) == 1


NO_SYSTEM = [
    "System role not supported",
    "Only user and assistant roles are supported!",
    "Unsupported value: 'messages[0].role' does not support 'system' with this model.",
    "Conversation roles must alternate user/assistant/user/assistant/...",
]


def plainspoken(message: str) -> Answers:
    """A server whose model knows no system message."""

    def answer(asked: Asked) -> Answer:
        first = asked.data["messages"][0]["role"]
        return refusal(message) if first == "system" else said("Well.")

    return answer


@pytest.mark.parametrize("message", NO_SYSTEM)
def test_a_model_without_a_system_message_hears_it_from_the_user(
    message: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Server(plainspoken(message)) as server:
        engine = on(server)
        assert [c.text for c in sample(engine, 3)] == ["Well."] * 3
        told = len(server.asked)
        sample(engine)
    assert len(server.asked) == told + 1
    assert server.asked[-1].data["messages"] == [{"role": "user", "content": "Be brief.\n\n6 * 7?"}]
    (record,) = caplog.records
    assert "takes no system message: what it says goes before the first" in record.getMessage()


@pytest.mark.parametrize(
    ("messages", "heard"),
    [
        ([("system", "a")], [("user", "a")]),
        ([("system", "a"), ("assistant", "b")], [("user", "a"), ("assistant", "b")]),
        ([("user", "b"), ("assistant", "c")], [("user", "b"), ("assistant", "c")]),
        (
            [("system", "a"), ("user", "b"), ("assistant", "c"), ("user", "d")],
            [("user", "a\n\nb"), ("assistant", "c"), ("user", "d")],
        ),
    ],
)
def test_a_system_message_goes_before_whatever_comes_first(
    messages: list[tuple[Any, str]], heard: list[tuple[str, str]]
) -> None:
    with Server(plainspoken(NO_SYSTEM[0])) as server:
        engine = on(server)
        sample(engine)
        sample(engine, messages=[Message(*message) for message in messages])
        sample(engine, messages=[Message("system", "alone")])
    asked = server.asked[-2].data["messages"]
    assert [(m["role"], m["content"]) for m in asked] == heard
    assert server.asked[-1].data["messages"] == [{"role": "user", "content": "alone"}]


def test_a_prompt_without_a_message_is_a_failure_where_the_server_refuses_it() -> None:
    refused = refusal("System role not supported")
    with Server([refused]) as server, pytest.raises(EngineError, match="System role"):
        sample(on(server), messages=[])


def test_a_request_is_one_line_of_ascii() -> None:
    with Server([said()]) as server:
        sample(on(server), messages=[Message("user", "数\n\u2028\x00")])
    assert server.asked[0].body.isascii()
    assert b"\n" not in server.asked[0].body
    assert json.loads(server.asked[0].body)["messages"][0]["content"] == "数\n\u2028\x00"


def test_an_engine_works_in_one_event_loop_after_another(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with Server([said()]) as server:
        engine = on(server, lanes=2)
        assert [len(sample(engine, 4)) for _ in range(3)] == [4] * 3
        assert server.deserted()
    assert caplog.records == []
