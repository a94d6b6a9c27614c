"""A model behind an OpenAI-compatible endpoint, as an engine that samples.

A server takes conversations, not tokens, and has a tokenizer of its own that we do not know. So
prompts and replies are bytes here, which carry any conversation there and back, and the server's
own count of tokens goes with every reply as its usage. It says nothing of log-probabilities that
training could use, and they are all 0: nothing that it says is trained on.
"""

import asyncio
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from rostra.engines.address import Address, read_address
from rostra.engines.arrays import FloatArray, IntArray
from rostra.engines.bytechat import ByteChat, conversation, decode
from rostra.engines.chat import Message
from rostra.engines.openai.endpoint import Endpoint, Refused
from rostra.engines.sampling import Completion, SamplingParams, StopReason, Usage
from rostra.errors import ConfigError, EngineError, RostraError
from rostra.seeds import derive

log = logging.getLogger(__name__)

OPTIONAL = {
    "max_tokens": "max_completion_tokens is used instead",
    "temperature": "every seat speaks at the temperature of the server",
    "top_p": "the server's own is used",
    "top_k": "the server's own is used",
    "stop": "replies are cut off here, and cost what they were before",
    "seed": "replies will not be the same another time",
}
"""What a server may refuse to be told, and what follows."""
SYSTEM = "system"
_WONT = re.compile(r"support|unexpected|unknown|unrecogni|permitted|allowed|extra", re.IGNORECASE)
_NO_SYSTEM = re.compile(
    r"system role|only user and assistant|support 'system'|must alternate", re.IGNORECASE
)
_BYTES_A_TOKEN = 4


class _Said(BaseModel):
    content: str | None = None


class _Choice(BaseModel):
    message: _Said
    finish_reason: str | None = None
    stop_reason: Any = None
    """vLLM: the stop string that it stopped at, and left out of the text."""


class _Tokens(BaseModel):
    prompt_tokens: int = Field(ge=0, lt=2**31)
    completion_tokens: int = Field(ge=0, lt=2**31)


class _Answer(BaseModel):
    choices: list[_Choice] = Field(min_length=1)
    usage: Any = None


@dataclass(slots=True)
class Spent:
    """What the server has done for us so far, in its tokens."""

    read: int = 0
    sampled: int = 0


class OpenAIEngine:
    """A model that somebody serves: vLLM, llama.cpp, Ollama, `transformers serve`, a company.

    `address` is the server up to and with /v1 and the model after a #:
    http://127.0.0.1:8000/v1#qwen3. Keys come from the environment alone.
    """

    name = "openai"

    def __init__(
        self,
        address: str | Address,
        *,
        lanes: int = 64,
        patience: float = 60.0,
        timeout: float = 600.0,
    ) -> None:
        """`lanes` requests at once. A server that is away or busy is asked again for `patience`
        seconds; a reply may take `timeout` seconds."""
        if lanes < 1:
            raise ConfigError(f"lanes = {lanes}: must be at least 1")
        self.address = read_address(address) if isinstance(address, str) else address
        self.endpoint = Endpoint(self.address, lanes=lanes, patience=patience, timeout=timeout)
        self.chat = ByteChat()
        self.counts = Spent()
        self.refused: set[str] = set()
        """What the server does not want to be told."""

    async def sampler(self) -> "OpenAISampler":
        """Raises at once where the server is not there."""
        if not self.address.model:
            raise ConfigError(await self._unnamed())
        await self.endpoint.reach()
        return OpenAISampler(self)

    async def policy(self) -> "OpenAISampler":
        return await self.sampler()

    async def trainer(self) -> NoReturn:
        raise ConfigError(
            f"{self.address}: a model behind an OpenAI-compatible endpoint can play and judge, but "
            'not be trained; train with model.engine = "local"'
        )

    async def _unnamed(self) -> str:
        await self.endpoint.reach()
        served = await self.endpoint.served()
        known = f" (it serves: {', '.join(served[:8])})" if served else ""
        example = f"{self.address.url}#{served[0] if served else 'MODEL'}"
        return f"{self.address.url}: name the model after a #, as in {example}{known}"


class OpenAISampler:
    """Samples by asking."""

    def __init__(self, engine: OpenAIEngine) -> None:
        self._engine = engine

    async def sample(
        self, prompt: IntArray, n: int, params: SamplingParams
    ) -> Sequence[Completion]:
        """n replies, each asked for by itself: not every server takes more at once."""
        if any(isinstance(stop, int) for stop in params.stop):
            raise ConfigError(
                f"stop = {list(params.stop)}: the tokens of {self._engine.address} are not ours; "
                "use strings"
            )
        asked = conversation(prompt)
        if n == 1:
            return [await self._reply(asked, params, params.seed, len(prompt))]
        seeds = [derive(params.seed, i) for i in range(n)]
        tasks = [
            asyncio.ensure_future(self._reply(asked, params, seed, len(prompt))) for seed in seeds
        ]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def score(self, tokens: IntArray, start: int) -> FloatArray:
        raise ConfigError(
            f"{self._engine.address}: an OpenAI-compatible endpoint does not say how likely given "
            "words are; use the local engine where that is needed"
        )

    async def _reply(
        self, asked: Sequence[Message], params: SamplingParams, seed: int, size: int
    ) -> Completion:
        engine = self._engine
        while True:
            body = _request(engine.address.model, asked, params, seed, engine.refused)
            try:
                data = await engine.endpoint.ask("/chat/completions", body)
                break
            except Refused as refusal:
                if not self._learned(refusal, body):
                    raise self._final(refusal) from None
        try:
            answer = _Answer.model_validate(data)
        except ValidationError as error:
            where = ".".join(map(str, error.errors()[0]["loc"]))
            raise EngineError(
                f"{engine.address.url}: an answer without what an OpenAI-compatible server sends "
                f"({where or 'anything'}: {error.errors()[0]['msg']})"
            ) from None
        completion = self._completion(answer, params, size)
        assert completion.usage is not None
        engine.counts.read += completion.usage.read
        engine.counts.sampled += completion.usage.sampled
        return completion

    def _final(self, refusal: Refused) -> RostraError:
        """What a refusal means: one of the model it is about ends everything."""
        model = self._engine.address.model
        if refusal.parameter == "model" or repr(model) in refusal.told:
            return ConfigError(f"{self._engine.address}: no such model: {refusal.told}")
        return refusal

    def _learned(self, refusal: Refused, body: dict[str, Any]) -> bool:
        """Whether the server refused something that it can do without; then it is not told again.
        Somebody else may have found out meanwhile."""
        engine = self._engine
        found = next((name for name in OPTIONAL if name in body and _blames(refusal, name)), None)
        why = OPTIONAL.get(found or "")
        if found is None and any(said["role"] == SYSTEM for said in body["messages"][:1]):
            if not _NO_SYSTEM.search(refusal.told):
                return False
            found, why = SYSTEM, "what it says goes before the first message"
        if found is None:
            return False
        if found not in engine.refused:
            engine.refused.add(found)
            what = "system message" if found == SYSTEM else found
            log.warning("%s takes no %s: %s", engine.address, what, why)
        return True

    def _completion(self, answer: _Answer, params: SamplingParams, size: int) -> Completion:
        choice = answer.choices[0]
        reason = self._stop_reason(choice)
        text = self._engine.endpoint.without_key(choice.message.content or "")
        stops = [stop for stop in params.stop if isinstance(stop, str)]
        if choice.stop_reason in stops:
            text += str(choice.stop_reason)  # it was sampled, and taken away
        cuts = [at + len(stop) for stop in stops if (at := text.find(stop)) >= 0]
        if cuts:
            text, reason = text[: min(cuts)], "stop"
        said = self._engine.chat.reply(text, end=reason == "stop" and not cuts)
        silent = np.zeros(len(said.tokens), np.float32)
        usage = self._usage(answer.usage, size, len(said.tokens))
        heard = decode(said.tokens)
        return Completion(heard.text, said.tokens, silent, heard.starts, reason, usage=usage)

    def _stop_reason(self, choice: _Choice) -> StopReason:
        match choice.finish_reason:
            case "stop" | "stop_sequence" | "eos" | "eos_token" | "end_turn" | None:
                return "stop"
            case "length" | "max_tokens":
                return "length"
            case other:
                why = self._engine.endpoint.plain(other)
                raise EngineError(f"{self._engine.address.url}: gave no reply ({why})")

    def _usage(self, counted: Any, read: int, said: int) -> Usage:
        try:
            tokens = _Tokens.model_validate(counted)
            return Usage(tokens.prompt_tokens, tokens.completion_tokens)
        except ValidationError:
            pass
        if "usage" not in self._engine.refused:
            self._engine.refused.add("usage")
            log.warning(
                "%s does not say how many tokens it takes: one for every %d bytes are counted",
                self._engine.address,
                _BYTES_A_TOKEN,
            )
        return Usage(read // _BYTES_A_TOKEN, -(-said // _BYTES_A_TOKEN))


def _request(
    model: str, asked: Sequence[Message], params: SamplingParams, seed: int, refused: set[str]
) -> dict[str, Any]:
    """A request, without what the server does not want to be told."""
    if SYSTEM in refused:
        asked = _folded(asked)
    limit = "max_completion_tokens" if "max_tokens" in refused else "max_tokens"
    wishes: dict[str, Any] = {
        limit: params.max_tokens,
        "temperature": params.temperature,
        "seed": seed % 2**31,  # some servers keep it in 32 bits
    }
    if params.top_p < 1:
        wishes["top_p"] = params.top_p
    if params.top_k:
        wishes["top_k"] = params.top_k
    if params.stop:
        wishes["stop"] = list(params.stop)
    messages = [{"role": message.role, "content": message.text} for message in asked]
    told = {name: wish for name, wish in wishes.items() if name not in refused}
    return {"model": model, "messages": messages, **told}


def _folded(asked: Sequence[Message]) -> Sequence[Message]:
    """The conversation with its system message at the beginning of what the user says."""
    if not asked or asked[0].role != SYSTEM:
        return asked
    first, rest = asked[0].text, asked[1:]
    if rest and rest[0].role == "user":
        first, rest = f"{first}\n\n{rest[0].text}", rest[1:]
    return [Message("user", first), *rest]


def _blames(refusal: Refused, name: str) -> bool:
    if not _WONT.search(refusal.told):
        return False
    if refusal.parameter:
        return refusal.parameter == name
    return bool(re.search(rf"\b{name}\b", refusal.told))
