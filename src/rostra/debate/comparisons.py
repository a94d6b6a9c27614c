"""Reading the comparison lines of one judge: `Agent 0 > Agent 2`."""

import html
import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from rostra.debate.sections import MARKDOWN

Op = Literal[">", "="]

_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});?")
_UNMARK = str.maketrans("", "", MARKDOWN)

_SPACE = r"[^\S\r\n]*+"
_AGENT = rf"agent{_SPACE}([0-9]++)(?!\w|\.\d)"
_CHAIN = rf"{_AGENT}(?:{_SPACE}[<=>]{_SPACE}{_AGENT})++"
_LIST_MARK = r"(?:[-+•·‣◦●▪–—]|\(?[0-9]{1,3}[.):]|\(?[a-z][.)])"
_VOTE = re.compile(rf"(?:^{_SPACE}(?:{_LIST_MARK}{_SPACE})?|[,;]{_SPACE})({_CHAIN})", re.IGNORECASE)
_ANYWHERE = re.compile(
    rf"agent{_SPACE}[0-9]++(?:{_SPACE}[<=>]{_SPACE}agent{_SPACE}[0-9]++)++", re.IGNORECASE
)
"""More than a chain: with no look at what follows, so that no cut can turn the rest into one."""
_LINK = re.compile(r"[<=>]|[0-9]++")
_NOTHING = re.compile(r"\W*+(?:n/a\b|(?:na|none)?+\W*+$)", re.IGNORECASE)
"""A line that says that there is nothing to compare, or nothing at all."""


class Comparison(NamedTuple):
    """One agent held against another."""

    a: int
    op: Op
    b: int


@dataclass(frozen=True, slots=True)
class Comparisons:
    """What one judge wrote, sorted out."""

    valid: tuple[Comparison, ...] = ()
    """`<` turned round, repeats removed, in the order written."""
    self_dropped: int = 0
    """Comparisons in which the judge is a side."""
    malformed: int = 0
    """Ids out of range, or an agent compared with itself."""
    duplicates: int = 0
    lines_invalid: int = 0
    """Lines that say something and yield no valid comparison."""


def read_comparisons(text: str, author: int, n_agents: int) -> Comparisons:
    """Reads the text of a comparison section.

    A comparison begins a line, or follows a list mark, a comma or a semicolon; what follows it on
    its line is ignored. A chain gives its adjacent pairs. A tie has no direction, so `B = A` after
    `A = B` is a repeat.
    """
    valid: dict[Comparison, None] = {}
    self_dropped = malformed = duplicates = lines_invalid = 0
    for line in plain(text).splitlines():
        good = False
        for chain in _VOTE.findall(line):
            pairs = _pairs(chain[0]) if len(chain[0]) > 64 else _short_pairs(chain[0])
            for comparison, times in pairs.items():
                a, op, b = comparison
                if a == b or a >= n_agents or b >= n_agents:
                    malformed += times
                elif author in (a, b):
                    self_dropped += times
                else:
                    known = comparison in valid or (op == "=" and Comparison(b, op, a) in valid)
                    if not known:
                        valid[comparison] = None
                    duplicates += times - (not known)
                    good = True
        if not good and not _NOTHING.match(line):
            lines_invalid += 1
    return Comparisons(tuple(valid), self_dropped, malformed, duplicates, lines_invalid)


def plain(text: str) -> str:
    """Text with its HTML entities resolved and its Markdown marks removed."""
    if "&" in text:
        text = _ENTITY.sub(lambda m: _entity(m[0]), text)
    return text.translate(_UNMARK)


_entity = lru_cache(maxsize=1024)(html.unescape)


def without_comparisons(text: str, replacement: str) -> str:
    """Text in which nothing reads as a comparison any more, wherever it stands in a line.

    A line that held one comes out plain, and what is left of its ampersands can spell no entity.
    """
    if not _ANYWHERE.search(plain(text)):
        return text
    lines = []
    for line in text.splitlines():
        bare = plain(line)
        if _ANYWHERE.search(bare):
            line = _ANYWHERE.sub(replacement, bare).replace("&", "＆")
        lines.append(line)
    return "\n".join(lines)


@lru_cache(maxsize=4096)
def _short_pairs(chain: str) -> dict[Comparison, int]:
    """The same few chains come up again and again; a hostile long one is not kept."""
    return _pairs(chain)


def _pairs(chain: str) -> dict[Comparison, int]:
    """The adjacent pairs of a chain, and how often each comes up in it."""
    links = _LINK.findall(chain)
    known = {digits: _id(digits) for digits in set(links[::2])}
    ids = [known[digits] for digits in links[::2]]
    pairs: dict[Comparison, int] = {}
    for (a, op, b), times in Counter(zip(ids, links[1::2], ids[1:], strict=False)).items():
        pair = Comparison(b, ">", a) if op == "<" else Comparison(a, op, b)
        pairs[pair] = pairs.get(pair, 0) + times
    return pairs


def _id(digits: str) -> int:
    """An id; one too long to be any agent's is cut, because it may have a million digits."""
    return int(digits) if len(digits) < 10 else int(digits.lstrip("0")[:9] or "0")
