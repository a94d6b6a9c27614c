"""Settings from files and command lines, checked key by key."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from rostra.debate.peer import PRESETS, PeerRules
from rostra.debate.prompts import did_you_mean
from rostra.debate.seat import Persona
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
    preset: str | None = None,
    file: Path | None = None,
    settings: Mapping[str, Any] | None = None,
) -> PeerRules:
    """Rules from a preset, the `[protocol]` table of a file, and single settings, in this order.

    A preset given here is preferred to the one that the file names.
    """
    layers = [Layer("protocol: ", dict(settings or {}), Path())]
    if file:
        layers.insert(0, Layer(f"{file}: [protocol] ", _protocol_table(file), file.parent))
    return merged_rules(preset, layers, named=file is not None)


def merged_rules(preset: str | None, layers: Sequence["Layer"], *, named: bool) -> PeerRules:
    """Rules from settings of several places, the later ones first in rank. With `named`, a place
    may name the preset it builds on."""
    merged: dict[str, Any] = {}
    owner: dict[str, str] = {}
    base_name = "peer-v2"
    for layer in layers:
        own = layer.values.pop("preset", None) if named else None
        base_name = _known_preset(own, f"{layer.where}preset") or base_name
        layer.check_keys()
        merged |= layer.values | layer.prompts()
        owner |= dict.fromkeys(layer.values, layer.where)
    base = PRESETS[_known_preset(preset or base_name, "protocol") or ""]()
    try:
        _check_plainly(merged)
        return _RULES.validate_python({**asdict(base), **merged})
    except ValidationError as error:
        said, key = first_error(error), str(error.errors()[0]["loc"][0])
    except ConfigError as error:
        said = str(error)
        key = re.split(r"[ :]", said, maxsplit=1)[0]
    raise ConfigError(f"{owner.get(key, layers[0].where)}{said}")


def _known_preset(preset: Any, where: str) -> str | None:
    if preset is None or (isinstance(preset, str) and preset in PRESETS):
        return preset
    raise ConfigError(
        f"{where}: {preset!r} is not known{did_you_mean(str(preset), PRESETS)} "
        f"(there are: {', '.join(PRESETS)})"
    )


RECIPE = {"title", "folder", "seed", "loop", "trackers", "protocol", "model", "task", "rewards"}
RECIPE |= {"train", "eval", "alarms", "bootstrap", "phases", "stages"}
"""What a recipe may hold. Of one, only its rules are read here."""


def _protocol_table(file: Path) -> dict[str, Any]:
    whole = read_toml(file)
    table = whole.get("protocol", {})
    stray = sorted(set(whole) - RECIPE)
    if stray or not isinstance(table, dict):
        what = f"[{stray[0]}] is not a table it may have" if stray else "must be a table"
        raise ConfigError(f"{file}: [protocol]: {what}; settings go under [protocol]")
    return dict(table)


def _check_plainly(values: dict[str, Any]) -> None:
    """What validation would let pass or say less clearly. One stop string is a list of one."""
    if isinstance(values.get("stop"), str):
        values["stop"] = [values["stop"]]
    if isinstance(values.get("stop"), list):
        check_stop(values["stop"])
    known = tuple(f.name for f in fields(Persona))
    given = values.get("personas")
    for persona in given if isinstance(given, list) else []:
        for key in persona if isinstance(persona, dict) else ():
            if key not in known:
                raise ConfigError(f"personas: {key}: unknown key{did_you_mean(key, known)}")
    for name in ("agents", "rounds", "history_rounds", "max_tokens"):
        if isinstance(values.get(name), bool):
            raise ConfigError(f"{name} = {str(values[name]).lower()}: must be a whole number")


@dataclass(frozen=True, slots=True)
class Layer:
    """Settings that come from one place."""

    where: str
    """How a message begins that complains about one of them."""
    values: dict[str, Any]
    folder: Path
    """What paths in it are relative to."""

    def check_keys(self) -> None:
        known = tuple(f.name for f in fields(PeerRules))
        for key in self.values:
            if key not in known:
                name = key if key.isprintable() else repr(key)
                raise ConfigError(f"{self.where}{name}: unknown key{did_you_mean(key, known)}")

    def prompts(self) -> dict[str, Any]:
        """The templates it names, read: a folder of them, or paths by template."""
        given = self.values.get("prompts")
        if given is None:
            return {}
        if isinstance(given, str):
            paths = {p.stem: p for p in sorted((self.folder / given).glob("*.md"))}
            if not paths:
                raise ConfigError(f"{self.where}prompts: no .md files in {self.folder / given}")
        elif isinstance(given, dict) and all(isinstance(p, str) for p in given.values()):
            paths = {name: self.folder / p for name, p in given.items()}
        else:
            raise ConfigError(f"{self.where}prompts: a folder, or template = path")
        return {"prompts": {name: self._read(path) for name, path in paths.items()}}

    def _read(self, path: Path) -> str:
        try:
            return path.read_bytes().decode("utf-8")
        except (OSError, UnicodeDecodeError):
            raise ConfigError(f"{self.where}prompts: cannot read {path}") from None


def first_error(error: ValidationError) -> str:
    """The first complaint of a validation, as `where: what`."""
    first = error.errors()[0]
    # Of a choice that may be left empty, the last part is the list of words, and no key.
    where = ".".join(str(part) for part in first["loc"] if not str(part).startswith("literal["))
    said = first.get("ctx", {}).get("error")
    if said:
        return str(said)
    if first["type"] == "literal_error":
        choices = tuple(re.findall(r"'([^']*)'", first["ctx"]["expected"]))
        hint = did_you_mean(str(first["input"]), choices)
        return f"{where} = {_short(first['input'])}: must be {' or '.join(choices)}{hint}"
    return f"{where}: {_lower(first['msg'])}, got {_short(first['input'])}"


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def parse_settings(settings: Sequence[str]) -> dict[str, Any]:
    """Many `key=value`."""
    return dict(map(read_setting, settings))
