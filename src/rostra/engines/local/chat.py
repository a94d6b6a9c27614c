"""Conversations as tokens, by the chat template that comes with a tokenizer.

The template is rendered with marks in place of the messages, once for every sequence of roles.
What stands between the marks is the template's own text, and only there do control tokens count.
They are encoded by a copy of the tokenizer in which every control token has a secret name: the
template's text uses the secret names, so the text of a message, which cannot know them, never
becomes a control token, while all else is split into tokens as the tokenizer always does.

Control tokens are all tokens added to the vocabulary: also think and tool tags that are not marked
as special. Exempt are plain words and white space, unless the template writes the word. Where a
template marks turns by plain text ("User:"), a message can imitate it; `mode` then says so.
"""

import json
import os
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rostra.engines.arrays import IntArray
from rostra.engines.chat import Message, Role
from rostra.engines.local.needs import need
from rostra.engines.offsets import PlacedTokens
from rostra.errors import ConfigError, RuleError

_ANCHOR = "a"
"""Stands for the text before a tail, so that no tokenizer takes the tail for a new text."""
_EXCHANGES = (1, 2, 3, 40)
"""After how many exchanges a template is asked whether it has rewritten history."""
_THINK = re.compile(r"<think>\s*(?:</think>\s*)?")


class TemplateChat:
    """A chat format made of a tokenizer and its template.

    Where the template refuses the system role or ignores it, the system text opens the first user
    message; where it wants roles to alternate, neighbours are joined. A blank line stands between.
    """

    extends: bool
    ends: frozenset[int]
    """Tokens that end a turn."""
    mode: str
    """One sentence: how prompts grow, and what to know about it."""

    def __init__(self, tokenizer: Any) -> None:
        self._template = template = _Template(tokenizer)
        template.text(("user",))
        self._system = template.accepts("system", "user")
        self._alternates = not template.accepts("user", "user")

        tail = template.tail(("user",))
        plan = json.loads(tokenizer.backend_tokenizer.to_str())
        added = {token["content"]: token for token in plan["added_tokens"]}
        sample = template.text((*self._opening, "assistant", "user"))
        written = "".join(template.literals(sample))
        self._names = names = {
            content: f"\ue000{template.secret}t{token['id']}e"
            for content, token in added.items()
            if token["special"] or not _is_plain(content, written)
        }
        self._controls = re.compile(
            "|".join(re.escape(content) for content in sorted(names, key=len, reverse=True))
            or r"(?!)"
        )
        self._end = self._end_of_turn(tail, tokenizer.eos_token)
        ids = {tokenizer.eos_token_id, added[self._end]["id"] if self._end else None}
        self.ends = frozenset(ids - {None})

        used = {*self._controls.findall(written), tokenizer.eos_token}
        self._coder = _renamed(plan, names, used)
        usual = tokenizer(written, add_special_tokens=False, split_special_tokens=False)
        if self._encode(self._hide(written)).ids != list(usual["input_ids"]):
            raise ConfigError(
                f"{template.name}: the control tokens of this tokenizer cannot be kept apart from "
                "the text of messages; use another model"
            )
        self._shapes: dict[tuple[Role, ...], _Shape] = {}

        rewrites = self._rewrites()
        self.extends = rewrites is None
        self.mode = "appending: each prompt extends the last"
        if rewrites:
            self.mode = (
                f"re-rendering: the template rewrites history ({rewrites}), "
                "so every prompt is rendered anew"
            )
        if not all(self._controls.search(text) for text in template.literals(tail)):
            self.mode += "; it marks turns by plain text, which a message can imitate"

    def open(self, messages: Sequence[Message]) -> IntArray:
        fitted = self._fit(messages)
        shape = self._shape(tuple(message.role for message in fitted))
        return np.array(self._encode(shape.fill([m.text for m in fitted])).ids, np.int32)

    def extend(self, reply: IntArray, messages: Sequence[Message]) -> IntArray:
        if not self.extends:
            raise RuleError(f"this chat format cannot extend a prompt ({self.mode}); use open")
        fitted = [Message("user", ""), Message("assistant", ""), *self._fit(messages)]
        rest = self._shape(tuple(message.role for message in fitted)).after(1)
        tail = self._encode_tail(rest.fill([m.text for m in fitted]))
        ended = len(reply) > 0 and int(reply[-1]) in self.ends
        if ended and self._end and self._names[self._end] in rest.literals[0]:
            tail = tail[tail.index(self._coder.token_to_id(self._names[self._end])) + 1 :]
        return np.array(tail, np.int32)

    def reply(self, text: str, *, end: bool) -> PlacedTokens:
        # A reply begins on a line of its own, so its first word is never joined to another.
        coded = self._encode("\n" + text)
        first = next((i for i, (at, _) in enumerate(coded.offsets) if at >= 1), len(coded.ids))
        shift = 1
        if first and coded.offsets[first - 1][1] > 1:
            coded, first, shift = self._encode(text), 0, 0
        tokens = coded.ids[first:]
        starts = [max(at - shift, 0) for at, _ in coded.offsets[first:]]
        if end and self.ends:
            own = self._names.get(self._end or "")
            tokens = [*tokens, self._coder.token_to_id(own) if own else min(self.ends)]
            starts = [*starts, len(text)]
        return PlacedTokens(np.array(tokens, np.int64), np.array(starts, np.int32))

    @property
    def _opening(self) -> tuple[Role, ...]:
        return ("system", "user") if self._system else ("user",)

    def _fit(self, messages: Sequence[Message]) -> list[Message]:
        """The messages in roles that the template takes."""
        fitted: list[Message] = []
        joins = False
        for message in messages:
            folded = message.role == "system" and not self._system
            role: Role = "user" if folded else message.role
            if fitted and fitted[-1].role == role and (joins or self._alternates):
                text = "\n\n".join(filter(None, (fitted.pop().text, message.text)))
                message = Message(role, text)
            fitted.append(Message(role, message.text))
            joins = folded
        return fitted

    def _shape(self, roles: tuple[Role, ...]) -> "_Shape":
        if roles not in self._shapes:
            literals, slots = self._template.shape(roles)
            self._shapes[roles] = _Shape([self._hide(text) for text in literals], slots)
        return self._shapes[roles]

    def _hide(self, written: str) -> str:
        """Text of the template, with the secret names of its control tokens."""
        return self._controls.sub(lambda found: self._names[found[0]], written)

    def _encode(self, text: str) -> Any:
        clean = text.encode("utf-8", "replace").decode()
        return self._coder.encode(clean, add_special_tokens=False)

    def _encode_tail(self, text: str) -> list[int]:
        """The tokens of text that goes on where other text stopped."""
        coded = self._encode(_ANCHOR + text)
        ids: list[int] = coded.ids
        for at, (start, end) in enumerate(coded.offsets):
            if start >= len(_ANCHOR):
                return ids[at:]
            if end > len(_ANCHOR):
                break
        return list(self._encode(text).ids)

    def _end_of_turn(self, tail: str, eos: str | None) -> str | None:
        """The first control token after the assistant's text, if it ends its turn: GLM for one
        has no end, and there the header of the next turn comes first."""
        found = self._controls.search(self._template.literals(tail)[0])
        if found is None:
            return None
        if found[0] == eos:
            return eos
        try:
            last = self._template.tail((), speak=False)
        except ConfigError:
            return found[0]
        return found[0] if found.end() <= len(os.path.commonprefix([last, tail])) else None

    def _rewrites(self) -> str | None:
        """What the template does to history, if appending is not all it does.

        Think blocks and white space before an assistant's text do not count: those that were
        written or sampled stay in the history."""
        questions: list[tuple[Role, ...]] = [("user",)]
        if not self._alternates:
            questions.append(("user", "user"))
        for opening in dict.fromkeys((("user",), self._opening)):
            for question in questions:
                for exchanges in _EXCHANGES:
                    if why := self._rewrites_after(opening, question, exchanges):
                        return why
        return None

    def _rewrites_after(
        self, opening: tuple[Role, ...], question: tuple[Role, ...], exchanges: int
    ) -> str | None:
        template = self._template
        whole = template.text((*opening, *exchanges * ("assistant", *question)))
        grown = template.text(opening)
        tail = template.tail(question)
        assistants = [len(opening) + n * (1 + len(question)) for n in range(exchanges)]
        for at in assistants:
            grown += template.mark(at) + template.shift(tail, at - 1)
        whole, grown = _THINK.sub("", whole), _THINK.sub("", grown)
        for mark in map(template.mark, assistants):
            whole, grown = (re.sub(rf"\s+{mark}", mark, text) for text in (whole, grown))
        if whole == grown:
            return None
        order = template.order(whole)
        if len(set(order)) < len(template.order(grown)):
            return "it leaves out earlier messages"
        if order != sorted(order):
            return "it moves messages"
        return "it writes a turn differently when the conversation is longer"


@dataclass(frozen=True, slots=True)
class _Slot:
    """Where a message stands, and what the template takes off its text."""

    index: int
    left: str | None
    """As in `str.strip`: these characters, or None for all white space."""
    right: str | None
    unthinks: bool

    def fill(self, text: str) -> str:
        if self.unthinks and "</think>" in text:
            text = text.rpartition("</think>")[2].lstrip("\n")
        return text.lstrip(self.left).rstrip(self.right)


@dataclass(frozen=True, slots=True)
class _Shape:
    """A rendered conversation without its messages: a slot between any two literals."""

    literals: list[str]
    slots: list[_Slot]

    def after(self, index: int) -> "_Shape":
        """What follows one of the messages."""
        first = 1 + [slot.index for slot in self.slots].index(index)
        return _Shape(self.literals[first:], self.slots[first:])

    def fill(self, texts: Sequence[str]) -> str:
        parts = [self.literals[0]]
        for slot, literal in zip(self.slots, self.literals[1:], strict=True):
            parts += (slot.fill(texts[slot.index]), literal)
        return "".join(parts)


class _Template:
    """The template, rendered with marks in place of messages."""

    def __init__(self, tokenizer: Any) -> None:
        self.name = getattr(tokenizer, "name_or_path", "") or "the model"
        if not getattr(tokenizer, "chat_template", None):
            raise ConfigError(
                f"{self.name} has no chat template: use an instruct model, "
                "or put a chat_template.jinja into its folder"
            )
        if not hasattr(tokenizer, "backend_tokenizer"):
            raise ConfigError(
                f"{self.name}: {type(tokenizer).__name__} is not a fast tokenizer; "
                "use a model with a tokenizer.json"
            )
        self.secret = f"x{secrets.token_hex(8)}"
        self._tokenizer = tokenizer
        self._marks = re.compile(f"{self.secret}m(\\d+)e")

    def mark(self, index: int) -> str:
        return f"{self.secret}m{index}e"

    def text(
        self, roles: Sequence[Role], *, left: str = "", right: str = "", speak: bool = True
    ) -> str:
        """A conversation of marks, each between `left` and `right`."""
        messages = [
            {"role": role, "content": f"{left}{self.mark(index)}{right}"}
            for index, role in enumerate(roles)
        ]
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    messages, tokenize=False, add_generation_prompt=speak, enable_thinking=False
                )
            )
        except Exception as error:  # a template is a program: it may raise anything
            shown = ", ".join(roles[:6]) + (", ..." if len(roles) > 6 else "")
            reason = " ".join(str(error).split())
            raise ConfigError(
                f"the chat template of {self.name} does not take messages in this order: "
                f"{shown or 'none at all'} ({reason})"
            ) from error

    def accepts(self, *roles: Role) -> bool:
        """Whether the template takes messages in these roles, and shows them all."""
        try:
            return len(set(self.order(self.text(roles)))) == len(roles)
        except ConfigError:
            return False

    def tail(self, question: Sequence[Role], *, speak: bool = True) -> str:
        """What follows the text of an assistant (mark 1) who is then asked a question."""
        whole = self.text(("user", "assistant", *question), speak=speak)
        return whole.partition(self.mark(1))[2]

    def order(self, text: str) -> list[int]:
        """The marks of a text."""
        return [int(index) for index in self._marks.findall(text)]

    def literals(self, text: str) -> list[str]:
        """What stands before, between and after the marks of a text."""
        return self._marks.split(text)[::2]

    def shift(self, text: str, by: int) -> str:
        return self._marks.sub(lambda found: self.mark(int(found[1]) + by), text)

    def shape(self, roles: tuple[Role, ...]) -> tuple[list[str], list[_Slot]]:
        bare = self.text(roles)
        literals = self.literals(bare)
        thought = f"<think>\n{self.secret}\n</think>\n\n"
        thinks = self.literals(self.text(roles, left=thought))
        lefts = {pad: self.literals(self.text(roles, left=pad)) for pad in " \n"}
        rights = {pad: self.literals(self.text(roles, right=pad)) for pad in " \n"}
        slots = [
            _Slot(
                index,
                _stripped(pad for pad in lefts if lefts[pad][at] == literals[at]),
                _stripped(pad for pad in rights if rights[pad][at + 1] == literals[at + 1]),
                self.secret not in thinks[at],
            )
            for at, index in enumerate(self.order(bare))
        ]
        return literals, slots


def _stripped(pads: Iterable[str]) -> str | None:
    gone = "".join(pads)
    return None if gone == " \n" else gone


def _is_plain(content: str, written: str) -> bool:
    """Whether an added token is mere text: white space, or a word the template does not write."""
    if re.fullmatch(r"[\s▁]+", content):
        return True
    return bool(re.fullmatch(r"[\w\s▁]+", content)) and content not in written


def _renamed(plan: dict[str, Any], names: Mapping[str, str], used: set[str | None]) -> Any:
    """A tokenizer in which control tokens have other names, and the same ids."""
    plan |= {"truncation": None, "padding": None, "post_processor": None}
    plan["added_tokens"] = [
        token | {"content": names.get(token["content"], token["content"])}
        for token in plan["added_tokens"]
    ]
    model = plan["model"]
    vocab = model["vocab"]
    if isinstance(vocab, dict):
        model["vocab"] = {names.get(word, word): token for word, token in vocab.items()}
    else:
        model["vocab"] = [[names.get(word, word), score] for word, score in vocab]
    if "merges" in model:
        model["merges"] = [
            [left, right]
            for left, right in model["merges"]
            if left not in names and right not in names and left + right not in names
        ]
    unknown = model.get("unk_token")
    if unknown in names:
        # An unknown character must not end a turn: it is left out instead.
        drops = model["type"] == "BPE" and unknown in used
        model["unk_token"] = None if drops else names[unknown]
    return need("tokenizers").Tokenizer.from_str(json.dumps(plan))
