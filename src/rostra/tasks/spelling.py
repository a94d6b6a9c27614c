"""One spelling for what LaTeX and people write in many ways."""

import re

from rostra.tasks.grading import GROUP, narrow

_SIGNS = str.maketrans(
    {
        "°": r"^\circ ",
        "×": r"\times ",
        "·": r"\cdot ",
        "π": r"\pi ",
        "∞": r"\infty ",
        "±": r"\pm ",
        "≤": r"\le ",
        "≥": r"\ge ",
        "∪": r"\cup ",
        "√": r"\sqrt ",
        "–": "-",
        "½": r"\frac{1}{2}",
        "¼": r"\frac{1}{4}",
        "¾": r"\frac{3}{4}",
        "²": "^{2}",
        "³": "^{3}",
        "\u00a0": " ",
    }
)
_ROOT = re.compile(r"√\s*(?:\(([^()]*)\)|(\d+|[A-Za-z]))")
_SPELT = [
    (re.compile(pattern), put)
    for pattern, put in (
        (r"(?s)^\*\*(.*)\*\*$", r"\1"),
        (r"(?s)^\$(.*)\$$|^\\\((.*)\\\)$|^\\\[(.*)\\\]$", r"\1\2\3"),
        (r"\\[dtc]frac(?![a-zA-Z])", r"\\frac"),
        (r"\\big(cup|cap)(?![a-zA-Z])", r"\\\1"),
        (r"\\(?:left|right|[bB]igg?[lr]?|displaystyle)(?![a-zA-Z])\s*", ""),
        (r"\\lbrace(?![a-zA-Z])\s*", r"\\{"),
        (r"\\rbrace(?![a-zA-Z])", r"\\}"),
        (r"\\leq(?:slant)?(?![a-zA-Z])|<=", r"\\le "),
        (r"\\geq(?:slant)?(?![a-zA-Z])|>=", r"\\ge "),
        (r"\\lt(?![a-zA-Z])", "<"),
        (r"\\gt(?![a-zA-Z])", ">"),
        (r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![a-zA-Z]))|\\degrees?(?![a-zA-Z])", r"^\\circ "),
        (r"(?<=\d)(?:,\\!\s*|\{,\}\s*|\\[,;: ])(?=\d{3}(?!\d))", ""),
        (r"\\!", ""),
        (r"\\\\\s*\[[^\[\]{}]{1,9}\]", r"\\\\"),
        (r"(?<!\\)\\[,;: ]|\\q?quad(?![a-zA-Z])|~", " "),
        (r"\b([aApP])\.\s?[mM]\b\.?", r"\1m"),
        (r"\^(\d{2,})", r"^{\1}"),
        (r"\\over(?:line|rightarrow)\s*\{([A-Z]{2,3})\}", r"\1"),
        (r"\\(begin|end)\{(?:b|[pb]?small)matrix\}", r"\\\1{pmatrix}"),
        (r"(?<![\d.])(\d+) +(\d+)/(\d+)", r"\1\\frac{\2}{\3}"),
        (r"(?<![A-Za-z\\])pi(?![A-Za-z])", r"\\pi "),
        (r"(?<![A-Za-z\\])sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}"),
        (r"\\sqrt\s*([0-9A-Za-z])", r"\\sqrt{\1}"),
        (r"\\varnothing(?![a-zA-Z])", r"\\emptyset"),
        (r"^[a-z]\s*\\in(?![a-zA-Z])", ""),
        (r"(?<![\\.])[.,;]$", ""),
    )
]
_NUMBER_IN_WORDS = re.compile(
    r"[A-Za-z]\s*=\s*[-+\d.,/ ]+|[-+\d.,/ ]*\d(?:\s+[A-Za-z][A-Za-z .]*)?"
    r"|[-+]?[\d./]+(?:(?:\s*,\s*|\s+(?:and|or)\s+|\s*,\s*(?:and|or)\s+)[-+]?[\d./]+)+"
)
_LABEL = re.compile(rf"{GROUP.pattern}\s*=(?=[^=]+$)")


def spelt(text: str) -> str:
    """An answer in one spelling. What it says stays as it is."""
    text = _ROOT.sub(r"\\sqrt{\1\2}", narrow(text)).translate(_SIGNS)
    text = text.strip().removesuffix(".").strip()
    for pattern, put in _SPELT:
        text = pattern.sub(put, text.strip())
    # A number that stands in text as a whole is a number, and what names it is a name.
    whole = GROUP.fullmatch(text)
    if whole and _NUMBER_IN_WORDS.fullmatch(whole[1].strip()):
        text = whole[1]
    return _LABEL.sub("", text.strip(), count=1) if _LABEL.match(text.strip()) else text.strip()
