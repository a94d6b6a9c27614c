"""One spelling for what LaTeX and people write in many ways."""

import re

from rostra.tasks.grading import GROUP, narrow
from rostra.tasks.names import enclosed, split

_SIGNS = str.maketrans(
    {
        "°": r"^\circ ",
        "º": r"^\circ ",
        "≠": r"\ne ",
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
        "²": "^2 ",
        "³": "^3 ",
        "\u00a0": " ",
    }
)
_ORDINAL = r"(?:st|nd|rd|th)"
_ORDINAL_TEXT = rf"\\(?:text|mathrm|textsuperscript)\s*\{{\s*{_ORDINAL}\s*\}}"
_ROOT = re.compile(r"√\s*(?:\(([^()]*)\)|(\d+|[A-Za-z]))")
_SPELT = [
    (re.compile(pattern), put)
    for pattern, put in (
        (r"(?s)^\*\*(.*)\*\*$", r"\1"),
        (r"(?s)^\$(.*)\$$|^\\\((.*)\\\)$|^\\\[(.*)\\\]$", r"\1\2\3"),
        (r"(?s)^\\text\s*\{\s*\$([^$]*)\$\s*\}$", r"\1"),
        (r"\\(?:boldsymbol|bm|underline|math(?:bf|rm)(?=\{[^{}]*\{))\s*(?=\{)", ""),
        (r"\\text\s*\{\s*infinity\s*\}|(?<![A-Za-z\\])infinity(?![A-Za-z])", r"\\infty "),
        (rf"(?<=\d)\s*\^\s*\{{\s*(?:{_ORDINAL_TEXT}|{_ORDINAL})\s*\}}$", ""),
        (rf"(?<=\d)(?:\s*\^?\s*{_ORDINAL_TEXT}|{_ORDINAL})$", ""),
        (r"\\[dtc]frac(?![a-zA-Z])", r"\\frac"),
        (r"\\big(cup|cap)(?![a-zA-Z])", r"\\\1"),
        (r"\\(?:left|right|[bB]igg?[lr]?|(?:display|text)style)(?![a-zA-Z])\s*", ""),
        (r"\\lbrace(?![a-zA-Z])\s*", r"\\{"),
        (r"\\rbrace(?![a-zA-Z])", r"\\}"),
        (r"\\leq(?:slant)?(?![a-zA-Z])|<=", r"\\le "),
        (r"\\geq(?:slant)?(?![a-zA-Z])|>=", r"\\ge "),
        (r"\\neq(?![a-zA-Z])", r"\\ne "),
        (r"\\lt(?![a-zA-Z])", "<"),
        (r"\\gt(?![a-zA-Z])", ">"),
        (
            r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![a-zA-Z]))|\\(?:text)?degrees?(?![a-zA-Z])",
            r"^\\circ ",
        ),
        (r"(?<![\^\\])\{(?:\}\s*\^\\circ|\s*\^\\circ \s*\})", r"^\\circ "),
        (r"\\colon(?![a-zA-Z])|(?:\\mathbin)?\{:\}", ":"),
        (r"^(\d+)\s*(?:\\text\s*\{\s*to\s*\}|to)\s*(\d+)$", r"\1:\2"),
        (r"(?<![\d:])0(?=\d:[0-5]\d(?![\d:]))", ""),
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
        (r"\\sqrt\s*+(\[\d++\])?+\s*+([0-9A-Za-z])", r"\\sqrt\1{\2}"),
        (r"\\varnothing(?![a-zA-Z])|\\\{\s*+\\\}", r"\\emptyset "),
        (r"^[a-z]\s*\\in(?![a-zA-Z])", ""),
        (r"(?<![\\.])[.,;]$", ""),
    )
]
_NUMBER_IN_WORDS = re.compile(
    r"[A-Za-z]\s*=\s*[-+\d.,/ ]+|[-+\d.,/ ]*\d(?:\s+[A-Za-z][A-Za-z .]*)?"
    r"|[-+]?[\d./]+(?:(?:\s*,\s*|\s+(?:and|or)\s+|\s*,\s*(?:and|or)\s+)[-+]?[\d./]+)+"
)
_BREAK = re.compile(r"\\\\(?=\s|[-+]?\d)")
_ANSWERED = re.compile(r"[\d)}\]$%.]$")
_BEGUN = re.compile(r"[\d.($]|\\[$(\[]|[A-Za-z]\w*\s*=")
_BARE = re.compile(r"\s*[-+]?[\d.,/ ]+")
_SIGNED = re.compile(r"[-+]\s*[\d.($\\]")
_INFIX = re.compile(r"\\(?:choose|over)(?![a-zA-Z])")
_LABEL = re.compile(rf"{GROUP.pattern}\s*=(?=[^=]+$)")


def spelt(text: str) -> str:
    """An answer in one spelling. What it says stays as it is."""
    text = _ROOT.sub(r"\\sqrt{\1\2}", narrow(text)).translate(_SIGNS)
    text = _one_line(text).removesuffix(".").strip()
    for pattern, put in _SPELT:
        text = pattern.sub(put, text.strip())
    # A number that stands in text as a whole is a number, and what names it is a name.
    whole = GROUP.fullmatch(text)
    if whole and _NUMBER_IN_WORDS.fullmatch(whole[1].strip()):
        text = whole[1]
    text = text.strip()
    # Braces around a list are a set, and around anything else they say nothing.
    inner = text[1:-1].strip()
    if text[:1] == "{" and inner and enclosed(text) and len(split(text)) == len(split(inner)):
        text = text if _INFIX.search(text) else inner
    return _LABEL.sub("", text, count=1) if _LABEL.match(text) else text


def _one_line(text: str) -> str:
    """A text without line breaks. Where a line ends and the next begins like an answer, these are
    two, and a comma parts them."""
    lines = text.splitlines() if r"\begin" in text else _BREAK.sub("\n", text).splitlines()
    whole = ""
    for line in filter(None, map(str.strip, lines)):
        # A number behind a number is another, whatever its sign; behind a letter it is a term.
        begun = _BEGUN.match(line) or (_BARE.fullmatch(whole) and _SIGNED.match(line))
        two = _ANSWERED.search(whole) and begun and r"\begin" not in text
        whole += ("," if two and whole.count("{") == whole.count("}") else "") + " " + line
    return whole.strip()
