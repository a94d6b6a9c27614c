"""Where a model is served, written as one word: http://127.0.0.1:8000/v1#qwen3.

Keys are never part of an address. They come from the environment, each from a variable that is
named after the host it is for, so that no key is ever sent to another host.
"""

import os
import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

from rostra.errors import ConfigError

OPENAI_HOST = "api.openai.com"
OPENAI_KEY = "OPENAI_API_KEY"
DEFAULT_PATH = "/v1"
EXAMPLE = "http://127.0.0.1:8000/v1#qwen3"
NEAR = (".localhost", ".local", ".lan", ".internal", ".home.arpa")
"""How names end that mean nothing on the internet."""

_LABEL = r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST = re.compile(rf"(?!.{{254}}){_LABEL}(\.{_LABEL})*\.?")
_PATH = re.compile(r"[!-~]{0,1000}")
_KEY = re.compile(r"[!-~]+")
_SIGNS = {".": "_", "-": "__"}


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
    def secure(self) -> bool:
        """Whether nobody on the way can read along."""
        return self.url.startswith("https://")

    @property
    def local(self) -> bool:
        """Whether it is on this machine, where no proxy belongs in between."""
        number = _number(self.host)
        if number is None:
            return self.host == "localhost" or self.host.endswith(".localhost")
        return number.is_loopback or number.is_unspecified

    @property
    def near(self) -> bool:
        """Whether it is on this machine or in a network of one's own, going by its name."""
        number = _number(self.host)
        if number is None:
            return "." not in self.host or self.host.endswith(NEAR)
        return not number.is_global

    @property
    def key_variables(self) -> tuple[str, ...]:
        """The variables of the environment that may hold its key, the first one first. A dot
        becomes one _ and a dash two, so that no two hosts share one."""
        signs = re.sub(r"[^A-Z0-9]", lambda s: _SIGNS.get(s[0], "___"), self.host.upper())
        own = f"ROSTRA_KEY_{signs}"
        return (own, OPENAI_KEY) if self.host == OPENAI_HOST and self.secure else (own,)

    def key(self) -> str | None:
        """The key for this host, if there is one."""
        for name in self.key_variables:
            if key := os.environ.get(name, "").strip():
                if not _KEY.fullmatch(key) or '"' in key or "\\" in key:
                    raise ConfigError(f"{name}: holds characters that no key has")
                return key
        return None


def is_address(text: str) -> bool:
    """Whether a model is named by where it is served."""
    return text.lower().startswith(("http://", "https://"))


def read_address(text: str) -> Address:
    """The parts of an address. Refuses one with a secret in it without repeating it."""
    secret = any(sign in text.partition("#")[0] for sign in "@?")
    if not is_address(text):
        what = "this" if secret else repr(text)
        raise ConfigError(f"{what} is not the address of a server, as in {EXAMPLE}")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        # Its message repeats what may be half of a password with a / in it.
        raise ConfigError(f"not an address, as in {EXAMPLE}") from None
    if secret:
        raise ConfigError(
            "an address of a server holds no user, password, key or query: put the key into a "
            f"variable of the environment ({Address('https://', host, '').key_variables[0]})"
        )
    number = _number(host)
    if not (number or _HOST.fullmatch(host)):
        raise ConfigError(f"{text!r} names no host; an address looks like {EXAMPLE}")
    path = parts.path.rstrip("/") or DEFAULT_PATH
    if not (_PATH.fullmatch(path) and parts.fragment.isprintable()):
        raise ConfigError(f"{text!r} holds characters that no address has, as in {EXAMPLE}")
    place = f"[{host}]" if isinstance(number, IPv6Address) else host
    place += f":{port}" if port is not None else ""
    return Address(f"{parts.scheme}://{place}{path}", host, parts.fragment)


def _number(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return None if "%" in host else ip_address(host)
    except ValueError:
        return None
