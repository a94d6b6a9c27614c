"""Recipes: TOML files, one complete experiment each, checked key by key."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, get_origin

import tomli_w
from pydantic import TypeAdapter, ValidationError

import rostra
from rostra.debate.peer import PeerRules
from rostra.debate.prompts import did_you_mean
from rostra.errors import ConfigError, DataError
from rostra.runs.config import Layer, first_error, merged_rules, read_setting, read_toml
from rostra.runs.settings import (
    AlarmSettings,
    EvalSettings,
    ModelSettings,
    Recipe,
    RewardSettings,
    TrainSettings,
)
from rostra.runs.syllabus import BootstrapSettings, Phase, Stage, TaskSettings

TABLES = {
    "model": ModelSettings,
    "task": TaskSettings,
    "rewards": RewardSettings,
    "train": TrainSettings,
    "eval": EvalSettings,
    "alarms": AlarmSettings,
    "bootstrap": BootstrapSettings,
}
MAPPINGS = frozenset(
    f.name for kind in TABLES.values() for f in fields(kind) if get_origin(f.type) is Mapping
)
"""The settings that have keys of their own."""
LISTS: dict[str, type[Any]] = {"phases": Phase, "stages": Stage}
_TOP = ("loop", "title", "folder", "seed", "trackers")


def find_recipe(name: str) -> Path:
    """A recipe by path, by the name of one that Rostra ships, or the one of a run directory."""
    path = Path(name)
    try:
        if path.is_dir() and (path / "config.toml").exists():
            return path / "config.toml"
        if path.is_file():
            return path
    except (OSError, ValueError):
        raise ConfigError(f"{name[:60]!r}: no such recipe") from None
    shipped = {file.stem: file for file in shipped_recipes()}
    if name in shipped:
        return shipped[name]
    known = tuple(shipped)
    hint = did_you_mean(path.stem, known)
    raise ConfigError(f"{name}: no such recipe{hint} (shipped: {', '.join(known)})")


def shipped_recipes() -> list[Path]:
    """The recipes that come with Rostra: in the package, or beside its sources."""
    package = Path(rostra.__file__).parent
    for folder in (package / "recipes", package.parent.parent / "recipes"):
        if folder.is_dir():
            return sorted(folder.glob("*.toml"))
    return []


def recipe(name: str, *settings: str) -> Recipe:
    """A recipe by path, by the name of one that Rostra ships, or of a run, with settings such as
    `train.steps=4`."""
    return read_recipe(find_recipe(name), settings)


def read_recipe(path: Path, settings: Sequence[str] = ()) -> Recipe:
    """A recipe from a file and from `key=value` settings, such as `train.steps=4` or `steps=4`."""
    return _resolved(read_toml(path), f"{path}: ", path.parent, settings)


def recipe_to_ask(path: Path | None, settings: Sequence[str], task: str | None) -> Recipe:
    """The recipe of a file, or of defaults, for asking a model and not for training it: of stages
    the last counts, and another task than its own has nothing of the settings of that."""
    whole = read_toml(path) if path else {}
    stages = whole.pop("stages", None)
    if isinstance(stages, list) and stages and isinstance(stages[-1], dict):
        whole["task"] = stages[-1].get("task", {})
    own = whole.get("task", {})
    if task is not None and isinstance(own, dict) and own.get("name", TaskSettings().name) != task:
        whole["task"] = {}
    changes = [f"task.name={task}"] if task is not None else []
    where, folder = (f"{path}: ", path.parent) if path else ("", Path())
    return _resolved(whole, where, folder, [*changes, *settings])


def _resolved(
    whole: Mapping[str, Any], where: str, folder: Path, settings: Sequence[str]
) -> Recipe:
    _check_tables(whole, where)
    changes = _by_table([read_setting(text) for text in settings], whole)
    values: dict[str, Any] = {key: whole[key] for key in _TOP if key in whole}
    top = changes.pop("", {})
    values |= top
    for name, kind in TABLES.items():
        table = _checked(whole.get(name, {}), name, where)
        own = _table(kind, table, f"{where}[{name}] ")
        given = changes.get(name, {})
        values[name] = _table(kind, {**table, **given}, f"{name}.") if given else own
    phases, stages = (_checked_list(whole, name, where) for name in LISTS)
    layers = [
        Layer(f"{where}[protocol] ", dict(whole.get("protocol", {})), folder),
        Layer("protocol.", changes.get("protocol", {}), Path()),
    ]
    rules = merged_rules(None, layers, named=True)
    lists = {"phases": phases, "stages": stages}
    return _validated({**values, **lists, "protocol": rules}, where, top)


def _checked_list(whole: Mapping[str, Any], name: str, where: str) -> list[Any]:
    """Tables of one kind, each checked."""
    tables = whole.get(name, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ConfigError(f"{where}{name}: write each as a table that begins with [[{name}]]")
    for number, table in enumerate(tables, 1):
        place = f"{where}[[{name}]] number {number}: "
        _check_keys(table, LISTS[name], place)
        if isinstance(table.get("task"), dict):
            _check_keys(table["task"], TaskSettings, f"{place}task.")
            _table(TaskSettings, table["task"], f"{place}task.")
        _table(LISTS[name], table, place)
    return tables


def _check_tables(whole: Mapping[str, Any], where: str) -> None:
    known = (*_TOP, *TABLES, "protocol", *LISTS)
    for key, value in whole.items():
        if key not in known:
            raise ConfigError(f"{where}{_shown(key)}: unknown key{did_you_mean(key, known)}")
        if (key in TABLES or key == "protocol") and not isinstance(value, dict):
            raise ConfigError(f"{where}{key}: is a table; write its settings under [{key}]")


def _checked(table: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    _check_keys(table, TABLES[name], f"{where}[{name}] ")
    return table


def _check_keys(table: Mapping[str, Any], kind: type[Any], where: str) -> None:
    known = tuple(f.name for f in fields(kind))
    for key in table:
        if key not in known:
            raise ConfigError(f"{where}{_shown(key)}: unknown key{did_you_mean(key, known)}")


def _by_table(
    settings: Sequence[tuple[str, Any]], whole: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Settings of the command line, each put into the table it belongs to. A key inside of a
    setting changes only itself: the others stay as they are in the `whole` file."""
    found: dict[str, dict[str, Any]] = {}
    for key, value in settings:
        outer, inner = _parted(key)
        table, _, name = outer.rpartition(".")
        home = _home(outer) if not table else (table, name)
        _check_home(key, *home)
        given = found.setdefault(home[0], {})
        if inner is not None:
            before = given.get(home[1], whole.get(home[0], {}).get(home[1], {}))
            if not isinstance(before, Mapping):
                raise ConfigError(
                    f"{_shown(key)}: {home[1]} = {before!r} was given, which has no keys"
                )
            value = {**before, inner: value}
        given[home[1]] = value
    return found


def _parted(key: str) -> tuple[str, str | None]:
    """The setting that a key names, and what it names inside of that."""
    words = key.split(".")
    count = 2 if words[0] in TABLES else 1
    if len(words) > count and words[count - 1] in MAPPINGS:
        return ".".join(words[:count]), ".".join(words[count:])
    return key, None


def _homes() -> dict[str, list[str]]:
    """The tables that have a setting of a name."""
    homes: dict[str, list[str]] = {name: [""] for name in _TOP}
    tables: dict[str, Any] = {**TABLES, "protocol": PeerRules}
    for table, kind in tables.items():
        for f in fields(kind):
            homes.setdefault(f.name, []).append(table)
    homes.setdefault("preset", []).append("protocol")
    return homes


def _home(name: str) -> tuple[str, str]:
    """Where a setting without a table belongs, if there is only one such place."""
    homes = _homes().get(name)
    if homes is None:
        raise ConfigError(f"{_shown(name)}: unknown key{did_you_mean(name, tuple(_homes()))}")
    if len(homes) > 1:
        choices = " or ".join(f"{table}.{name}" for table in homes)
        raise ConfigError(f"{name}: say which one you mean: {choices}")
    return homes[0], name


def _check_home(key: str, table: str, name: str) -> None:
    if name not in _homes() or table not in _homes()[name]:
        dotted = tuple(f"{t}.{n}" if t else n for n, tables in _homes().items() for t in tables)
        raise ConfigError(f"{_shown(key)}: unknown key{did_you_mean(key, dotted)}")


def _table(kind: type[Any], values: Mapping[str, Any], where: str) -> Any:
    """One table, checked; what is wrong with it, with where it stands."""
    for f in fields(kind):
        if f.type in (int, float) and isinstance(values.get(f.name), bool):
            raise ConfigError(f"{where}{f.name}: must be a number, not true or false")
    try:
        return TypeAdapter(kind).validate_python(dict(values))
    except ValidationError as error:
        raise ConfigError(f"{where}{first_error(error)}") from None
    except ConfigError as error:
        raise ConfigError(f"{where}{error}") from None


def _validated(values: Mapping[str, Any], where: str, given: Mapping[str, Any]) -> Recipe:
    """The whole recipe; what was `given` on the command line is not blamed on the file."""
    if isinstance(values.get("seed"), bool):
        place = "" if "seed" in given else where
        raise ConfigError(f"{place}seed: must be a number, not true or false")
    try:
        return _RECIPE.validate_python(values)
    except ValidationError as error:
        place = "" if error.errors()[0]["loc"][:1] in [(key,) for key in given] else where
        raise ConfigError(f"{place}{first_error(error)}") from None
    except ConfigError as error:
        raise ConfigError(f"{where}{error}") from None


_RECIPE = TypeAdapter(Recipe)


def _shown(key: str) -> str:
    return key if key.isprintable() else repr(key)


def to_toml(recipe: Recipe) -> str:
    """The recipe with every setting written out; its prompts are files in a folder beside it.
    Reading it gives the same recipe."""
    data = _plain(asdict(recipe))
    if data["protocol"].pop("prompts"):
        data["protocol"]["prompts"] = "prompts"
    return tomli_w.dumps(data)


def _plain(value: Any) -> Any:
    """Without None, which TOML does not have: what is missing has its default."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def changed_keys(old: Recipe, new: Recipe) -> list[str]:
    """The settings that differ, as `table.key: old -> new`."""
    before, after = flat(asdict(old)), flat(asdict(new))
    # A directory that was moved is still the same run.
    del before["folder"], after["folder"]
    return [
        f"{key}: {before.get(key)!r} -> {after.get(key)!r}"
        for key in sorted({*before, *after})
        if before.get(key) != after.get(key)
    ]


def flat(value: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Settings in tables by their full names."""
    found: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, Mapping):
            found |= flat(item, f"{path}{key}.")
        else:
            found[f"{path}{key}"] = item
    return found


def read_config(folder: Path) -> Recipe:
    """The recipe of a run directory."""
    file = folder / "config.toml"
    if not file.exists():
        raise DataError(f"{folder}: no config.toml in it; is it a run directory?")
    return read_recipe(file)
