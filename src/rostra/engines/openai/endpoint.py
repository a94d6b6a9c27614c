"""The wire: one server, asked by many at once, with patience for what passes by itself."""

import asyncio
import json
import logging
import math
import random
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import httpx2

from rostra.engines.address import Address
from rostra.errors import ConfigError, EngineError, EngineUnavailable

log = logging.getLogger(__name__)

BUSY = frozenset({408, 425, 429, 502, 503, 504, 529})
"""Answers of a server that is there and has no time."""
FAULTS = 2
"""How often a server may fail at one request before the request is taken for the cause."""
PROBE_SECONDS = 10.0
TOLD = 300
"""Characters of a server's own words in an error."""


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


class Endpoint:
    """A server that speaks the OpenAI API."""

    def __init__(
        self, address: Address, *, lanes: int = 64, patience: float = 60.0, timeout: float = 600.0
    ) -> None:
        """`lanes` requests at once; more wait here. A server that is away or busy is asked again
        for `patience` seconds. A reply may take `timeout` seconds."""
        self.address = address
        self._key = address.key()
        self._lanes = lanes
        self._patience = patience
        self._timeout = timeout
        self._lines: WeakKeyDictionary[
            asyncio.AbstractEventLoop, tuple[AsyncGenerator[_Line, None], _Line]
        ] = WeakKeyDictionary()
        self._away = False
        """Whether somebody has been told that it is away."""

    async def reach(self) -> None:
        """Raises at once where nobody is there, or the key is wrong."""
        line = await self._line()
        try:
            answer = await line.client.get(f"{self.address.url}/models", timeout=PROBE_SECONDS)
        except httpx2.TransportError as error:
            raise self._gone(_why(error)) from None
        if answer.status_code in (401, 403):
            raise self._locked(answer)

    async def served(self) -> list[str]:
        """The models that the server names; none where it does not say."""
        line = await self._line()
        try:
            answer = await line.client.get(f"{self.address.url}/models", timeout=PROBE_SECONDS)
            return [str(model["id"]) for model in answer.json()["data"]]
        except (httpx2.TransportError, ValueError, KeyError, TypeError):
            return []

    async def ask(self, path: str, body: Mapping[str, Any]) -> Any:
        """What the server answers, as plain data."""
        line = await self._line()
        content = json.dumps(body).encode()
        async with line.free:
            return _read(await self._answered(line.client, path, content), self.address)

    async def _answered(
        self, client: httpx2.AsyncClient, path: str, content: bytes
    ) -> httpx2.Response:
        """The first answer that is one, however often it takes."""
        until = time.monotonic() + self._patience
        attempt = faults = 0
        while True:
            wait = _pause(attempt)
            attempt += 1
            try:
                answer = await client.post(self.address.url + path, content=content)
            except httpx2.ReadTimeout:
                raise EngineError(
                    f"{self.address.url}: no reply within {self._timeout:.0f} s"
                ) from None
            except httpx2.TransportError as error:
                trouble = self._gone(_why(error))
            else:
                status = answer.status_code
                if answer.is_success:
                    self._away = False
                    return answer
                if status in BUSY:
                    trouble = EngineUnavailable(
                        f"{self.address.url}: has no time for us ({status}: {self._told(answer)}); "
                        "ask for less at once with model.lanes, or try later."
                    )
                    wait = _asked_to_wait(answer) or wait
                elif status >= 500 and faults < FAULTS:
                    faults += 1
                    await asyncio.sleep(wait)
                    continue
                else:
                    raise await self._refusal(answer)
            if time.monotonic() + wait > until:
                raise trouble
            # A connection that was closed in between is no news; a second failure is.
            if attempt > 1 and not self._away:
                self._away = True
                log.warning("%s Trying again for up to %.0f s.", trouble, self._patience)
            await asyncio.sleep(wait)

    async def _refusal(self, answer: httpx2.Response) -> Exception:
        """What an answer means that will not change by asking again."""
        url, status = self.address.url, answer.status_code
        told = self._told(answer)
        if status in (401, 403):
            return self._locked(answer)
        if answer.is_redirect:
            return ConfigError(f"{url}: sends us on to another address; give that one")
        if status in (404, 405):
            served = await self.served()
            known = f" (it serves: {', '.join(served[:8])})" if served else ""
            return ConfigError(
                f"{self.address}: there is no such model, or the address is not one up to and with "
                f"/v1{known}: {told}"
            )
        return Refused(f"{url}: {status}: {told}", told, _parameter(answer))

    def _locked(self, answer: httpx2.Response) -> ConfigError:
        names = " or ".join(self.address.key_variables)
        found = "the key is refused" if self._key else "a key is needed"
        return ConfigError(
            f"{self.address.url}: {found} ({answer.status_code}): {self._told(answer)}; put it "
            f"into the variable {names} of the environment"
        )

    def _gone(self, why: str) -> EngineUnavailable:
        return EngineUnavailable(f"{self.address.url} does not answer ({why}). Is the server up?")

    def _told(self, answer: httpx2.Response) -> str:
        """What a server says, in one line that is safe to print, and without our key."""
        said = _message(answer)
        if self._key:
            said = said.replace(self._key, "...")
        said = "".join(c if c.isprintable() else " " for c in said)
        said = " ".join(said.split())
        return (said[:TOLD] + "...") if len(said) > TOLD else said or "no reason given"

    async def _line(self) -> _Line:
        """The connections of this event loop. They are closed with it: an event loop closes the
        asynchronous generators that it has begun."""
        loop = asyncio.get_running_loop()
        if loop not in self._lines:
            opened = self._open()
            self._lines[loop] = (opened, await anext(opened))
        return self._lines[loop][1]

    async def _open(self) -> AsyncGenerator[_Line, None]:
        client = httpx2.AsyncClient(
            headers={"content-type": "application/json", **self._authorization()},
            timeout=httpx2.Timeout(self._timeout, connect=PROBE_SECONDS, pool=None),
            limits=httpx2.Limits(
                max_connections=self._lanes + 1, max_keepalive_connections=self._lanes
            ),
            trust_env=not self.address.local,
        )
        async with client:
            yield _Line(client, asyncio.Semaphore(self._lanes))

    def _authorization(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._key}"} if self._key else {}


def _read(answer: httpx2.Response, address: Address) -> Any:
    try:
        return answer.json()
    except (ValueError, RecursionError):
        kind = answer.headers.get("content-type", "of no kind")
        raise EngineError(
            f"{address.url}: answers, but not as an OpenAI-compatible server does ({kind})"
        ) from None


def _why(error: httpx2.TransportError) -> str:
    if isinstance(error, httpx2.TimeoutException):
        return "no connection in time"
    return str(error) or type(error).__name__


def _pause(attempt: int) -> float:
    """Seconds until the next attempt. Many ask at once, and should not all come back at once."""
    return float(min(0.25 * 2 ** min(attempt, 5), 8.0) * (0.5 + random.random()))


def _asked_to_wait(answer: httpx2.Response) -> float:
    """What the server asks us to wait, in seconds; 0 where it does not say."""
    try:
        wait = float(answer.headers.get("retry-after", ""))
    except ValueError:
        return 0.0
    return wait if math.isfinite(wait) and wait > 0 else 0.0


def _body(answer: httpx2.Response) -> Any:
    try:
        return answer.json()
    except (ValueError, RecursionError):
        return None


def _error(answer: httpx2.Response) -> Mapping[str, Any]:
    """The error in an answer. OpenAI nests it, others do not, and each has its own words."""
    body = _body(answer)
    if isinstance(body, Mapping):
        inner = body.get("error")
        return inner if isinstance(inner, Mapping) else body
    return {}


def _message(answer: httpx2.Response) -> str:
    found = _error(answer)
    said = next((found[k] for k in ("message", "error", "detail") if found.get(k)), None)
    if said is None:
        plain = "html" not in answer.headers.get("content-type", "html")
        return answer.text[: 4 * TOLD] if plain else ""
    return said if isinstance(said, str) else json.dumps(said)


def _parameter(answer: httpx2.Response) -> str:
    found = _error(answer).get("param")
    return found if isinstance(found, str) else ""
