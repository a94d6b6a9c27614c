"""Reading the sections of a response: not an XML parser, because LaTeX has `&` and `<`.

Linear in the length of the text, whatever the text is, and it never raises.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from rostra.engines.sampling import StopReason

MARKDOWN = "*_`"
"""Emphasis and code marks, which carry no meaning in a comparison or a consensus."""

_THINK = re.compile(r"<(/?)think>", re.IGNORECASE | re.ASCII)
_FENCE = re.compile(r"^[ \t]*```[^\n`]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Section:
    """What stands between one pair of tags."""

    text: str
    """The content, stripped, without any thinking."""
    start: int
    """Where the opening tag begins in the response."""
    end: int
    """Where the closing tag ends. One past the end of the response when the sampler swallowed the
    closing tag: then the end-of-turn token closes the section."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A response, read."""

    sections: dict[str, Section] = field(default_factory=dict)
    """In the order of the contract; empty when the response is malformed."""
    thinking: str = ""
    error: str | None = None
    """Why the response is malformed; None when it is not."""

    @property
    def ok(self) -> bool:
        return self.error is None

    @property
    def consensus(self) -> bool | None:
        """What the consensus section says, where there is one."""
        section = self.sections.get("consensus")
        return None if section is None else _consensus(section.text) == "YES"


class _Span(NamedTuple):
    start: int
    end: int


_Tag = re.Match[str]
"""Group 1 is `/` in a closing tag, group 2 the name."""


def parse(text: str, contract: Sequence[str], stop_reason: StopReason) -> Parsed:
    """Finds the first complete set of sections in the order of the contract.

    Each tag is searched after the close of the one before. When a tag opens again before it
    closes, the last opening counts. Text around the sections is ignored. With an empty contract
    every response is well-formed.
    """
    thoughts = _think_blocks(text)
    thinking = _join(text, thoughts) if thoughts else ""
    if not contract:
        return Parsed(thinking=thinking)
    tags = list(_tag_pattern(tuple(contract)).finditer(text))
    outside = _outside(tags, thoughts) if thoughts else tags
    found = _ordered_set(outside, contract, stop_reason, len(text))
    if isinstance(found, str) and thoughts:
        # No sections outside the thinking: look inside it, past the wrapper.
        found = _ordered_set(tags, contract, stop_reason, len(text))
        thoughts = [_Span(m.start(), m.end()) for m in _THINK.finditer(text)]
        if not isinstance(found, str):
            thinking = _join(text, [_Span(0, found[0].start)])
    if isinstance(found, str):
        return Parsed(thinking=thinking, error=found)
    sections = {
        name: Section(_content(text, at.inside, at.until, thoughts), at.start, at.end)
        for name, at in zip(contract, found, strict=True)
    }
    last = sections[contract[-1]]
    if last.end > len(text) and len(_FENCE.findall(text[: found[0].start])) % 2:
        # The fence around everything closes inside the last section, which nothing else closed.
        unfenced = _without_last_fence(last.text)
        sections[contract[-1]] = Section(unfenced, last.start, last.end)
    if "consensus" in sections and _consensus(sections["consensus"].text) not in ("YES", "NO"):
        error = f"consensus is {sections['consensus'].text[:40]!r}, not YES or NO"
        return Parsed(thinking=thinking, error=error)
    return Parsed(sections, thinking)


def _without_last_fence(text: str) -> str:
    """Text without its closing fence, unless a fence inside it opened that one."""
    fences = list(_FENCE.finditer(text))
    if len(fences) % 2 and fences[-1].end() == len(text):
        return text[: fences[-1].start()].strip()
    return text


def without_thinking(text: str) -> str:
    """What was said aloud: the text without its thinking."""
    return _content(text, 0, len(text), _think_blocks(text))


def _consensus(text: str) -> str:
    bare = text.strip(MARKDOWN + " \t\r\n")
    return bare.upper() if bare.isascii() else bare


@lru_cache
def _tag_pattern(contract: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"<(/?)({'|'.join(contract)})>", re.IGNORECASE | re.ASCII)


def _think_blocks(text: str) -> list[_Span]:
    """Thinking, tags included. An unclosed block runs to the end. A close that nothing opened
    ends the block before it, which held another; with none before it, the prompt opened one."""
    blocks: list[_Span] = []
    start: int | None = None
    for tag in _THINK.finditer(text):
        if not tag[1]:
            start = tag.start() if start is None else start
            continue
        if start is None:
            start = blocks.pop().start if blocks else 0
        blocks.append(_Span(start, tag.end()))
        start = None
    if start is not None:
        blocks.append(_Span(start, len(text)))
    return blocks


def _join(text: str, blocks: list[_Span]) -> str:
    return _THINK.sub("", "\n".join(text[b.start : b.end] for b in blocks)).strip()


def _outside(tags: list[_Tag], blocks: list[_Span]) -> list[_Tag]:
    kept = []
    at = 0
    for tag in tags:
        while at < len(blocks) and blocks[at].end <= tag.start():
            at += 1
        if at == len(blocks) or tag.start() < blocks[at].start:
            kept.append(tag)
    return kept


class _Found(NamedTuple):
    """A section: its content is [inside, until), with its tags it is [start, end)."""

    start: int
    inside: int
    until: int
    end: int


def _ordered_set(
    tags: list[_Tag], contract: Sequence[str], stop_reason: StopReason, length: int
) -> list[_Found] | str:
    """The spans of the sections, or what is wrong. Closing as early as possible leaves the most
    room for what follows, so this finds a complete set whenever there is one."""
    found: list[_Found] = []
    remaining = iter(tags)
    for name in contract:
        opening: _Tag | None = None
        for tag in remaining:
            slash, found_name = tag.groups()
            if found_name != name and found_name.lower() != name:
                continue
            if not slash:
                opening = tag
            elif opening is not None:
                found.append(_Found(opening.start(), opening.end(), tag.start(), tag.end()))
                break
        else:
            if opening is None:
                return f"no <{name}> section where it belongs"
            if name != contract[-1]:
                return f"<{name}> is never closed"
            if stop_reason == "length":
                return f"cut off by the token limit inside <{name}>"
            found.append(_Found(opening.start(), opening.end(), length, length + 1))
    return found


def _content(text: str, start: int, end: int, holes: list[_Span]) -> str:
    if not holes:
        return text[start:end].strip()
    pieces = []
    for hole in holes:
        if start <= hole.start and hole.end <= end:
            pieces.append(text[start : hole.start])
            start = hole.end
    pieces.append(text[start:end])
    return "".join(pieces).strip()
