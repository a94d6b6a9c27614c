"""The wire: one server, asked by many at once, with patience for what passes by itself."""

import asyncio
import contextlib
import json
import logging
import math
import random
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2

from rostra.engines.address import Address
from rostra.errors import ConfigError, EngineError, EngineUnavailable

log = logging.getLogger(__name__)

BUSY = frozenset({408, 425, 429, 502, 503, 504, 529})
"""Answers of a server that is there and has no time."""
FAULTS = 2
"""How often a server may fail at one request before the request is taken for the cause."""
PROBE_SECONDS = 10.0
LARGEST = 64 * 2**20
"""Bytes of an answer; one without an end would fill the memory."""
TOLD = 300
"""Characters of a server's own words in an error."""
SECRET = 8
"""Characters of a key that is one. Shorter ones are words, such as EMPTY."""


class Refused(EngineError):
    """The server understood the request and does not want it."""

    def __init__(self, message: str, told: str, parameter: str) -> None:
        super().__init__(message)
        self.told = told
        self.parameter = parameter
        """The one that is to blame, where the server names it."""


@dataclass(frozen=True, slots=True)
class _Line:
    """What one event loop has of the server."""

    client: httpx2.AsyncClient
    free: asyncio.Semaphore


@dataclass(frozen=True, slots=True)
class _Answer:
    """What came back, whatever it is."""

    status: int
    headers: httpx2.Headers
    body: bytes


class Endpoint:
    """A server that speaks the OpenAI API."""

    def __init__(
        self, address: Address, *, lanes: int = 64, patience: float = 60.0, timeout: float = 600.0
    ) -> None:
        """`lanes` requests at once; more wait here. A server that is away or busy is asked again
        for `patience` seconds. A reply may take `timeout` seconds."""
        try:
            httpx2.URL(address.url)
        except httpx2.InvalidURL as error:
            raise ConfigError(f"{address.url}: not an address: {error}") from None
        self.address = address
        self._key = address.key()
        if self._key and not (address.secure or address.near):
            log.warning("%s: our key goes there for all on the way to read; use https://", address)
        self._lanes = lanes
        self._patience = patience
        self._timeout = timeout
        self._lines: dict[asyncio.AbstractEventLoop, _Line] = {}
        self._heard = -math.inf
        """When it last did what it was asked."""
        self._away = False
        """Whether somebody has been told that it is away."""

    async def reach(self) -> None:
        """Raises at once where nobody is there, or the key is wrong."""
        try:
            answer = await self._models()
        except (httpx2.TransportError, TimeoutError) as error:
            raise EngineUnavailable(self._gone(error)) from None
        except EngineError:
            return  # it talks nonsense, but it is there
        if answer.status in (401, 403):
            raise self._locked(answer)

    async def served(self) -> list[str]:
        """The models that the server names; none where it does not say."""
        try:
            data = _data((await self._models()).body)
            return [self.plain(str(model["id"])) for model in data["data"]]
        except (httpx2.TransportError, TimeoutError, EngineError, KeyError, TypeError):
            return []

    async def ask(self, path: str, body: Mapping[str, Any]) -> Any:
        """What the server answers, as plain data."""
        line = await self._line()
        content = json.dumps(body).encode()
        async with line.free:
            answer = await self._answered(path, content)
        data = _data(answer.body)
        if data is None:
            raise self._strange(answer.headers.get("content-type", "of no kind"))
        return data

    def plain(self, said: str) -> str:
        """What a server says, in one short line that is safe to print, and without our key."""
        if self._key:
            said = said.replace(self._key, "...")
        said = "".join(c if c.isprintable() else " " for c in said[: 4 * TOLD])
        said = " ".join(said.split())
        return (said[:TOLD] + "...") if len(said) > TOLD else said

    def without_key(self, said: str) -> str:
        """A reply that can be kept, should the server have put our key into it."""
        if self._key and len(self._key) >= SECRET:
            return said.replace(self._key, "...")
        return said

    async def _models(self) -> _Answer:
        seconds = min(PROBE_SECONDS, self._timeout)
        # A connection that was closed in between is no news.
        with contextlib.suppress(httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError):
            return await self._exchange("GET", "/models", None, seconds)
        return await self._exchange("GET", "/models", None, seconds)

    async def _answered(self, path: str, content: bytes) -> _Answer:
        """The first answer that is one, however often it takes. Patience begins with the first
        trouble: a reply may break off that was long on its way."""
        attempt = faults = 0
        since: float | None = None
        while True:
            wait = _pause(attempt)
            attempt += 1
            try:
                answer = await self._exchange("POST", path, content, self._timeout)
            except TimeoutError:
                raise EngineError(
                    f"{self.address.url}: no reply within {self._timeout:g} s"
                ) from None
            except httpx2.TransportError as error:
                trouble = self._gone(error)
            else:
                if 200 <= answer.status < 300:
                    self._away = False
                    self._heard = time.monotonic()
                    return answer
                if answer.status in BUSY:
                    trouble = (
                        f"{self.address.url}: has no time for us ({answer.status}: "
                        f"{self._told(answer)}); ask for less at once with model.lanes, or try "
                        "later."
                    )
                    asked = _asked_to_wait(answer)
                    # Not all at the same moment, and not at once again.
                    wait = asked + _pause(0) if asked else wait
                elif answer.status >= 500 and faults < FAULTS:
                    faults += 1
                    await asyncio.sleep(wait)
                    continue
                else:
                    raise await self._refusal(answer)
            now = time.monotonic()
            since = now if since is None else since
            if now + wait > since + self._patience:
                # Where others were served meanwhile, it is not gone.
                raise (EngineUnavailable if self._heard < since else EngineError)(trouble)
            # A connection that was closed in between is no news; a second failure is.
            if attempt > 1 and not self._away:
                self._away = True
                log.warning("%s Trying again for up to %.0f s.", trouble, self._patience)
            await asyncio.sleep(wait)

    async def _exchange(
        self, method: str, path: str, content: bytes | None, seconds: float
    ) -> _Answer:
        """One request and all of its answer, which is given neither time nor room without end."""
        line = await self._line()
        url = self.address.url + path
        body = bytearray()
        try:
            async with (
                asyncio.timeout(seconds),
                line.client.stream(method, url, content=content) as answer,
                contextlib.aclosing(answer.aiter_bytes()) as parts,
            ):
                async for part in parts:
                    body += part
                    if len(body) > LARGEST:
                        raise self._strange(f"more than {LARGEST >> 20} MB")
        except httpx2.DecodingError:
            raise self._strange("compressed wrongly") from None
        return _Answer(answer.status_code, answer.headers, bytes(body))

    async def _refusal(self, answer: _Answer) -> Exception:
        """What an answer means that will not change by asking again."""
        url, told = self.address.url, self._told(answer)
        if answer.status in (401, 403):
            return self._locked(answer)
        if 300 <= answer.status < 400:
            return ConfigError(f"{url}: sends us on to another address; give that one")
        if answer.status in (404, 405):
            served = await self.served()
            known = f" (it serves: {', '.join(served[:8])})" if served else ""
            return ConfigError(
                f"{self.address}: there is no such model, or the address is not one up to and with "
                f"/v1{known}: {told}"
            )
        return Refused(f"{url}: {answer.status}: {told}", told, _parameter(answer))

    def _locked(self, answer: _Answer) -> ConfigError:
        names = " or ".join(self.address.key_variables)
        found = "the key is refused" if self._key else "a key is needed"
        return ConfigError(
            f"{self.address.url}: {found} ({answer.status}): {self._told(answer)}; put it "
            f"into the variable {names} of the environment"
        )

    def _gone(self, error: Exception) -> str:
        late = isinstance(error, httpx2.TimeoutException | TimeoutError)
        why = "not in time" if late else self.plain(str(error)) or type(error).__name__
        return f"{self.address.url} does not answer ({why}). Is the server up?"

    def _strange(self, what: str) -> EngineError:
        return EngineError(
            f"{self.address.url}: answers, but not as an OpenAI-compatible server does "
            f"({self.plain(what)})"
        )

    def _told(self, answer: _Answer) -> str:
        return self.plain(_message(answer)) or "no reason given"

    async def _line(self) -> _Line:
        """The connections of this event loop. They are closed with it: an event loop closes the
        asynchronous generators that it has begun."""
        loop = asyncio.get_running_loop()
        if loop not in self._lines:
            self._lines = {old: line for old, line in self._lines.items() if not old.is_closed()}
            client = self._client()
            _OPENED[client] = opened = _opened(client, self._lanes)
            self._lines[loop] = await anext(opened)
        return self._lines[loop]

    def _client(self) -> httpx2.AsyncClient:
        key = {"authorization": f"Bearer {self._key}"} if self._key else {}
        # A proxy reads what is not encrypted, and is another host.
        proxied = not self.address.local and (self.address.secure or not self._key)
        try:
            return httpx2.AsyncClient(
                headers={"content-type": "application/json", **key},
                timeout=httpx2.Timeout(None, connect=PROBE_SECONDS),
                limits=httpx2.Limits(
                    max_connections=self._lanes + 1, max_keepalive_connections=self._lanes
                ),
                trust_env=proxied,
            )
        except (ValueError, ImportError, OSError, httpx2.InvalidURL):
            # What is wrong with a proxy may be told with its password.
            raise ConfigError(
                f"{self.address.url}: the environment names a proxy or certificates that cannot be "
                "used; see to HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and SSL_CERT_FILE"
            ) from None


_OPENED: dict[httpx2.AsyncClient, AsyncGenerator[_Line, None]] = {}
"""Kept for their event loops to close, even where the endpoint is forgotten before."""


async def _opened(client: httpx2.AsyncClient, lanes: int) -> AsyncGenerator[_Line, None]:
    try:
        async with client:
            yield _Line(client, asyncio.Semaphore(lanes))
    finally:
        del _OPENED[client]


def _pause(attempt: int) -> float:
    """Seconds until the next attempt. Many ask at once, and should not all come back at once."""
    return float(min(0.25 * 2 ** min(attempt, 5), 8.0) * (0.5 + random.random()))


def _asked_to_wait(answer: _Answer) -> float:
    """What the server asks us to wait, in seconds; 0 where it does not say."""
    try:
        wait = float(answer.headers.get("retry-after", ""))
    except ValueError:
        return 0.0
    return wait if math.isfinite(wait) and wait > 0 else 0.0


def _data(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _error(answer: _Answer) -> Mapping[str, Any]:
    """The error in an answer. OpenAI nests it, others do not, and each has its own words."""
    data = _data(answer.body)
    if isinstance(data, Mapping):
        inner = data.get("error")
        return inner if isinstance(inner, Mapping) else data
    return {}


def _message(answer: _Answer) -> str:
    found = _error(answer)
    said = next((found[k] for k in ("message", "error", "detail") if found.get(k)), None)
    if isinstance(said, str):
        return said
    html = "html" in answer.headers.get("content-type", "html")
    return "" if html and said is None else answer.body.decode("utf-8", "replace")


def _parameter(answer: _Answer) -> str:
    found = _error(answer).get("param")
    return found if isinstance(found, str) else ""
