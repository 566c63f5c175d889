"""A webhook receiver: a real HTTP server that remembers what it got and answers as it is told.

In a test's process it answers by a function; as a process of its own (`python -m tests.support.receiver PORT
FILE`) it appends each body as a line to FILE before it answers 200, so that it can be killed at any moment.
"""

from __future__ import annotations

import base64
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.support.limits import LIMIT_S

__all__ = ["Got", "Receiver", "Reply"]


@dataclass(frozen=True)
class Got:
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    """By lower-case name."""
    body: bytes


@dataclass(frozen=True)
class Reply:
    """An answer; `raw` replaces the HTTP bytes, `wait` is awaited first."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    raw: bytes | None = None
    wait: threading.Event | None = None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in mid-answer is no error of the test's."""


class Receiver:
    """A server at 127.0.0.1, with `tls` under it; `reply` says what each delivery is answered.

    OPTIONS grants the handshake.
    """

    def __init__(
        self, reply: Callable[[Got], Reply] | None = None, port: int = 0, tls: ssl.SSLContext | None = None
    ) -> None:
        self.reply = reply or (lambda got: Reply())
        self.grants = True
        self.got: list[Got] = []
        self.options: list[Got] = []
        self._changed = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_: object) -> None:
                pass

            def do_POST(self) -> None:
                size = int(self.headers.get("content-length", 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                got = Got(self.command, self.path, headers, self.rfile.read(size))
                with receiver._changed:
                    receiver.got.append(got)
                    receiver._changed.notify_all()
                self._answer(receiver.reply(got))

            do_PUT = do_POST

            def do_OPTIONS(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.options.append(Got("OPTIONS", self.path, headers, b""))
                granted = {"WebHook-Allowed-Origin": headers.get("webhook-request-origin", "")}
                self._answer(Reply(200, granted) if receiver.grants else Reply(405))

            def _answer(self, reply: Reply) -> None:
                if reply.wait is not None:
                    reply.wait.wait(60)
                if reply.raw is not None:
                    self.wfile.write(reply.raw)
                    self.close_connection = True
                    return
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)

        self._server = _Server(("127.0.0.1", port), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port = self._server.server_address[1]
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.port}/hook"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True, args=(0.05,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(LIMIT_S)

    def wait_for(self, condition: Callable[[list[Got]], bool], timeout_s: float = 60) -> list[Got]:
        """Wait until what it got meets a condition; all of it."""
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self.got), timeout_s), [
                got.body[:100] for got in self.got[-20:]
            ]
            return list(self.got)

    def wait_count(self, count: int, timeout_s: float = 60) -> list[Got]:
        """Wait for so many deliveries."""
        return self.wait_for(lambda got: len(got) >= count, timeout_s)


def main() -> None:
    """Serve until killed, keeping each body in a file, in base64."""
    port, path = int(sys.argv[1]), sys.argv[2]
    lock = threading.Lock()
    with open(path, "ab", buffering=0) as file:

        def keep(got: Got) -> Reply:
            with lock:
                file.write(base64.b64encode(got.body) + b"\n")
            return Reply()

        with Receiver(keep, port) as receiver:
            print("serving", receiver.port, flush=True)
            threading.Event().wait()


if __name__ == "__main__":
    socket.setdefaulttimeout(None)
    main()
