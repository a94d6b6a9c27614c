"""Templates are filled in one pass, and mistakes in them are found before a debate."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rostra.debate.peer import SECTIONS
from rostra.debate.prompts import PLACES, Prompts, builtin, did_you_mean, fill
from rostra.errors import ConfigError
from tests.debate.builders import any_text, properties


def test_places_are_filled_wherever_they_stand() -> None:
    text = "{{who}}, round {{ round }}: {{who}}{{body}}."
    assert fill(text, {"who": "Agent 1", "round": 2, "body": "!"}) == "Agent 1, round 2: Agent 1!."


def test_what_is_filled_in_is_never_searched_for_places() -> None:
    values = {"question": "{{task}} {{question}}", "task": "{{turns}}", "turns": "secret"}
    assert fill("{{question}}\n\n{{task}}", values) == "{{task}} {{question}}\n\n{{turns}}"


def test_what_is_filled_in_may_hold_what_other_formatters_obey() -> None:
    assert fill("{{text}}", {"text": r"{0} %s \1 \g<0> $x {text}"}) == r"{0} %s \1 \g<0> $x {text}"


nasty = st.one_of(
    any_text, st.sampled_from(["", "{{a}}", "{{b}}", "{{", "}}", "\n", "\n\n{{c}}\n"])
)


@properties
@given(nasty, nasty, nasty)
def test_a_template_without_lone_places_is_plain_concatenation(a: str, b: str, c: str) -> None:
    values = {"a": a, "b": b, "c": c}
    assert fill("<{{a}}|{{b}}\n\n-{{c}}{{a}}>", values) == f"<{a}|{b}\n\n-{c}{a}>"


@properties
@given(nasty, nasty, nasty)
def test_lone_places_leave_no_gap(a: str, b: str, c: str) -> None:
    filled = fill("{{a}}\n\n{{b}}\n\nend {{c}}", {"a": a, "b": b, "c": c})
    assert filled == "\n\n".join([part for part in (a, b) if part] + [f"end {c}"])


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("x\n\n{{a}}\n\ny", "x\n\ny"),
        ("x\n{{a}}\ny", "x\ny"),
        ("{{a}}\n\n\ny", "\ny"),
        ("{{a}}\n{{a}}\n\ny", "y"),
        ("x\n{{a}}", "x"),
        ("{{a}}", ""),
        ("x {{a}}\n\ny", "x \n\ny"),
        ("{{a}}{{a}}\n\ny", "\n\ny"),
        ("{{a}}\n{{b}}\n\ny", "B\n\ny"),
        ("\n\n{{b}}\n\n", "B"),
        ("{{a}}\n\nx: {{a}}!", "x: !"),
        ("x: {{a}}!\n\n{{a}}\n\ny", "x: !\n\ny"),
    ],
)
def test_a_lone_empty_place_disappears_with_the_blank_line_after_it(
    template: str, filled: str
) -> None:
    assert fill(template, {"a": "", "b": "B"}) == filled


def test_a_number_is_a_text_even_when_it_is_zero() -> None:
    assert fill("{{n}}\n\nrounds", {"n": 0}) == "0\n\nrounds"


@pytest.mark.parametrize(
    ("templates", "message"),
    [
        (
            {"next": "{{turn}}"},
            "prompt next: {{turn}} is not a place it can use, did you mean turns? "
            "(there are: turns, task, question)",
        ),
        (
            {"judge.system": "{{anwser}}"},
            "prompt judge.system: {{anwser}} is not a place it can use, did you mean answer? "
            "(there are: name, persona, agents, rounds, contract, answer, answers)",
        ),
        (
            {"silent": "{{zzz}}"},
            "prompt silent: {{zzz}} is not a place it can use (there are: who)",
        ),
        (
            {"openning": "hello"},
            "prompts: openning is not a template, did you mean opening?",
        ),
        ({"judge.verdit": ""}, "prompts: judge.verdit is not a template, did you mean verdict?"),
        ({"zzz": ""}, "prompts: zzz is not a template"),
    ],
)
def test_an_unknown_place_or_template_is_refused_with_a_suggestion(
    templates: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        Prompts(templates)


def test_the_template_of_a_section_has_no_places() -> None:
    assert Prompts({"contract.solution": "<solution>"}).render("contract.solution") == "<solution>"
    with pytest.raises(ConfigError, match="prompt contract.solution: {{name}} is not a place"):
        Prompts({"contract.solution": "{{name}}"})


def test_the_template_of_a_role_is_preferred() -> None:
    prompts = Prompts({"silent": "({{who}})", "judge.silent": "[{{who}}]"})
    assert prompts.render("silent", who="x") == "(x)"
    assert prompts.render("silent", "debater", who="x") == "(x)"
    assert prompts.render("silent", "judge", who="x") == "[x]"


def test_an_empty_template_of_a_role_is_still_preferred() -> None:
    prompts = Prompts({"silent": "({{who}})", "judge.silent": ""})
    assert prompts.render("silent", "judge", who="x") == ""


def test_a_role_may_have_a_template_that_others_lack() -> None:
    assert Prompts({"judge.silent": "[{{who}}]"}).render("silent", "judge", who="x") == "[x]"


def test_some_templates_are_replaced_and_the_rest_kept() -> None:
    before = Prompts({"silent": "({{who}})", "speech": "Speak."}, quote="| ")
    after = before.replaced({"speech": "Speak, {{name}}!"})
    assert after.render("speech", name="Ada") == "Speak, Ada!"
    assert after.render("silent", who="x") == "(x)"
    assert after.quote == "| "
    assert before.render("speech") == "Speak."


@pytest.mark.parametrize(
    ("templates", "message"),
    [
        ({"balot": ""}, "prompts: balot is not a template of this protocol, did you mean ballot?"),
        ({"verdict": ""}, "prompts: verdict is not a template of this protocol"),
        ({"next": "{{tsak}}"}, "prompt next: {{tsak}} is not a place it can use"),
    ],
)
def test_a_replacement_has_to_fit(templates: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        builtin("peer").replaced(templates)


@pytest.mark.parametrize("folder", ["peer", "judged"])
def test_the_shipped_prompts_can_be_filled(folder: str) -> None:
    prompts = builtin(folder)
    for name in prompts.templates:
        places = () if name.startswith("contract.") else PLACES[name.rpartition(".")[2]]
        filled = prompts.render(name, **{place: f"({place})" for place in places})
        assert filled
        assert "{{" not in filled and "}}" not in filled


def test_the_shipped_peer_prompts_explain_every_section_with_its_tags() -> None:
    for section in SECTIONS:
        contract = builtin("peer").render(f"contract.{section}")
        assert contract.startswith(f"<{section}>\n") and contract.endswith(f"\n</{section}>")


@pytest.mark.parametrize("role", ["debater", "consultant", "judge"])
def test_the_shipped_judged_prompts_speak_to_every_role(role: str) -> None:
    values = {place: f"({place})" for place in PLACES["system"]}
    filled = builtin("judged").render("system", role, **values)
    assert ("(answers)" if role == "judge" else "(answer)") in filled


def test_suggestions_name_something_close_or_nothing() -> None:
    assert did_you_mean("rouns", ("rounds", "round_robin")) == ", did you mean rounds?"
    assert did_you_mean("rouns", {"rounds": 3}) == ", did you mean rounds?"
    assert did_you_mean("zzz", ("rounds",)) == ""


@pytest.mark.parametrize(
    ("template", "text", "place"),
    [
        ("next", "{{task}}", "turns"),
        ("opening", "hello {{turns}} {{task}}", "question"),
        ("judge.opening", "{{question}} {{task}}", "turns"),
        ("turn", "{{who}}", "body"),
        ("field", "{{section}}", "text"),
    ],
)
def test_a_template_that_would_hide_what_was_said_is_refused(
    template: str, text: str, place: str
) -> None:
    with pytest.raises(ConfigError, match=rf"prompt {template}: must hold {{{{{place}}}}}"):
        Prompts({template: text})
