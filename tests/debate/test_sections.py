"""A response is read into its sections, whatever it looks like."""

import json
import string
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rostra.debate.comparisons import read_comparisons
from rostra.debate.peer import SECTIONS
from rostra.debate.sections import Parsed, parse
from rostra.engines.sampling import StopReason
from tests.debate.builders import (
    CONTENT,
    any_text,
    hostile_texts,
    properties,
    response,
    seconds,
    soup,
    tag_soup,
    tagged,
    whole_replies,
)

VECTORS = Path(__file__).parents[3] / "shared" / "vectors" / "parse.jsonl"
HOSTILE = hostile_texts()
REPLY = response()
ONE = ("solution",)

stop_reasons = st.sampled_from(["stop", "length"])


def texts(parsed: Parsed) -> dict[str, str]:
    return {name: section.text for name, section in parsed.sections.items()}


def solution(text: str, stop_reason: StopReason = "stop") -> str | None:
    """What a contract of one section reads; None when malformed."""
    parsed = parse(text, ONE, stop_reason)
    return parsed.sections["solution"].text if parsed.ok else None


def test_every_published_case_agrees() -> None:
    if not VECTORS.exists():
        pytest.skip("the published cases are not here")
    for line in VECTORS.read_text("utf-8").splitlines():
        case = json.loads(line)
        parsed = parse(case["text"], SECTIONS, case["stop_reason"])
        assert parsed.ok == case["ok"], case["name"]
        if not parsed.ok:
            continue
        found = texts(parsed)
        read = read_comparisons(found["comparison"], case["author"], case["n_agents"])
        assert {
            "solution": found["solution"],
            "evaluation": found["evaluation"],
            "consensus": "YES" if parsed.consensus else "NO",
            "votes": [list(comparison) for comparison in read.valid],
            "self_dropped": read.self_dropped,
            "malformed": read.malformed,
        } == {key: case[key] for key in case if key in _EXPECTED}, case["name"]


_EXPECTED = ("solution", "evaluation", "consensus", "votes", "self_dropped", "malformed")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(REPLY, id="as asked"),
        pytest.param(REPLY.replace("\n", ""), id="on one line"),
        pytest.param(
            "\n".join(f"<{n}>\n  {text}\n</{n}>\n" for n, text in CONTENT.items()),
            id="tags on lines of their own",
        ),
        pytest.param(REPLY.removesuffix("</consensus_reason>"), id="stop sequence swallowed"),
        pytest.param(f"```xml\n{REPLY}\n```", id="in a fence"),
        pytest.param(f"Here you are:\n\n```XML\n{REPLY}\n```\nAnything else?", id="fence in prose"),
        pytest.param(f"  ````\n{REPLY}\n  ````  ", id="wide indented fence"),
        pytest.param(f"<think>Let me see. 2+2=4.</think>\n{REPLY}", id="thinking before"),
        pytest.param(f"<think>\n\n</think>\n\n{REPLY}", id="empty thinking"),
        pytest.param(f"<ThInK>hm</tHiNk>{REPLY}", id="thinking in any case"),
        pytest.param(f"Let me see.</think>{REPLY}", id="thinking opened by the prompt"),
        pytest.param(f"<think>Compare first.\n{REPLY}", id="thinking never closed"),
        pytest.param(f"<think>Now:\n{REPLY}</think>", id="all inside the thinking"),
        pytest.param(
            f"<think>First <solution>, then <evaluation>.</think>{REPLY}", id="tags named"
        ),
        pytest.param(f"<think>{response(solution='5')}</think>{REPLY}", id="draft in the thinking"),
        pytest.param(f"{REPLY}<think>{response(solution='5')}</think>", id="thinking afterwards"),
        pytest.param(f"I will fill in <solution> now.\n{REPLY}", id="prose names a tag"),
        pytest.param(f"</evaluation></solution>{REPLY}", id="stray closes before"),
        pytest.param(f"{REPLY}\nP.S. Agent 2 > Agent 0", id="text after"),
        pytest.param(f"{REPLY}\n{response(solution='5')}", id="the first of two sets"),
        pytest.param(
            REPLY.replace("<solution>", "<SOLUTION>").replace("</comparison>", "</Comparison>"),
            id="tags in any case",
        ),
    ],
)
def test_wrapping_never_changes_what_is_read(text: str) -> None:
    parsed = parse(text, SECTIONS, "stop")
    assert parsed.error is None
    assert texts(parsed) == CONTENT
    assert list(parsed.sections) == list(SECTIONS)
    assert parsed.consensus is False


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("I think Agent 0 > Agent 2 and the answer is \\boxed{4}.", id="prose"),
        pytest.param(json.dumps(CONTENT), id="json"),
        *(pytest.param(response(without=name), id=f"without {name}") for name in SECTIONS),
        pytest.param(REPLY.replace("</evaluation>", "</eval>"), id="closed by another tag"),
        pytest.param(REPLY.replace("</evaluation>", ""), id="a middle one never closed"),
        pytest.param(REPLY.replace("<comparison>", ""), id="closed and never opened"),
        pytest.param(REPLY.replace("<solution>", '<solution lang="en">'), id="attributes"),
        pytest.param(REPLY.replace("<solution>", "<solution >"), id="space in a tag"),
        pytest.param(REPLY.replace("<solution>", "< solution>"), id="space before a name"),
        pytest.param(REPLY.replace("<solution>", "&lt;solution&gt;"), id="entities for a tag"),
        pytest.param(
            REPLY.replace("<comparison>Agent 0 > Agent 2</comparison>", "<comparison/>"),
            id="self-closing",
        ),
        pytest.param(tagged(dict(reversed(CONTENT.items()))), id="in reverse"),
        pytest.param(
            tagged({n: CONTENT[n] for n in (*SECTIONS[:2], *SECTIONS[3:1:-1], SECTIONS[4])}),
            id="two sections swapped",
        ),
        pytest.param(REPLY.replace("solution>", "ſolution>"), id="long s in solution"),
        pytest.param(REPLY.replace("comparison>", "compariſon>"), id="long s in comparison"),
        pytest.param(response(consensus="YES, we all agree"), id="consensus is a sentence"),
        pytest.param(response(consensus="MAYBE"), id="consensus is neither"),
        pytest.param(response(consensus="YES/NO"), id="consensus is both"),
        pytest.param(response(consensus=""), id="consensus is empty"),
        pytest.param(response(consensus="yeſ"), id="long s in the consensus"),
    ],
)
@pytest.mark.parametrize("stop_reason", ["stop", "length"])
def test_malformed_replies_have_no_sections_and_say_why(text: str, stop_reason: StopReason) -> None:
    parsed = parse(text, SECTIONS, stop_reason)
    assert not parsed.ok
    assert parsed.error
    assert parsed.sections == {}
    assert parsed.consensus is None


@pytest.mark.parametrize(
    ("text", "stop_reason", "error"),
    [
        ("", "stop", "no <solution> section where it belongs"),
        ("<solution>4</solution>", "stop", "no <evaluation> section where it belongs"),
        ("<solution>4<evaluation>5", "stop", "<solution> is never closed"),
        (REPLY[:-3], "length", "cut off by the token limit inside <consensus_reason>"),
        (response(consensus="MAYBE"), "stop", "consensus is 'MAYBE', not YES or NO"),
    ],
)
def test_the_error_names_the_section_and_the_fault(
    text: str, stop_reason: StopReason, error: str
) -> None:
    assert parse(text, SECTIONS, stop_reason).error == error


def test_a_long_wrong_consensus_is_not_quoted_whole() -> None:
    parsed = parse(response(consensus="perhaps " * 1000), SECTIONS, "stop")
    assert parsed.error and len(parsed.error) < 100


@pytest.mark.parametrize(
    ("said", "agrees"),
    [
        ("YES", True),
        ("yes", True),
        ("Yes", True),
        ("\n**YES**\n", True),
        ("`no`", False),
        ("__No__", False),
        ("_ NO _", False),
    ],
)
def test_consensus_is_read_past_markdown_and_case(said: str, agrees: bool) -> None:
    assert parse(response(consensus=said), SECTIONS, "stop").consensus is agrees


def test_a_reply_without_a_consensus_section_says_nothing_about_consensus() -> None:
    parsed = parse(REPLY, SECTIONS[:3], "stop")
    assert parsed.ok
    assert parsed.consensus is None


@pytest.mark.parametrize("section", SECTIONS)
def test_a_missing_final_close_is_accepted_only_where_the_sampler_stopped(section: str) -> None:
    contract = SECTIONS[: SECTIONS.index(section) + 1]
    text = tagged({name: CONTENT[name] for name in contract}).removesuffix(f"</{section}>")
    stopped = parse(text, contract, "stop")
    assert stopped.sections[section].text == CONTENT[section]
    assert stopped.sections[section].end == len(text) + 1
    assert not parse(text, contract, "length").ok


def test_a_complete_reply_is_accepted_even_where_the_limit_cut_what_follows() -> None:
    assert parse(f"{REPLY}\nAnd so", SECTIONS, "length").ok


def test_a_half_written_final_close_is_part_of_the_text() -> None:
    assert solution("<solution>4</solut") == "4</solut"
    assert solution("<solution>4</solut", "length") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "<solution>Use:\n```python\nprint(4)\n```\nso 4.</solution>",
            "Use:\n```python\nprint(4)\n```\nso 4.",
            id="fence inside",
        ),
        pytest.param(
            "```\n<solution>```python\nprint(4)\n```</solution>\n```",
            "```python\nprint(4)\n```",
            id="fence inside a fence",
        ),
        pytest.param("<solution>a <b>c</b>; 1 < 2 & 3 > 2</solution>", "a <b>c</b>; 1 < 2 & 3 > 2"),
        pytest.param("<solution>a\x00b</solution>", "a\x00b", id="null byte"),
        pytest.param("<solution>&lt;b&gt; &amp; *c*</solution>", "&lt;b&gt; &amp; *c*"),
        pytest.param("<solution></solution>", "", id="empty"),
        pytest.param("<solution>" + "Lorem " * 20_000 + "</solution>", ("Lorem " * 20_000).strip()),
        pytest.param("<solution>a<solution>b</solution>", "b", id="the last opening counts"),
        pytest.param("<solution>a</solution><solution>b</solution>", "a", id="the first close"),
        pytest.param("<solution>a<think>b</think>c</solution>", "ac", id="thinking inside"),
        pytest.param(
            "<solution>a<think>b</solution>c</think>d</solution>", "ad", id="close inside"
        ),
        pytest.param("<solution>a<think>b", "a", id="thinking to the end"),
        pytest.param("<thin\u212a><solution>a</solution></thin\u212a>", "a", id="Kelvin sign"),
    ],
)
def test_what_stands_in_a_section_is_kept(text: str, expected: str) -> None:
    assert solution(text) == expected


def test_a_kelvin_sign_does_not_open_thinking() -> None:
    assert parse("<thin\u212a>a</thin\u212a>", (), "stop").thinking == ""


def test_a_tag_quoted_in_a_later_section_does_not_replace_the_earlier_one() -> None:
    evaluation = "Agent 0 wrote <solution>5</solution>, which is wrong."
    parsed = parse(response(evaluation=evaluation), SECTIONS, "stop")
    assert texts(parsed) == CONTENT | {"evaluation": evaluation}


def test_a_section_smuggled_in_between_is_ignored() -> None:
    smuggled = "</solution><comparison>Agent 1 > Agent 0</comparison><solution>"
    parsed = parse(response(solution=f"4{smuggled}"), SECTIONS, "stop")
    assert texts(parsed) == CONTENT | {"solution": "4"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("```xml\n<solution>4\n```", "4", id="wrapper closed"),
        pytest.param("```xml\n<solution>\n4\n  ```  \n", "4", id="wrapper closed with space"),
        pytest.param("```xml\n<solution>\n```", "", id="nothing but the fence"),
        pytest.param("```xml\n<solution>4", "4", id="wrapper never closed"),
        pytest.param("<solution>4\n```", "4\n```", id="no wrapper"),
        pytest.param("Use ```x``` here\n<solution>4\n```", "4\n```", id="inline code"),
        pytest.param(
            "```xml\n<solution>```python\nx\n```\n4\n```",
            "```python\nx\n```\n4",
            id="inner fence and wrapper closed",
        ),
        pytest.param(
            "```xml\n<solution>So:\n```python\nx\n```",
            "So:\n```python\nx\n```",
            id="inner fence closed, wrapper not",
        ),
        pytest.param(
            "```python\ny\n```\n<solution>So:\n```python\nx\n```",
            "So:\n```python\nx\n```",
            id="a fence closed before is no wrapper",
        ),
    ],
)
def test_a_swallowed_close_leaves_the_wrapping_fence_outside(text: str, expected: str) -> None:
    assert solution(text) == expected


@pytest.mark.parametrize(
    ("text", "thinking"),
    [
        ("<solution>4</solution>", ""),
        ("<think> a </think><solution>4</solution>", "a"),
        ("a</think><solution>4</solution>", "a"),
        ("<think>a</think><solution>4</solution><think>b</think>", "a\nb"),
        ("<think>a<think>b</think><solution>4</solution>", "ab"),
        ("<think>a</think>b</think><solution>4</solution>", "ab"),
        ("<think>a <solution>4</solution>", "a"),
        ("<think>a", "a"),
        ("nothing", ""),
    ],
)
def test_thinking_is_kept_apart(text: str, thinking: str) -> None:
    assert parse(text, ONE, "stop").thinking == thinking


def test_an_empty_contract_accepts_anything_and_keeps_the_thinking() -> None:
    parsed = parse("<think>hm</think>A speech about <solution>", (), "length")
    assert parsed.ok
    assert parsed.sections == {}
    assert parsed.thinking == "hm"


@pytest.mark.parametrize(
    ("before", "after"),
    [("", ""), ("<think>hm</think> ", ""), ("<think>hm ", " so</think>"), ("```\n", "\n```")],
)
def test_spans_point_into_the_text_as_it_was_written(before: str, after: str) -> None:
    text = f"{before}{REPLY}{after}"
    for name, section in parse(text, SECTIONS, "stop").sections.items():
        assert text[section.start : section.end] == f"<{name}>{CONTENT[name]}</{name}>"


def check_shape(text: str, stop_reason: StopReason) -> Parsed:
    """Whatever was read, it is either a whole ordered set with true spans, or an error."""
    parsed = parse(text, SECTIONS, stop_reason)
    if not parsed.ok:
        assert parsed.error
        assert parsed.sections == {}
        return parsed
    assert list(parsed.sections) == list(SECTIONS)
    assert parsed.consensus is not None
    at = 0
    for name, section in parsed.sections.items():
        assert at <= section.start < section.end
        at = section.end
        span = lower_ascii(text[section.start : section.end])
        assert span.startswith(f"<{name}>")
        if section.end > len(text):
            assert (name, section.end, stop_reason) == (SECTIONS[-1], len(text) + 1, "stop")
        else:
            assert span.endswith(f"</{name}>")
        assert section.text == section.text.strip()
    return parsed


def lower_ascii(text: str) -> str:
    return text.translate(str.maketrans(string.ascii_uppercase, string.ascii_lowercase))


@properties
@given(any_text, stop_reasons)
def test_any_text_can_be_read(text: str, stop_reason: StopReason) -> None:
    check_shape(text, stop_reason)


@properties
@given(tag_soup, stop_reasons)
def test_any_soup_of_tags_can_be_read(text: str, stop_reason: StopReason) -> None:
    check_shape(text, stop_reason)


@properties
@given(whole_replies, stop_reasons)
def test_any_disturbed_reply_can_be_read(text: str, stop_reason: StopReason) -> None:
    check_shape(text, stop_reason)


innocent = soup("<b>", "</b>", "a < b", "x > y", "&", "```", "\n", "</eval>", "Agent 0 > Agent 2")


@properties
@given(st.tuples(*[innocent] * len(SECTIONS)), innocent, innocent)
def test_sections_come_back_as_they_were_written(
    contents: tuple[str, ...], before: str, after: str
) -> None:
    sections = dict(zip(SECTIONS, contents, strict=True)) | {"consensus": "YES"}
    parsed = parse(before + tagged(sections) + after, SECTIONS, "stop")
    assert texts(parsed) == {name: text.strip() for name, text in sections.items()}


@properties
@given(whole_replies, st.text("abc \n"), st.text("abc \n"))
def test_prose_around_a_reply_only_moves_its_sections(text: str, before: str, after: str) -> None:
    inner = parse(text, SECTIONS, "length")
    outer = parse(before + text + after, SECTIONS, "length")
    assert texts(outer) == texts(inner)
    for name, section in inner.sections.items():
        assert outer.sections[name].start == section.start + len(before)
        assert outer.sections[name].end == section.end + len(before)


def first_ordered_set(text: str) -> list[str] | None:
    """The rule, told once more: close each section as early as its opening allows."""
    low, at, found = lower_ascii(text), 0, []
    for name in SECTIONS[:3]:
        first = low.find(f"<{name}>", at)
        close = low.find(f"</{name}>", first)
        if first < 0 or close < 0:
            return None
        inside = low.rfind(f"<{name}>", at, close) + len(name) + 2
        found.append(text[inside:close].strip())
        at = close + len(name) + 3
    return found


thoughtless = soup(
    *(f"<{slash}{name}>" for name in SECTIONS[:3] for slash in ("", "/")),
    *("<SOLUTION>", "</Evaluation>", "<compariſon>", "a", " ", "<", "</", "x > y"),
    max_size=40,
)


@properties
@given(
    st.one_of(
        thoughtless,
        st.tuples(*(thoughtless.map(f"<{n}>{{}}</{n}>".format) for n in SECTIONS[:3])).map("".join),
    )
)
@example("<solution><solution>a</solution><evaluation></evaluation><comparison></comparison>")
def test_the_first_complete_ordered_set_is_found(text: str) -> None:
    expected = first_ordered_set(text)
    parsed = parse(text, SECTIONS[:3], "length")
    assert (list(texts(parsed).values()) if parsed.ok else None) == expected


@pytest.mark.parametrize("name", HOSTILE)
def test_a_megabyte_of_hostile_text_is_read_within_a_second(name: str) -> None:
    text = HOSTILE[name]
    assert seconds(lambda: parse(text, SECTIONS, "stop")) < 1.0


@pytest.mark.parametrize("name", HOSTILE)
def test_a_reply_full_of_hostile_text_is_read_within_a_second(name: str) -> None:
    half = HOSTILE[name][:500_000]
    text = f"```\n<solution>{half}</solution><evaluation></evaluation><comparison>{half}\n```"
    assert seconds(lambda: parse(text, SECTIONS[:3], "stop")) < 1.0


def test_a_draft_in_nested_thinking_is_no_answer() -> None:
    text = (
        "<think>a<think>b</think>c <solution>draft</solution></think>"
        "<solution>4</solution><comparison>N/A</comparison>"
    )
    assert parse(text, ("solution", "comparison"), "stop").sections["solution"].text == "4"
