"""Settings from files and command lines: what is wrong with them, where, and what was meant."""

from pathlib import Path
from typing import Any

import pytest

from rostra.debate.peer import peer_v1, peer_v2
from rostra.errors import ConfigError
from rostra.runs import recipe
from rostra.runs.config import RECIPE, parse_settings, peer_rules, read_setting, read_toml


def written(folder: Path, text: str) -> Path:
    path = folder / "recipe.toml"
    path.write_text(text, "utf-8")
    return path


def complaint(file: Path | None = None, **settings: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        peer_rules(file=file, settings=settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("rounds=4", "rounds", 4),
        (" rounds = 4 ", "rounds", 4),
        ("temperature=0.5", "temperature", 0.5),
        ("closing_ballot=false", "closing_ballot", False),
        ("schedule=sequential", "schedule", "sequential"),
        ('schedule="sequential"', "schedule", "sequential"),
        ('stop=["</a>", "=="]', "stop", ["</a>", "=="]),
        ("name=a=b", "name", "a=b"),
        ("name=", "name", ""),
    ],
)
def test_a_setting_is_a_key_and_a_toml_value_or_a_word(text: str, key: str, value: object) -> None:
    assert read_setting(text) == (key, value)


@pytest.mark.parametrize("text", ["rounds", "", "=4", "  =4"])
def test_what_is_not_key_and_value_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match="write key=value, as in rounds=4"):
        read_setting(text)


def test_of_repeated_settings_the_last_one_counts() -> None:
    assert parse_settings(["rounds=2", "agents=4", "rounds=3"]) == {"rounds": 3, "agents": 4}


def test_presets_without_changes_are_the_presets() -> None:
    assert peer_rules() == peer_v2()
    assert peer_rules("peer-v1") == peer_v1()


def test_a_file_changes_the_preset_and_a_setting_changes_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, '[protocol]\npreset = "peer-v1"\nrounds = 7\nagents = 4\n')
    assert peer_rules(None, file, {"agents": 6}) == peer_v1(rounds=7, agents=6)


def test_a_preset_that_is_asked_for_is_preferred_to_that_of_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, '[protocol]\npreset = "peer-v1"\nrounds = 7\n')
    assert peer_rules("peer-v2", file) == peer_v2(rounds=7)


def test_what_a_setting_puts_right_in_a_file_is_not_complained_about(tmp_path: Path) -> None:
    file = written(tmp_path, "[protocol]\nagents = 2\n")
    assert peer_rules(file=file, settings={"agents": 6}) == peer_v2(agents=6)


def test_one_stop_string_is_a_list_of_one() -> None:
    assert peer_rules(settings={"stop": "</comparison>"}).stop == ("</comparison>",)


def test_prompts_of_a_setting_are_paths_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.md").write_text("Judge now. {{tags}}")
    monkeypatch.chdir(tmp_path)
    rules = peer_rules(settings={"prompts": {"ballot": "mine.md"}})
    assert rules.prompts == {"ballot": "Judge now. {{tags}}"}


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    assert peer_rules("peer-v1", written(tmp_path, "")) == peer_v1()


def test_lists_of_a_file_become_what_the_rules_hold(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        '[protocol]\nsections = ["solution", "comparison"]\nstop = [1, 2]\n'
        '[[protocol.personas]]\nname = "Judge Judy"\nstyle = "Stern."\ntemperature = 0.3\n',
    )
    rules = peer_rules(file=file)
    assert rules.sections == ("solution", "comparison")
    assert rules.stop == (1, 2)
    assert [(p.name, p.temperature) for p in rules.personas] == [("Judge Judy", 0.3)]


def test_an_unknown_key_of_a_file_is_named_with_its_place_and_what_was_meant(
    tmp_path: Path,
) -> None:
    file = written(tmp_path, "[protocol]\nrouns = 3\n")
    assert complaint(file) == f"{file}: [protocol] rouns: unknown key, did you mean rounds?"


def test_an_unknown_setting_is_named_with_what_was_meant() -> None:
    assert complaint(rouns=3) == "protocol: rouns: unknown key, did you mean rounds?"


def test_an_unknown_key_that_is_like_no_other_gets_no_suggestion() -> None:
    assert complaint(zzzz=3) == "protocol: zzzz: unknown key"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[protocol\n", "not valid TOML"),
        ("[protocol]\nrounds = \n", "not valid TOML"),
        ("[protocol]\nrounds = 1\nrounds = 2\n", "not valid TOML"),
        ("[training]\nsteps = 3\n", "settings go under [protocol]"),
        ("rounds = 3\n", "settings go under [protocol]"),
        ("protocol = 3\n", "must be a table"),
        ('[protocol]\nrounds = "many"\n', "[protocol] rounds: "),
        ("[protocol]\nrounds = 2.5\n", "[protocol] rounds: "),
        ("[protocol]\nrounds = [3]\n", "[protocol] rounds: "),
        ('[protocol]\nclosing_ballot = "perhaps"\n', "[protocol] closing_ballot: "),
        ('[protocol]\nschedule = "random"\n', "[protocol] schedule = 'random': must be "),
        ('[protocol]\nsections = "solution"\n', "[protocol] sections: "),
        ('[protocol]\nsections = ["comparison", "solution"]\n', "[protocol] sections: "),
        ("[protocol]\npersonas = [1]\n", "[protocol] personas.0: "),
        ("[protocol]\nrounds = 0\n", "[protocol] rounds = 0: "),
        ("[protocol]\nagents = 2\n", "[protocol] agents = 2: "),
        ('[protocol]\nstop = ["</a>", 7]\n', "[protocol] stop = ['</a>', 7]: "),
        ('[protocol]\nstop = [""]\n', "[protocol] stop holds an empty string"),
        ("[protocol]\nstop = 7\n", "[protocol] stop"),
        ("[protocol]\nrounds = true\n", "[protocol] rounds = true: "),
        ('[protocol]\npreset = "peer-v3"\n', "did you mean peer-v"),
        ("[protocol]\npreset = 3\n", "[protocol] preset"),
        ('[protocol]\npreset = ["peer-v1"]\n', "[protocol] preset"),
        ("[protocol]\npreset = {a = 1}\n", "[protocol] preset"),
        ("[protocol]\nprompts = 3\n", "[protocol] prompts: a folder, or template = path"),
        ("[protocol.prompts]\nsystem = 3\n", "[protocol] prompts: a folder, or template = path"),
        ('[protocol]\n"a\\nb" = 3\n', "unknown key"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_sentence_that_names_it(
    text: str, says: str, tmp_path: Path
) -> None:
    file = written(tmp_path, text)
    message = complaint(file)
    assert message.startswith(f"{file}: ")
    assert says in message


def test_a_wrong_value_of_a_file_names_the_file_though_settings_were_given_too(
    tmp_path: Path,
) -> None:
    file = written(tmp_path, '[protocol]\nrounds = "many"\n')
    assert complaint(file, agents=4).startswith(f"{file}: [protocol] rounds: ")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"rounds": "many"}, "protocol: rounds: "),
        ({"agents": 2}, "protocol: agents = 2: "),
        ({"stop": ["</a>", 7]}, "protocol: stop = ['</a>', 7]: "),
        ({"temperature": -1}, "protocol: temperature = -1"),
        ({"name": "x" * 10, "rounds": ["y" * 100]}, "..."),
    ],
)
def test_what_is_wrong_with_a_setting_is_one_sentence(settings: dict[str, Any], says: str) -> None:
    message = complaint(**settings)
    assert message.startswith("protocol: ")
    assert says in message


def test_an_unknown_preset_is_refused_with_a_suggestion_and_the_list() -> None:
    with pytest.raises(ConfigError) as caught:
        peer_rules("peer-v22")
    assert str(caught.value) == (
        "protocol: 'peer-v22' is not known, did you mean peer-v2? (there are: peer-v1, peer-v2)"
    )


def test_prompts_come_from_a_folder_beside_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "words"
    folder.mkdir()
    (folder / "persona.md").write_text("Be {{persona}}.", "utf-8")
    (folder / "contract.solution.md").write_text("Solve it — whole.", "utf-8")
    (folder / "README.txt").write_text("not a prompt", "utf-8")
    rules = peer_rules(file=written(tmp_path, '[protocol]\nprompts = "words"\n'))
    assert rules.prompts == {
        "persona": "Be {{persona}}.",
        "contract.solution": "Solve it — whole.",
    }
    assert rules.protocol().prompts.render("persona", persona="kind") == "Be kind."


def test_prompts_come_from_paths_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "mine.md").write_text("Be {{persona}}.", "utf-8")
    rules = peer_rules(file=written(tmp_path, '[protocol.prompts]\npersona = "mine.md"\n'))
    assert rules.prompts == {"persona": "Be {{persona}}."}


def test_a_missing_prompt_file_is_named(tmp_path: Path) -> None:
    file = written(tmp_path, '[protocol.prompts]\npersona = "gone.md"\n')
    assert complaint(file) == f"{file}: [protocol] prompts: cannot read {tmp_path / 'gone.md'}"


def test_a_prompt_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.md").write_bytes(b"\xff\xfe")
    file = written(tmp_path, '[protocol.prompts]\npersona = "mine.md"\n')
    assert complaint(file) == f"{file}: [protocol] prompts: cannot read {tmp_path / 'mine.md'}"


@pytest.mark.parametrize("made", [True, False])
def test_a_prompt_folder_without_prompts_is_named(made: bool, tmp_path: Path) -> None:
    if made:
        (tmp_path / "words").mkdir()
    file = written(tmp_path, '[protocol]\nprompts = "words"\n')
    assert complaint(file) == f"{file}: [protocol] prompts: no .md files in {tmp_path / 'words'}"


def test_an_unknown_template_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    (tmp_path / "mine.md").write_text("hello", "utf-8")
    file = written(tmp_path, '[protocol.prompts]\npersonna = "mine.md"\n')
    message = complaint(file)
    assert message.startswith(f"{file}: [protocol] ")
    assert "personna" in message
    assert "did you mean persona?" in message


def test_a_prompt_with_an_unknown_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.md").write_text("Be {{persone}}.", "utf-8")
    file = written(tmp_path, '[protocol.prompts]\npersona = "mine.md"\n')
    assert "did you mean persona?" in complaint(file)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gone.toml: no such file"):
        read_toml(tmp_path / "gone.toml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_toml(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b'name = "\xe9"')
    with pytest.raises(ConfigError, match="latin.toml: not UTF-8 text"):
        read_toml(tmp_path / "latin.toml")


def test_a_file_of_rules_may_hold_what_a_recipe_may() -> None:
    assert {*recipe.TABLES, *recipe.LISTS, *recipe._TOP, "protocol"} == RECIPE
