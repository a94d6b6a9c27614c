"""What the seats are told: templates in files that a researcher can read and replace.

A template holds places like `{{question}}`. They are filled in one pass, so a text that is filled
in is never searched for further places. A line that holds nothing but a place whose text is empty
disappears together with the blank line after it.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib.resources import files
from typing import NamedTuple

from rostra.errors import ConfigError

_PLACE = re.compile(r"\{\{\s*(\w+)\s*\}\}")

PLACES: Mapping[str, tuple[str, ...]] = {
    "system": ("name", "persona", "agents", "rounds", "contract", "answer", "answers"),
    "persona": ("persona", "style"),
    "opening": ("question", "answers", "background", "turns", "task"),
    "next": ("turns", "task", "question"),
    "turn": ("who", "round", "body"),
    "field": ("section", "text"),
    "silent": ("who",),
} | dict.fromkeys(
    ("alone", "pair", "compare", "again", "ballot", "speech", "verdict"),
    ("name", "round", "rounds", "comparable", "tags"),
)
"""Each template and the places it may use. A section's own template is `contract.SECTION`; a
template for one role only is `ROLE.TEMPLATE`, as in `judge.system`."""

NEEDED: Mapping[str, tuple[str, ...]] = {
    "opening": ("question", "turns", "task"),
    "next": ("turns", "task"),
    "turn": ("who", "body"),
    "field": ("text",),
}
"""Places without which a seat would not see what the rules say it has seen."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """A set of templates."""

    templates: Mapping[str, str] = field(default_factory=dict)
    quote: str = "> "
    """Begins every line of another seat's text, so that no such line can pose as ours."""

    def __post_init__(self) -> None:
        for name, template in self.templates.items():
            allowed = _places(name)
            for place in _PLACE.findall(template):
                if place not in allowed:
                    raise ConfigError(
                        f"prompt {name}: {{{{{place}}}}} is not a place it can use"
                        f"{did_you_mean(place, allowed)} (there are: {', '.join(allowed)})"
                    )
            for place in NEEDED.get(name.rpartition(".")[2], ()):
                if place not in _PLACE.findall(template):
                    raise ConfigError(
                        f"prompt {name}: must hold {{{{{place}}}}}, or seats would judge what they "
                        "were never shown"
                    )

    def replaced(self, templates: Mapping[str, str]) -> "Prompts":
        """These prompts with some templates replaced."""
        for name in templates:
            if name not in self.templates:
                raise ConfigError(
                    f"prompts: {name} is not a template of this protocol"
                    f"{did_you_mean(name, self.templates)}"
                )
        return Prompts({**self.templates, **templates}, self.quote)

    def render(self, template: str, role: str = "", /, **values: object) -> str:
        """A template, filled. The one for the role is taken where there is one."""
        special = self.templates.get(f"{role}.{template}")
        return fill(self.templates[template] if special is None else special, values)


def _places(name: str) -> tuple[str, ...]:
    if name.startswith("contract."):
        return ()
    base = name.rpartition(".")[2]
    if base not in PLACES:
        raise ConfigError(f"prompts: {name} is not a template{did_you_mean(base, PLACES)}")
    return PLACES[base]


class _Template(NamedTuple):
    parts: list[str]
    """The whole text as literal, place, literal, place, ..., literal."""
    lines: list[list[str]]
    """The same, line by line."""
    lone: frozenset[int]
    """The lines that hold nothing but a place."""


@lru_cache(maxsize=1024)
def _template(text: str) -> _Template:
    text = text.strip("\n")
    lines = [_PLACE.split(line) for line in text.split("\n")]
    lone = [i for i, line in enumerate(lines) if len(line) == 3 and not line[0] + line[2]]
    return _Template(_PLACE.split(text), lines, frozenset(lone))


def fill(text: str, values: Mapping[str, object]) -> str:
    """Fills the places of a template in one pass."""
    template = _template(text)
    empty = {i for i in template.lone if not str(values[template.lines[i][1]])}
    if not empty:
        return _join(template.parts, values)
    out: list[str] = []
    for i, line in enumerate(template.lines):
        after_empty = i - 1 in empty and line == [""]
        if i not in empty and not after_empty:
            out.append(_join(line, values))
    return "\n".join(out)


def _join(parts: list[str], values: Mapping[str, object]) -> str:
    filled = parts.copy()
    filled[1::2] = [str(values[place]) for place in parts[1::2]]
    return "".join(filled)


@cache
def builtin(folder: str) -> Prompts:
    """The prompts that Rostra ships: `peer` or `judged`."""
    found = files(__name__).joinpath(folder).iterdir()
    return Prompts(
        {f.name.removesuffix(".md"): f.read_text("utf-8") for f in found if f.name.endswith(".md")}
    )


def did_you_mean(word: str, known: Mapping[str, object] | tuple[str, ...]) -> str:
    """`, did you mean rounds?`, or nothing where nothing is close."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f", did you mean {close[0]}?" if close else ""
