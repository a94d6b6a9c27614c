"""Recipes: what is shipped reads, what is wrong is one sentence, what is written is read."""

import re
import tempfile
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rostra.debate.peer import PeerRules, peer_v1, peer_v2
from rostra.debate.seat import Persona
from rostra.errors import ConfigError, DataError, RostraError
from rostra.runs.folder import RunFolder
from rostra.runs.recipe import (
    changed_keys,
    find_recipe,
    read_config,
    read_recipe,
    shipped_recipes,
    to_toml,
)
from rostra.runs.settings import (
    AlarmSettings,
    EvalSettings,
    ModelSettings,
    Recipe,
    RewardSettings,
    TrainSettings,
)
from rostra.runs.syllabus import Phase, TaskSettings

RECIPES = Path(__file__).parents[2] / "recipes"
TABLE_KINDS = {
    "model": ModelSettings,
    "task": TaskSettings,
    "rewards": RewardSettings,
    "train": TrainSettings,
    "eval": EvalSettings,
    "alarms": AlarmSettings,
    "protocol": PeerRules,
}


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text, "utf-8")
    return path


def complaint(path: Path, *changes: str) -> str:
    """What is said about a recipe: one sentence on one line, in the words of Rostra."""
    with pytest.raises(ConfigError) as caught:
        read_recipe(path, changes)
    said = str(caught.value)
    assert said.strip()
    assert "\n" not in said
    assert len(said) < 400
    for foreign in ("pydantic", "validation error", "type=", "Traceback", "input_value"):
        assert foreign not in said
    return said


# What is shipped


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_shipped_recipe_reads_by_path_and_by_name(path: Path) -> None:
    recipe = read_recipe(path)
    assert recipe == read_recipe(find_recipe(path.stem))
    assert recipe != Recipe()
    assert Path(recipe.folder).parent == Path("runs")
    assert recipe.steps > 1


def test_no_two_shipped_recipes_write_into_one_folder() -> None:
    folders = [read_recipe(path).folder for path in shipped_recipes()]
    assert len(folders) == len(set(folders)) > 1


def test_the_recipes_of_the_folder_are_the_ones_that_are_shipped() -> None:
    assert [p.name for p in shipped_recipes()] == sorted(p.name for p in RECIPES.glob("*.toml"))
    assert {p.stem for p in shipped_recipes()} >= {"peer-v2-sums", "warm-sums"}


def test_a_shipped_recipe_begins_where_another_shipped_one_ends() -> None:
    folders = {read_recipe(path).folder for path in shipped_recipes()}
    starts = {read_recipe(path).model.start for path in shipped_recipes()} - {""}
    assert starts
    assert starts <= folders


def test_a_recipe_that_is_not_there_is_answered_with_a_name_that_is() -> None:
    with pytest.raises(ConfigError) as caught:
        find_recipe("peer-v2-sumz")
    said = str(caught.value)
    assert said.startswith("peer-v2-sumz: no such recipe, did you mean peer-v2-sums?")
    assert "warm-sums" in said


def test_a_run_directory_stands_for_its_recipe(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("seed = 7\n")
    assert read_recipe(find_recipe(str(tmp_path))).seed == 7


@pytest.mark.parametrize("name", ["x" * 5000, "", ".", "/", "peer\x00v2"])
def test_any_word_that_is_no_recipe_is_refused_in_one_sentence(name: str) -> None:
    with pytest.raises(ConfigError, match="no such recipe"):
        find_recipe(name)


# Keys


def test_an_unknown_key_of_the_file_is_named_with_what_was_meant(tmp_path: Path) -> None:
    path = written(tmp_path, "sead = 3\n")
    assert complaint(path) == f"{path}: sead: unknown key, did you mean seed?"


def test_an_unknown_table_is_named_with_what_was_meant(tmp_path: Path) -> None:
    path = written(tmp_path, "[trian]\nsteps = 3\n")
    assert complaint(path) == f"{path}: trian: unknown key, did you mean train?"


@pytest.mark.parametrize(
    ("table", "typo", "meant"),
    [
        ("model", "lora_rnk", "lora_rank"),
        ("task", "held_uot", "held_out"),
        ("rewards", "controll", "control"),
        ("train", "stpes", "steps"),
        ("eval", "questons", "questions"),
        ("alarms", "stop", "stop_on"),
        ("protocol", "rouns", "rounds"),
    ],
)
def test_an_unknown_key_of_a_table_is_named_with_file_table_and_what_was_meant(
    table: str, typo: str, meant: str, tmp_path: Path
) -> None:
    path = written(tmp_path, f"[{table}]\n{typo} = 3\n")
    assert complaint(path) == f"{path}: [{table}] {typo}: unknown key, did you mean {meant}?"
    fine = written(tmp_path, "seed = 1\n")
    said = f"{table}.{typo}: unknown key, did you mean {table}.{meant}?"
    assert complaint(fine, f"{table}.{typo}=3") == said


def test_an_unknown_key_of_a_phase_is_named_with_the_number_of_the_phase(tmp_path: Path) -> None:
    path = written(tmp_path, 'loop = "warmstart"\n[[phases]]\nsteps = 2\n[[phases]]\nslps = 0.5\n')
    said = f"{path}: [[phases]] number 2: slps: unknown key, did you mean slips?"
    assert complaint(path) == said


def test_an_unknown_key_of_a_persona_is_refused(tmp_path: Path) -> None:
    text = '[[protocol.personas]]\nname = "A"\nstyle = "Be brief."\ntemprature = 0.1\n'
    assert "temprature" in complaint(written(tmp_path, text))


def test_a_key_of_another_table_is_refused_where_it_does_not_belong(tmp_path: Path) -> None:
    path = written(tmp_path, "[eval]\nlanes = 3\n")
    assert complaint(path).startswith(f"{path}: [eval] lanes: unknown key")
    assert complaint(written(tmp_path, ""), "eval.lanes=3").startswith("eval.lanes: unknown key")


def test_a_misspelt_setting_without_a_table_is_named_with_what_was_meant(tmp_path: Path) -> None:
    path = written(tmp_path, "")
    assert complaint(path, "stpes=3") == "stpes: unknown key, did you mean steps?"
    assert complaint(path, "trian.steps=3") == "trian.steps: unknown key, did you mean train.steps?"
    assert complaint(path, "a.b.c=3") == "a.b.c: unknown key"


@pytest.mark.parametrize("key", ["\x1b[31mred", "a\tb"])
def test_a_key_that_cannot_be_printed_is_spelt_out(key: str, tmp_path: Path) -> None:
    path = written(tmp_path, "")
    said = complaint(path, f"{key}=3")
    assert said.isprintable()
    assert repr(key) in said


def test_a_setting_that_several_tables_have_asks_which_one(tmp_path: Path) -> None:
    path = written(tmp_path, "")
    said = complaint(path, "name=toy")
    assert said == "name: say which one you mean: model.name or task.name or protocol.name"
    assert complaint(path, "questions=3").endswith("train.questions or eval.questions")


def test_every_setting_of_every_table_is_reached_by_its_dotted_name(tmp_path: Path) -> None:
    path = written(tmp_path, "")
    default = read_recipe(path)
    for table, kind in TABLE_KINDS.items():
        for name in (f.name for f in fields(kind)):
            value = getattr(getattr(default, table), name)
            if isinstance(value, int) and not isinstance(value, bool):
                more = read_recipe(path, [f"{table}.{name}={value + 1}"])
                assert getattr(getattr(more, table), name) == value + 1
                assert [c.split(":")[0] for c in changed_keys(default, more)] == [f"{table}.{name}"]


def test_a_setting_that_one_table_has_needs_no_table(tmp_path: Path) -> None:
    path = written(tmp_path, "[train]\nsteps = 9\n[protocol]\nrounds = 2\n")
    recipe = read_recipe(path, ["steps=4", "rounds=1", "seed=5", "below=12", "folder=runs/x"])
    assert (recipe.train.steps, recipe.protocol.rounds, recipe.seed) == (4, 1, 5)
    assert (recipe.task.below, recipe.folder) == (12, "runs/x")


def test_a_key_inside_of_a_setting_changes_only_itself(tmp_path: Path) -> None:
    path = written(tmp_path, '[task]\nname = "hub"\ndataset = "d"\nfields = {id = "uid"}\n')
    given = ["task.fields.prompt=q", "fields.reference=a", "task.splits.test=dev"]
    task = read_recipe(path, [*given, "task.only.carry=false", "only.a.b=2"]).task
    assert task.fields == {"id": "uid", "prompt": "q", "reference": "a"}
    assert (task.splits, task.only) == ({"test": "dev"}, {"carry": False, "a.b": 2})
    anew = read_recipe(path, ["task.fields={prompt = 'x'}", "task.fields.reference=y"]).task
    assert anew.fields == {"prompt": "x", "reference": "y"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["task.fields.promt=q"], "task.fields = 'promt': must be prompt or reference or id, did"),
        (["fields=3", "task.fields.id=q"], "task.fields.id: fields = 3 was given, which has no k"),
        (["task.below.x=3"], "task.below.x: unknown key, did you mean task.below?"),
        (["train.only.x=3"], "train.only.x: unknown key"),
    ],
)
def test_a_wrong_key_inside_of_a_setting_is_named(
    changes: list[str], said: str, tmp_path: Path
) -> None:
    path = written(tmp_path, '[task]\nname = "jsonl"\npath = "x"\n')
    assert complaint(path, *changes).startswith(said)


def test_a_preset_of_the_command_line_is_preferred_to_that_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, '[protocol]\npreset = "peer-v2"\nagents = 4\n')
    assert read_recipe(path, ["preset=peer-v1"]).protocol == peer_v1(agents=4)


def test_an_unknown_preset_is_refused_wherever_it_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, '[protocol]\npreset = "peer-v3"\n')
    assert complaint(path).startswith(f"{path}: [protocol] preset: 'peer-v3' is not known")
    fine = written(tmp_path, '[protocol]\npreset = "peer-v2"\n')
    assert "'peer-v3' is not known" in complaint(fine, "protocol.preset=peer-v3")


# Values


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("train = 3", "train: is a table; write its settings under [train]"),
        ("protocol = []", "protocol: is a table; write its settings under [protocol]"),
        ("phases = 3", "phases: write each as a table that begins with [[phases]]"),
        ("phases = [3]", "phases: write each as a table that begins with [[phases]]"),
        ("[phases]\nsteps = 3", "phases: write each as a table that begins with [[phases]]"),
        ("title = 3", "title"),
        ("seed = 'x'", "seed"),
        ("seed = 1.5", "seed"),
        ("trackers = 'wandb'", "trackers"),
        ("trackers = [3]", "trackers"),
        ("loop = 'selfpaly'", "loop"),
        ("loop = 'warmstart'", "a warm start needs at least one [[phases]] table"),
        ("[[phases]]\nsteps = 3", 'only loop = "warmstart" has them'),
        ("[train]\nsteps = 0", "steps = 0: must be at least 1"),
        ("[train]\nsteps = 'many'", "[train] steps"),
        ("[train]\nsteps = 1.5", "[train] steps"),
        ("[train]\nsteps = []", "[train] steps"),
        ("[train]\nlearning_rate = 0.0", "learning_rate = 0.0"),
        ("[train]\nlearning_rate = nan", "learning_rate = nan"),
        ("[train]\nturn_timeout = -1", "turn_timeout"),
        ("[train]\nmode = 'asink'", "mode"),
        ("[train]\nschedule = 'cosin'", "schedule"),
        ("[train]\nwarmup = -1", "warmup"),
        ("[train]\nfloor = 2.0", "floor"),
        ("[task]\nheld_out = 1.0", "held_out = 1.0"),
        ("[task]\nbelow = 1", "below = 1"),
        ("[task]\nname = 'sum'", "name"),
        ("[model]\nengine = 'loca'", "engine"),
        ("[model]\nlora_rank = -1", "lora_rank = -1"),
        ("[eval]\nsamples = 0", "samples = 0"),
        ("[alarms]\nstop_on = ['nois']", "stop_on"),
        ("[rewards]\ngen = -1.0", "gen = -1.0"),
        ("[rewards]\ntruth = 2.0", "truth = 2.0"),
        ("[rewards]\njudge_first = -1", "judge_first = -1: must be at least 0"),
        (
            "[rewards]\njudge_first = 3\n[protocol]\nreward = 'win_rate'",
            "rewards.judge_first: needs protocol.reward = streams",
        ),
        ("[protocol]\nagents = 2", "[protocol] agents = 2"),
        ("[protocol]\nagents = true", "[protocol] agents = true: must be a whole number"),
        ("[protocol]\nrounds = 'x'", "[protocol] rounds"),
        ("[protocol]\nprompts = 'nowhere'", "[protocol] prompts: no .md files"),
        ("[protocol]\npersonas = 3", "[protocol] personas"),
        ("loop = 'warmstart'\n[[phases]]\nsteps = 0", "steps = 0"),
        ("loop = 'warmstart'\n[[phases]]\nkind = 'stored'", "a stored phase needs a run"),
        ("loop = 'warmstart'\n[[phases]]\nkind = 'drill'", "a drill phase needs at least 1"),
        ("loop = 'warmstart'\n[[phases]]\nslips = 1.5", "slips = 1.5"),
        ("loop = 'warmstart'\n[[phases]]\nstreams = ['gne']", "streams"),
        ("loop = 'warmstart'\n[[phases]]\ndebates = 0", "at least 1 debate"),
        ("steps", "not valid TOML"),
    ],
)
def test_what_makes_no_sense_is_one_sentence_with_the_file(
    text: str, part: str, tmp_path: Path
) -> None:
    path = written(tmp_path, text)
    said = complaint(path)
    assert said.startswith(f"{path}: ")
    assert part in said


@pytest.mark.parametrize(
    "text",
    [
        "[train]\nbeta1 = 2.0",
        "[train]\nbeta2 = nan",
        "[train]\nclip_norm = -1.0",
        "[train]\nweight_decay = nan",
        "[model]\nlora_alpha = nan",
        'trackers = ["wandbb"]',
    ],
)
def test_a_value_with_which_no_run_can_succeed_is_refused(text: str, tmp_path: Path) -> None:
    key = text.split("\n")[-1].split(" ")[0]
    assert key in complaint(written(tmp_path, text))


@pytest.mark.parametrize("text", ["[eval]\nsamples = true", "[train]\nsteps = true", "seed = true"])
def test_true_is_not_a_number_in_any_table(text: str, tmp_path: Path) -> None:
    complaint(written(tmp_path, text))


@pytest.mark.parametrize("change", ["steps=0", "steps=many", "train.mode=asink", "seed=x"])
def test_a_bad_value_of_the_command_line_is_not_blamed_on_the_file(
    change: str, tmp_path: Path
) -> None:
    path = written(tmp_path, "[train]\nsteps = 4\n")
    assert str(path) not in complaint(path, change)


def test_a_wrong_choice_is_one_plain_sentence_with_what_was_meant(tmp_path: Path) -> None:
    path = written(tmp_path, '[task]\nname = "jsonl"\npath = "x"\ngrader = "integr"\n')
    said = "grader = 'integr': must be integer or exact or math or none, did you mean integer?"
    assert complaint(path) == f"{path}: [task] {said}"
    fine = written(tmp_path, '[task]\nname = "jsonl"\npath = "x"\n')
    assert complaint(fine, "task.grader=integr") == f"task.{said}"
    told = "train.mode = 'asink': must be sync or async, did you mean async?"
    assert complaint(fine, "train.mode=asink") == told


@pytest.mark.parametrize(("table", "key"), [("train", "steps"), ("eval", "samples")])
def test_an_impossible_value_is_named_with_its_table(table: str, key: str, tmp_path: Path) -> None:
    said = complaint(written(tmp_path, f"[{table}]\n{key} = 0"))
    assert re.search(rf"\[{table}\] {key}\b|{table}\.{key}\b", said)


def test_a_file_that_is_no_text_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xff\xfe")
    assert complaint(path) == f"{path}: not UTF-8 text"
    assert "cannot be read" in complaint(tmp_path)
    assert complaint(tmp_path / "gone.toml").endswith("no such file")


@given(st.text(max_size=40), st.text(max_size=12))
@settings(max_examples=150, deadline=None)
def test_no_setting_of_the_command_line_ends_in_anything_but_a_recipe_or_a_sentence(
    value: str, key: str
) -> None:
    path = RECIPES / "peer-v2-sums.toml"
    for name in (key, f"train.{key}", "train.steps", "trackers", "personas", "stop", "prompts"):
        try:
            recipe = read_recipe(path, [f"{name}={value}"])
        except RostraError as error:
            assert str(error).strip()
        else:
            assert isinstance(recipe, Recipe)


# Writing


def test_what_is_written_is_read_again_for_every_shipped_recipe(tmp_path: Path) -> None:
    for path in shipped_recipes():
        recipe = replace(read_recipe(path), folder=str(tmp_path / path.stem))
        RunFolder.open(recipe, resume=False, overwrite=False).close()
        assert read_config(tmp_path / path.stem) == recipe


def test_presets_personas_and_phases_survive_writing(tmp_path: Path) -> None:
    shares = Phase(steps=2, slips=0.25, streams=("judge",))
    recipes = [
        Recipe(protocol=peer_v1(agents=4)),
        Recipe(protocol=peer_v2(personas=(Persona('A "b"', "line\nline", 0.0),))),
        Recipe(protocol=peer_v2(max_chars_per_field=9, stop=(256, 7))),
        Recipe(protocol=peer_v2(stop=("</x>",), prompts={"system": "{{name}}\n\nSay so.\n"})),
        Recipe(loop="warmstart", phases=(Phase("drill", drills=2), shares)),
        Recipe(alarms=AlarmSettings(("noise", "format")), trackers=("wandb",)),
    ]
    for number, recipe in enumerate(recipes):
        placed = replace(recipe, folder=str(tmp_path / str(number)))
        RunFolder.open(placed, resume=False, overwrite=False).close()
        assert read_config(tmp_path / str(number)) == placed


def test_prompts_with_line_ends_of_windows_survive_writing(tmp_path: Path) -> None:
    rules = peer_v2(prompts={"system": "{{name}}\r\nSay so.\r\n"})
    recipe = Recipe(folder=str(tmp_path / "run"), protocol=rules)
    RunFolder.open(recipe, resume=False, overwrite=False).close()
    assert read_config(tmp_path / "run") == recipe


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="{}\r"), max_size=30)
SHARES = st.floats(0, 1)


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    made = st.builds(Persona, WORDS, WORDS, st.floats(0, 1e6))
    rules = draw(st.sampled_from([peer_v1, peer_v2]))(
        agents=draw(st.integers(3, 9)),
        rounds=draw(st.integers(1, 5)),
        temperature=draw(st.floats(0, 9)),
        personas=tuple(draw(st.lists(made, max_size=3))),
        max_chars_per_field=draw(st.none() | st.integers(1, 99)),
        prompts=draw(st.dictionaries(st.sampled_from(["system", "contract.solution"]), WORDS)),
    )
    phase = st.builds(Phase, steps=st.integers(1, 9), slips=SHARES, path=WORDS)
    phases = tuple(draw(st.lists(phase, max_size=2)))
    return Recipe(
        loop="warmstart" if phases else "selfplay",
        title=draw(WORDS),
        seed=draw(st.integers(-(2**63), 2**63 - 1)),
        protocol=rules,
        phases=phases,
        model=ModelSettings(start=draw(WORDS)),
        rewards=RewardSettings(truth=draw(SHARES), control=draw(st.sampled_from(["none", "coin"]))),
        train=TrainSettings(learning_rate=draw(st.floats(1e-300, 0.5)), floor=draw(SHARES)),
    )


@given(recipes())
@settings(max_examples=60, deadline=None)
def test_any_recipe_is_read_as_it_was_written(recipe: Recipe) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        placed = replace(recipe, folder=f"{scratch}/run")
        RunFolder.open(placed, resume=False, overwrite=False).close()
        assert read_config(Path(placed.folder)) == placed
        assert changed_keys(read_config(Path(placed.folder)), placed) == []


def test_every_setting_is_written_out() -> None:
    text = to_toml(Recipe())
    for table, kind in TABLE_KINDS.items():
        # None and no prompts have no form in TOML; what is missing has its default.
        for name in {f.name for f in fields(kind)} - {"max_chars_per_field", "stop", "prompts"}:
            assert re.search(rf"^(\[\[?{table}\.)?{name}\b", text, re.MULTILINE), (table, name)


def test_a_folder_without_a_recipe_says_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no config\.toml in it; is it a run directory\?"):
        read_config(tmp_path)


# What changed


def test_changed_keys_are_exactly_those_that_were_changed() -> None:
    old = Recipe()
    new = replace(
        old,
        seed=4,
        train=replace(old.train, steps=7, learning_rate=0.5),
        protocol=peer_v2(rounds=1, stop=("x",), prompts={"system": "hm"}),
        alarms=AlarmSettings(("noise",)),
    )
    assert changed_keys(old, new) == [
        "alarms.stop_on: () -> ('noise',)",
        "protocol.prompts.system: None -> 'hm'",
        "protocol.rounds: 3 -> 1",
        "protocol.stop: None -> ('x',)",
        "seed: 0 -> 4",
        "train.learning_rate: 3e-05 -> 0.5",
        "train.steps: 100 -> 7",
    ]
    assert changed_keys(new, new) == []


@given(recipes(), recipes())
@settings(max_examples=40, deadline=None)
def test_nothing_has_changed_only_where_recipes_are_equal(one: Recipe, other: Recipe) -> None:
    assert (changed_keys(one, other) == []) == (one == other)
    forth = [c.split(":")[0] for c in changed_keys(one, other)]
    assert forth == [c.split(":")[0] for c in changed_keys(other, one)]
    assert changed_keys(one, replace(one)) == []
