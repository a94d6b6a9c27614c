"""Comparison lines are read as votes, and nothing else is."""

import html

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rostra.debate.comparisons import Comparison, Comparisons, read_comparisons
from tests.debate.builders import any_text, hostile_texts, properties, seconds, soup

HOSTILE = hostile_texts()


def votes(text: str, author: int = 1, n_agents: int = 5) -> list[str]:
    """The valid comparisons, written short."""
    return [f"{a}{op}{b}" for a, op, b in read_comparisons(text, author, n_agents).valid]


@pytest.mark.parametrize(
    "text",
    [
        "Agent 0 > Agent 2",
        "agent 0 > AGENT 2",
        "Agent0 > Agent2",
        "Agent 00 > Agent 02",
        "Agent 0 > Agent " + "0" * 5000 + "2",
        "Agent 0>Agent 2",
        "Agent\t0\u00a0 >\u2003Agent 2",
        "   Agent 0 > Agent 2   ",
        "Agent 2 < Agent 0",
        "**Agent 0** > **Agent 2**",
        "`Agent 0 > Agent 2`",
        "__Agent 0__ > _Agent 2_",
        "Agent 0 &gt; Agent 2",
        "Agent 0 &gt Agent 2",
        "Agent 0 &#62; Agent 2",
        "Agent 0 &#x3E; Agent 2",
        "Agent&nbsp;0 > Agent 2",
        "Agent 2 &lt; Agent 0",
        "Agent 0 > Agent 2.",
        "Agent 0 > Agent 2 because the proof is complete.",
        "Agent 0 > Agent 2 (both tried)",
        "Agent 0 > Agent 2: the sign",
        "Agent 0 > Agent 2 >= Agent 3",
        "Agent 0 > Agent 2 > the rest",
    ],
)
def test_one_comparison_in_many_spellings(text: str) -> None:
    assert read_comparisons(text, 1, 5) == Comparisons((Comparison(0, ">", 2),))


@pytest.mark.parametrize(
    "mark",
    [
        "- ",
        "* ",
        "+ ",
        "• ",
        "– ",
        "1. ",
        "2) ",
        "(3) ",
        "12: ",
        "a) ",
        "(b) ",
        "C. ",
        "-",
        "  1.",
        "; ",
    ],
)
def test_a_comparison_may_follow_a_list_mark(mark: str) -> None:
    assert votes(f"{mark}Agent 0 > Agent 2") == ["0>2"]


def test_a_list_gives_its_comparisons_in_order() -> None:
    text = (
        "- Agent 0 > Agent 2\n* Agent 3 > Agent 2\n• Agent 0 = Agent 3\n"
        "1. Agent 4 > Agent 2\r\n2) Agent 4 > Agent 3"
    )
    assert votes(text) == ["0>2", "3>2", "0=3", "4>2", "4>3"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Agent 0 > Agent 2, Agent 3 = Agent 4", ["0>2", "3=4"]),
        ("Agent 0 > Agent 2;Agent 3 < Agent 4", ["0>2", "4>3"]),
        ("To sum up, Agent 0 > Agent 2; overall, Agent 2 > Agent 3", ["0>2", "2>3"]),
        ("Agent 0 > Agent 2 > Agent 3", ["0>2", "2>3"]),
        ("Agent 0 > Agent 2 = Agent 3 < Agent 4", ["0>2", "2=3", "4>3"]),
        ("Agent 4 < Agent 3 < Agent 2 < Agent 0", ["3>4", "2>3", "0>2"]),
        ("Agent 0 > Agent 2\nAgent 2 > Agent 0", ["0>2", "2>0"]),
        ("Agent 0 > Agent 2\u2028Agent 3 > Agent 4", ["0>2", "3>4"]),
    ],
)
def test_lines_lists_and_chains_hold_several_comparisons(text: str, expected: list[str]) -> None:
    assert votes(text) == expected


def test_a_long_chain_gives_all_of_its_adjacent_pairs() -> None:
    chain = " > ".join(f"Agent {i}" for i in range(50))
    assert votes(chain, author=99, n_agents=100) == [f"{i}>{i + 1}" for i in range(49)]


@pytest.mark.parametrize(
    "text",
    [
        "Not (Agent 0 > Agent 2)",
        "I doubt that Agent 0 > Agent 2",
        "(Agent 0 > Agent 2)",
        "> Agent 0 > Agent 2",
        "xAgent 0 > Agent 2",
        "Agent 0 >= Agent 2",
        "Agent 0 => Agent 2",
        "Agent 0 == Agent 2",
        "Agent 0 >> Agent 2",
        "Agent 0 != Agent 2",
        "Agent 0 <> Agent 2",
        "Agent 0 > > Agent 2",
        "Agent 0 ≻ Agent 2",
        "Agent 0 ＞ Agent 2",
        "Agent 0 ≈ Agent 2",
        "Agent 0 beats Agent 2",
        "Agent 0 is better than Agent 2",
        "Agent 0 > 2",
        "0 > 2",
        "Agent zero > Agent two",
        "Methodical Analyst > Devil's Advocate",
        "Agent ٠ > Agent ٢",
        "Agent ０ > Agent ２",
        "Agent ² > Agent 2",
        "Agent 0 > Agent 2٣",
        "Agent 0 > Agent 2b",
        "Agent 0 > Agent 2.5",
        "Agent 0.5 > Agent 2",
        "Agent -0 > Agent 2",
        "Agents 0 > Agent 2",
        "Agent 0 &amp;gt; Agent 2",
        "Agent 0 &bogus; Agent 2",
    ],
)
def test_what_only_looks_like_a_comparison_is_no_vote(text: str) -> None:
    assert read_comparisons(text, 1, 5) == Comparisons(lines_invalid=1)


@pytest.mark.parametrize("text", ["Agent 0\n> Agent 2", "Agent 0 >\nAgent 2"])
def test_a_comparison_does_not_run_over_the_end_of_its_line(text: str) -> None:
    assert read_comparisons(text, 1, 5) == Comparisons(lines_invalid=2)


@pytest.mark.parametrize(
    "text", ["", "N/A", "n/a", "**N/A**", "N/A.", "(none)", "NA", "\n \n", "\t"]
)
def test_saying_that_there_is_nothing_to_compare_is_legal(text: str) -> None:
    assert read_comparisons(text, 1, 3) == Comparisons()


@pytest.mark.parametrize(
    ("text", "self_dropped"),
    [
        ("Agent 1 > Agent 2", 1),
        ("Agent 2 > Agent 1", 1),
        ("Agent 1 = Agent 0", 1),
        ("Agent 0 > Agent 1 > Agent 2", 2),
    ],
)
def test_a_judge_never_compares_itself(text: str, self_dropped: int) -> None:
    expected = Comparisons(self_dropped=self_dropped, lines_invalid=1)
    assert read_comparisons(text, 1, 3) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Agent 0 > Agent 3",
        "Agent 7 > Agent 2",
        "Agent 99999999999999999999999 > Agent 2",
        "Agent 0 > Agent " + "9" * 5000,
        "Agent 0 > Agent 0000000000100000000000",
        "Agent 2 > Agent 2",
        "Agent 2 = Agent 02",
        "Agent 1 > Agent 1",
        "Agent 1 > Agent 3",
    ],
)
def test_ids_out_of_range_and_agents_against_themselves_are_malformed(text: str) -> None:
    assert read_comparisons(text, 1, 3) == Comparisons(malformed=1, lines_invalid=1)


def test_what_is_wrong_in_a_line_does_not_spoil_what_is_right() -> None:
    read = read_comparisons("Agent 0 > Agent 2 > Agent 9 > Agent 1, Agent 1 > Agent 0", 1, 3)
    assert read == Comparisons((Comparison(0, ">", 2),), self_dropped=1, malformed=2)


@pytest.mark.parametrize(
    ("text", "valid", "duplicates"),
    [
        ("\n".join(["Agent 0 > Agent 2"] * 50), ["0>2"], 49),
        ("Agent 0 > Agent 2, agent 00 > agent 2", ["0>2"], 1),
        ("Agent 0 > Agent 2\nAgent 2 < Agent 0", ["0>2"], 1),
        ("Agent 0 = Agent 2\nAgent 0 = Agent 2", ["0=2"], 1),
        ("Agent 0 = Agent 2\nAgent 2 = Agent 0", ["0=2"], 1),
        ("Agent 0 > Agent 2\nAgent 0 = Agent 2", ["0>2", "0=2"], 0),
        ("Agent 0 > Agent 2 < Agent 0", ["0>2"], 1),
    ],
)
def test_repeats_count_once(text: str, valid: list[str], duplicates: int) -> None:
    read = read_comparisons(text, 1, 3)
    assert votes(text, 1, 3) == valid
    assert read.duplicates == duplicates
    assert read.lines_invalid == 0


def test_lines_that_say_something_else_are_counted() -> None:
    text = "My ranking:\nAgent 0 > Agent 2\n\nAgent 0 beats Agent 3\nN/A\nAgent 1 > Agent 0"
    read = read_comparisons(text, 1, 5)
    assert read.lines_invalid == 3


comparison_soup = soup(
    *("Agent 0", "agent 1", "Agent2", "AGENT 03", "Agent", "Agent 7", "4", "9" * 30, "٣"),
    *(" > ", "<", "=", ">=", " ", "\n", "\u2028", ",", ";", "- ", "1. ", "(", ")", "not "),
    *("&gt;", "&lt", "&#61;", "&amp;", "&#", "&", "*", "_", "`", "N/A"),
    *("Agent 0 > Agent 2", "Agent 3 = Agent 4", "Agent 2 < Agent 0\n"),
    max_size=30,
)


@properties
@given(st.one_of(any_text, comparison_soup), st.integers(0, 4), st.integers(0, 6))
def test_valid_comparisons_are_in_range_not_of_oneself_and_never_repeated(
    text: str, author: int, n_agents: int
) -> None:
    read = read_comparisons(text, author, n_agents)
    for a, op, b in read.valid:
        assert a in range(n_agents) and b in range(n_agents)
        assert a != b
        assert author not in (a, b)
        assert op in (">", "=")
    distinct = {(op, frozenset((a, b)) if op == "=" else (a, b)) for a, op, b in read.valid}
    assert len(distinct) == len(read.valid)


@properties
@given(comparison_soup, st.data())
def test_repeating_a_line_changes_no_vote(text: str, data: st.DataObject) -> None:
    once = read_comparisons(text, 1, 5)
    line = data.draw(st.sampled_from(text.splitlines() or [""]))
    twice = read_comparisons(f"{text}\n{line}", 1, 5)
    assert twice.valid == once.valid
    assert read_comparisons(f"{text}\n{text}", 1, 5) == Comparisons(
        once.valid,
        2 * once.self_dropped,
        2 * once.malformed,
        2 * once.duplicates + len(once.valid),
        2 * once.lines_invalid,
    )


written = st.builds(
    lambda a, op, b, mark, agent, pad, escape, tail: (
        (a, op, b),
        mark + (html.escape if escape else str)(f"{agent}{pad}{a}{pad}{op}{pad}{agent}0{b}") + tail,
    ),
    st.integers(0, 6),
    st.sampled_from("<=>"),
    st.integers(0, 6),
    st.sampled_from(["", "- ", "* ", "3. ", "**", "\t", "so, "]),
    st.sampled_from(["Agent", "agent", "AGENT", "_Agent_"]),
    st.sampled_from(["", " ", "  ", "\t"]),
    st.booleans(),
    st.sampled_from(["", ".", " because", "**", " (Agent 2 > Agent 3)", "\n", "\n\nN/A"]),
)


@properties
@given(st.lists(written, max_size=12))
def test_every_written_comparison_is_sorted_into_its_kind(
    lines: list[tuple[tuple[int, str, int], str]],
) -> None:
    author, n_agents = 1, 5
    valid: list[tuple[int, str, int]] = []
    self_dropped = malformed = duplicates = lines_invalid = 0
    for (a, op, b), _ in lines:
        first, second = (b, a) if op == "<" else (a, b)
        turned = (first, op.replace("<", ">"), second)
        repeats = {turned, (second, "=", first)} if op == "=" else {turned}
        if a == b or max(a, b) >= n_agents:
            malformed += 1
        elif author in (a, b):
            self_dropped += 1
        elif repeats & set(valid):
            duplicates += 1
            continue
        else:
            valid.append(turned)
            continue
        lines_invalid += 1
    assert read_comparisons("\n".join(text for _, text in lines), author, n_agents) == Comparisons(
        tuple(Comparison(*v) for v in valid), self_dropped, malformed, duplicates, lines_invalid
    )


@pytest.mark.parametrize("name", HOSTILE)
def test_a_megabyte_of_hostile_comparisons_is_read_within_a_second(name: str) -> None:
    text = HOSTILE[name]
    assert seconds(lambda: read_comparisons(text, 0, 5)) < 1.0
