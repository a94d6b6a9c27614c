"""A small server on this machine that answers what a test tells it to, and keeps what it is asked.

It speaks plain sockets, so that it can misbehave in every way a real one can.
"""

import json
import socket
import socketserver
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, BinaryIO


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer in good form; what it says may be anything."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    def raw(self) -> bytes:
        headers = {
            "content-type": "application/json",
            "content-length": str(len(self.body)),
            **self.headers,
        }
        lines = [f"HTTP/1.1 {self.status} x", *(f"{k}: {v}" for k, v in headers.items())]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + self.body


Fault = Callable[[socket.socket], None]
"""Does with the connection what it likes; then it is closed."""
Answer = Reply | Fault
Answers = Sequence[Answer] | Callable[[Asked], Answer]
"""Either in order, the last one ever after, or worked out from the request."""


def reply(data: object, status: int = 200, **headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(json.dumps(data).encode(), status, named)


def said(
    text: str | None = "Hello.", finish: str | None = "stop", usage: object = None, **choice: object
) -> Reply:
    """What a good server answers."""
    message = {"role": "assistant", "content": text}
    counted = {"prompt_tokens": 7, "completion_tokens": 3} if usage is None else usage
    choices = [{"index": 0, "message": message, "finish_reason": finish, **choice}]
    return reply({"id": "x", "object": "chat.completion", "choices": choices, "usage": counted})


def refusal(message: str, status: int = 400, **error: object) -> Reply:
    return reply({"error": {"message": message, **error}}, status)


MODELS = reply({"object": "list", "data": [{"id": "small"}, {"id": "large"}]})


class Server:
    """Listens on a free port until its block ends. Models are listed without a script."""

    def __init__(self, answers: Answers = (), models: Answer = MODELS) -> None:
        self.asked: list[Asked] = []
        """Everything but the questions about models."""
        self.probed: list[Asked] = []
        self.busiest = 0
        """The most requests that were being answered at one time."""
        self.ports: Counter[int] = Counter()
        """How many requests came over each connection."""
        self._answers = answers
        self._models = models
        self._busy = 0
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = _Listener(self)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.server_address[1]}/v1"

    @property
    def address(self) -> str:
        return f"{self.url}#small"

    def deserted(self, seconds: float = 2.0) -> bool:
        """Whether all connections are closed from the other side, within some time."""
        until = time.monotonic() + seconds
        while self._open and time.monotonic() < until:
            time.sleep(0.01)
        return not self._open

    def __enter__(self) -> "Server":
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown()
        self._thread.join()
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._listener.server_close()

    def serve(self, connection: socket.socket, file: BinaryIO) -> None:
        with self._lock:
            self._open.add(connection)
        try:
            with suppress(OSError):
                while (asked := _read(file)) is not None:
                    self.ports[connection.getpeername()[1]] += 1
                    with self._counted():
                        answer = self._answer(asked)
                        if not isinstance(answer, Reply):
                            return answer(connection)
                        connection.sendall(answer.raw())
        finally:
            with self._lock:
                self._open.discard(connection)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._lock:
            self._busy += 1
            self.busiest = max(self.busiest, self._busy)
        try:
            yield
        finally:
            with self._lock:
                self._busy -= 1

    def _answer(self, asked: Asked) -> Answer:
        if asked.path.endswith("/models"):
            self.probed.append(asked)
            return self._models
        with self._lock:
            self.asked.append(asked)
            place = len(self.asked) - 1
        if callable(self._answers):
            return self._answers(asked)
        return self._answers[min(place, len(self._answers) - 1)]


class _Listener(socketserver.ThreadingTCPServer):
    request_queue_size = 128

    def __init__(self, server: Server) -> None:
        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                server.serve(self.connection, self.rfile)

            def finish(self) -> None:
                with suppress(OSError):
                    super().finish()

        super().__init__(("127.0.0.1", 0), Handler)


def _read(file: BinaryIO) -> Asked | None:
    first = file.readline().decode().split()
    if len(first) < 2:
        return None
    headers: dict[str, str] = {}
    while line := file.readline().decode().strip():
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    body = file.read(int(headers.get("content-length", 0)))
    return Asked(first[0], first[1], headers, body)


# Faults


def hang_up(connection: socket.socket) -> None:
    """Closes without a word."""


def reset(connection: socket.socket) -> None:
    """Breaks the connection off, as a process that is killed does."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def raw(content: bytes) -> Fault:
    """Sends bytes that need not be HTTP, and closes."""

    def send(connection: socket.socket) -> None:
        connection.sendall(content)

    return send


def broken_off(connection: socket.socket) -> None:
    """Half of an answer, then a reset."""
    whole = said("A long reply.").raw()
    connection.sendall(whole[:-10])
    time.sleep(0.05)
    reset(connection)


def drip(connection: socket.socket) -> None:
    """An answer that comes a byte at a time and never ends."""
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
    while True:
        connection.sendall(b" ")
        time.sleep(0.02)


def silence(connection: socket.socket) -> None:
    """Takes the request and never says a word."""
    connection.recv(1)


def flood(connection: socket.socket) -> None:
    """An answer without an end, as fast as it goes."""
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
    while True:
        connection.sendall(b" " * 2**16)


def slow(answer: Reply, seconds: float) -> Fault:
    def send(connection: socket.socket) -> None:
        time.sleep(seconds)
        connection.sendall(answer.raw())

    return send
