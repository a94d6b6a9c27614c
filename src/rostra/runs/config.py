"""Settings from files and command lines, checked key by key."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from rostra.debate.peer import PRESETS, PeerRules
from rostra.debate.prompts import did_you_mean
from rostra.engines.sampling import check_stop
from rostra.errors import ConfigError

_RULES = TypeAdapter(PeerRules)


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file; what is wrong with it, in one sentence."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None


def read_setting(text: str) -> tuple[str, Any]:
    """`rounds=4` as a key and a value. The value is TOML; what is no TOML is a string."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"{text!r} is not a setting: write key=value, as in rounds=4")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def peer_rules(
    preset: str = "peer-v2",
    file: Path | None = None,
    settings: Mapping[str, Any] | None = None,
) -> PeerRules:
    """Rules from a preset, the `[protocol]` table of a file, and single settings, in this order."""
    table: dict[str, Any] = {}
    if file:
        whole = read_toml(file)
        table = whole.get("protocol", {})
        if not isinstance(table, dict) or not set(whole) <= {"protocol"}:
            stray = sorted(set(whole) - {"protocol"})
            what = f"[{stray[0]}] is not a table it may have" if stray else "must be a table"
            raise ConfigError(f"{file}: [protocol]: {what}; settings go under [protocol]")
        table = _with_prompt_files(table, file)
        preset = table.pop("preset", preset)
    if not isinstance(preset, str) or preset not in PRESETS:
        where = f"{file}: [protocol] preset" if file else "protocol"
        raise ConfigError(
            f"{where}: {preset!r} is not known{did_you_mean(str(preset), PRESETS)} "
            f"(there are: {', '.join(PRESETS)})"
        )
    rules = PRESETS[preset]()
    rules = _changed(rules, table, f"{file}: [protocol] ")
    return _changed(rules, settings or {}, "protocol: ")


def _changed(rules: PeerRules, changes: Mapping[str, Any], where: str) -> PeerRules:
    """Rules with some settings changed; what is wrong with those, and where they stand."""
    known = tuple(f.name for f in fields(PeerRules))
    for key in changes:
        if key not in known:
            name = key if key.isprintable() else repr(key)
            raise ConfigError(f"{where}{name}: unknown key{did_you_mean(key, known)}")
    try:
        if isinstance(changes.get("stop"), list):
            check_stop(changes["stop"])
        return _RULES.validate_python({**asdict(rules), **changes})
    except ValidationError as error:
        raise ConfigError(f"{where}{first_error(error)}") from None
    except ConfigError as error:
        raise ConfigError(f"{where}{error}") from None


def _with_prompt_files(table: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """Reads the prompts of a file: paths of templates, or a folder of them, beside the file."""
    table = dict(table)
    given = table.get("prompts")
    if given is None:
        return table
    if isinstance(given, str):
        folder = file.parent / given
        paths = {p.stem: p for p in sorted(folder.glob("*.md"))}
        if not paths:
            raise ConfigError(f"{file}: [protocol] prompts: no .md files in {folder}")
    elif isinstance(given, dict) and all(isinstance(p, str) for p in given.values()):
        paths = {name: file.parent / p for name, p in given.items()}
    else:
        raise ConfigError(f"{file}: [protocol] prompts: a folder, or template = path")
    table["prompts"] = {name: _read_prompt(path, file) for name, path in paths.items()}
    return table


def _read_prompt(path: Path, file: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        raise ConfigError(f"{file}: [protocol] prompts: cannot read {path}") from None


def first_error(error: ValidationError) -> str:
    """The first complaint of a validation, as `where: what`."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    said = first.get("ctx", {}).get("error")
    return str(said) if said else f"{where}: {_lower(first['msg'])}, got {_short(first['input'])}"


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def parse_settings(settings: Sequence[str]) -> dict[str, Any]:
    """Many `key=value`."""
    return dict(map(read_setting, settings))
