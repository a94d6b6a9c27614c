"""Where a model is served, written as one word: http://127.0.0.1:8000/v1#qwen3.

Keys are never part of an address. They come from the environment, each from a variable that is
named after the host it is for, so that no key is ever sent to another host.
"""

import os
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from rostra.errors import ConfigError

OPENAI_HOST = "api.openai.com"
OPENAI_KEY = "OPENAI_API_KEY"
DEFAULT_PATH = "/v1"
EXAMPLE = "http://127.0.0.1:8000/v1#qwen3"

_HOST = re.compile(r"[\w.:-]+")


@dataclass(frozen=True, slots=True)
class Address:
    """A server and one of its models."""

    url: str
    """Up to and with /v1, with no slash at the end."""
    host: str
    model: str
    """As the server names it; empty where the address does not say."""

    def __str__(self) -> str:
        return f"{self.url}#{self.model}"

    @property
    def local(self) -> bool:
        """Whether it is on this machine, where no proxy belongs in between."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    @property
    def key_variables(self) -> tuple[str, ...]:
        """The variables of the environment that may hold its key, the first one first."""
        own = "ROSTRA_KEY_" + re.sub(r"[^A-Z0-9]", "_", self.host.upper())
        secure = self.url.startswith("https://")
        return (own, OPENAI_KEY) if self.host == OPENAI_HOST and secure else (own,)

    def key(self) -> str | None:
        """The key for this host, if there is one."""
        for name in self.key_variables:
            if key := os.environ.get(name, "").strip():
                if not (key.isascii() and key.isprintable()) or " " in key:
                    raise ConfigError(f"{name}: holds characters that no key has")
                return key
        return None


def is_address(text: str) -> bool:
    """Whether a model is named by where it is served."""
    return text.lower().startswith(("http://", "https://"))


def read_address(text: str) -> Address:
    """The parts of an address. Refuses one with a secret in it without repeating it."""
    if not is_address(text):
        raise ConfigError(f"{text!r} is not the address of a server, as in {EXAMPLE}")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"not an address, as in {EXAMPLE}: {error}") from None
    if parts.username is not None or parts.password is not None or parts.query:
        raise ConfigError(
            "an address of a server holds no user, password, key or query: put the key into a "
            f"variable of the environment ({Address('https://', host or '', '').key_variables[0]})"
        )
    if not host or not _HOST.fullmatch(host):
        raise ConfigError(f"{text!r} names no host; an address looks like {EXAMPLE}")
    place = f"[{host}]" if ":" in host else host
    place += f":{port}" if port is not None else ""
    path = parts.path.rstrip("/") or DEFAULT_PATH
    return Address(f"{parts.scheme}://{place}{path}", host, parts.fragment)
