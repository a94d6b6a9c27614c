"""Where a model is served, and which key is for it."""

import os
from collections.abc import Mapping

import httpx2
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from rostra.engines.address import Address, is_address, read_address
from rostra.errors import ConfigError

properties = settings(max_examples=150, deadline=None)


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("ROSTRA_KEY_") or name == "OPENAI_API_KEY":
            monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("text", "url", "host", "model"),
    [
        ("http://127.0.0.1:8000/v1#qwen3", "http://127.0.0.1:8000/v1", "127.0.0.1", "qwen3"),
        ("https://api.openai.com#gpt", "https://api.openai.com/v1", "api.openai.com", "gpt"),
        ("https://Host.Example/API/v1/", "https://host.example/API/v1", "host.example", ""),
        ("HTTP://localhost:80", "http://localhost:80/v1", "localhost", ""),
        ("http://[::1]:8000/#m", "http://[::1]:8000/v1", "::1", "m"),
        (
            "http://gpu_box/v1#org/model@main?x#y",
            "http://gpu_box/v1",
            "gpu_box",
            "org/model@main?x#y",
        ),
    ],
)
def test_an_address_is_a_server_and_a_model(text: str, url: str, host: str, model: str) -> None:
    assert is_address(text)
    assert read_address(text) == Address(url, host, model)


@pytest.mark.parametrize("text", ["smollm2", "org/model", "ftp://host/v1", "", "http:/host"])
def test_other_names_are_no_addresses(text: str) -> None:
    assert not is_address(text)
    with pytest.raises(ConfigError, match="is not the address of a server"):
        read_address(text)


@pytest.mark.parametrize(
    "text",
    [
        "http://",
        "http:///v1#m",
        "http://#m",
        "http://a b/v1",
        "http://a..b/v1",
        "http://-a.b/v1",
        "http://münchen.example/v1",
        f"http://{'a' * 64}.example/v1",
        "http://" + "a." * 127 + "ab/v1",
        "http://[fe80::1%25eth0]:80/v1",
    ],
)
def test_an_address_without_a_host_that_can_be_called_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="names no host"):
        read_address(text)


@pytest.mark.parametrize(
    "text", ["http://host:x/v1", "http://host:99999/v1", "http://[::1/v1", "http://::1/v1"]
)
def test_an_address_with_an_impossible_place_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not an address"):
        read_address(text)


@pytest.mark.parametrize(
    "text",
    ["http://h/a b", "http://h/\x00", "http://h/é", "http://h/v1#a\x1b[2J", "http://h/v1#\ud800"],
)
def test_an_address_holds_no_characters_that_do_something_to_a_terminal(text: str) -> None:
    with pytest.raises(ConfigError, match="characters that no address has") as caught:
        read_address(text)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "text",
    [
        "https://user:hunter2@host.example/v1#m",
        "https://hunter2@host.example/v1",
        "https://host.example/v1?api_key=hunter2#m",
        "https://host.example?hunter2",
        "https://user:hunter2/more@host.example/v1",
        "https://user:1/hunter2@host.example/v1",
        "https://user:hunter2#more@host.example/v1",
        "https://user:hunter2\u2100@host.example/v1",
        "ftp://user:hunter2@host.example",
        "host.example/v1?key=hunter2",
    ],
)
def test_an_address_with_a_secret_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_address(text)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_who_puts_a_key_into_an_address_is_told_where_it_belongs() -> None:
    with pytest.raises(ConfigError, match=r"ROSTRA_KEY_HOST_EXAMPLE"):
        read_address("https://user:pass@host.example/v1")


anything = st.text(st.characters(exclude_categories=()), max_size=20)
pieces = st.sampled_from(
    [
        "http://",
        "https://",
        "host",
        "127.0.0.1",
        "[::1]",
        ":80",
        "/v1",
        "/",
        "#",
        "@",
        "?",
        ".",
        "-",
    ]
)


@properties
@given(st.lists(pieces | anything, max_size=7).map("".join).map("http://".__add__))
@example("http://1-2-3-4")
def test_whatever_is_written_is_an_address_or_refused(text: str) -> None:
    try:
        address = read_address(text)
    except ConfigError as error:
        assert str(error).isprintable()
        return
    assert str(address).isprintable()
    assert read_address(str(address)) == address
    assert "@" not in address.url
    assert address.url.startswith(("http://", "https://"))


@properties
@given(st.lists(pieces | st.text("ab01._-:", max_size=6), max_size=6).map("".join))
def test_the_host_that_is_read_is_the_host_that_is_called(rest: str) -> None:
    try:
        address = read_address(f"http://{rest}")
        called = httpx2.URL(address.url).host
    except (ConfigError, httpx2.InvalidURL):
        assume(False)
    assert called == address.host


# This machine, and the next


@pytest.mark.parametrize(
    ("host", "local", "near"),
    [
        ("localhost", True, True),
        ("me.localhost", True, True),
        ("127.0.0.1", True, True),
        ("127.8.9.1", True, True),
        ("[::1]", True, True),
        ("0.0.0.0", True, True),
        ("192.168.1.5", False, True),
        ("10.0.0.5", False, True),
        ("100.64.0.7", False, True),
        ("gpu-box", False, True),
        ("gpu.lan", False, True),
        ("8.8.8.8", False, False),
        ("[2606:4700::1111]", False, False),
        ("api.example.com", False, False),
        ("127.0.0.1.example.com", False, False),
        ("127.example.com", False, False),
        ("localhost.example.com", False, False),
        ("lan", False, True),
    ],
)
def test_a_host_is_on_this_machine_or_near_or_far(host: str, local: bool, near: bool) -> None:
    address = read_address(f"http://{host}/v1")
    assert (address.local, address.near) == (local, near)


# Keys


def keyed(text: str, environment: Mapping[str, str]) -> str | None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        return read_address(text).key()


def test_a_key_comes_from_the_variable_named_after_the_host() -> None:
    environment = {"ROSTRA_KEY_API_EXAMPLE_COM": " sk-1\n", "OPENAI_API_KEY": "sk-2"}
    assert keyed("https://api.example.com/v1", environment) == "sk-1"
    assert keyed("https://example.com/v1", environment) is None
    assert keyed("https://api.example.com.evil.example/v1", environment) is None


def test_the_key_of_openai_goes_to_openai_alone_and_only_encrypted() -> None:
    environment = {"OPENAI_API_KEY": "sk-2"}
    assert keyed("https://api.openai.com/v1", environment) == "sk-2"
    assert keyed("https://API.OPENAI.COM", environment) == "sk-2"
    assert keyed("http://api.openai.com/v1", environment) is None
    assert keyed("https://api.openai.com.evil.example", environment) is None
    assert keyed("https://api-openai.com", environment) is None
    own = {"ROSTRA_KEY_API_OPENAI_COM": "sk-1"}
    assert keyed("https://api.openai.com/v1", environment | own) == "sk-1"
    assert keyed("https://api.openai.com/v1", {"OPENAI_API_KEY": "  "}) is None


label = st.from_regex(r"[a-z0-9](-{0,3}[a-z0-9]){0,3}", fullmatch=True)
hosts = st.lists(label, min_size=1, max_size=3).map(".".join)


@properties
@given(hosts, hosts)
@example("api.example.com", "api-example.com")
@example("a--b", "a.b")
def test_no_two_hosts_share_a_key(a: str, b: str) -> None:
    first, second = (Address(f"https://{host}/v1", host, "").key_variables for host in (a, b))
    assert (a == b) == (first[0] == second[0])
    assert first[0].replace("_", "").isalnum()


@pytest.mark.parametrize("key", ["sk-\x1b[2J", "two words", "schlüssel", 'a"b', "a\\b", "a\nb"])
def test_what_cannot_be_a_key_is_refused_by_the_name_of_its_variable(key: str) -> None:
    with pytest.raises(ConfigError, match="ROSTRA_KEY_HOST: holds characters") as caught:
        keyed("https://host/v1", {"ROSTRA_KEY_HOST": key})
    assert key not in str(caught.value)
