"""A node's own pages for load balancers, at cluster.health_listen, without a login. They are not passed on.

    /healthz   200 "ok": the node's process follows the log, or owns it; 503 "failed": it is starting
    /readyz    200 "ok": clients of this node reach an owner that serves; 503 "not ready"
    /owner     200 "ok": this node is the owner; 503 "standby"

The supervisor answers, in a thread, so that they are there whatever the node is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Final, NamedTuple

from penstock.config import Address
from penstock.errors import StartError

__all__ = ["Health", "Pages"]

_TIMEOUT_S: Final = 5.0
_THREADS_MAX: Final = 64


class Health(NamedTuple):
    """The node as it is now."""

    follows: bool
    reaches: bool
    owns: bool


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def process_request(self, request: Any, client_address: Any) -> None:
        if threading.active_count() > _THREADS_MAX:
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)


class Pages:
    """Listens until the process ends."""

    def __init__(self, address: Address, health: Callable[[], Health]) -> None:
        """`health` is called by threads. Raises StartError: the port is taken."""

        class Handler(BaseHTTPRequestHandler):
            timeout: ClassVar[float | None] = _TIMEOUT_S

            def do_GET(self) -> None:
                found = health()
                pages = {
                    "/healthz": (found.follows, "failed"),
                    "/readyz": (found.reaches, "not ready"),
                    "/owner": (found.owns, "standby"),
                }
                good, text = pages.get(self.path, (None, "not found"))
                body = f"{'ok' if good else text}\n".encode()
                self.send_response(404 if good is None else 200 if good else 503)
                self.send_header("content-type", "text/plain; charset=utf-8")
                self.send_header("content-length", str(len(body)))
                self.send_header("cache-control", "no-store")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *words: object) -> None:
                pass

        try:
            server = _Server((address.host, address.port), Handler)
        except OSError as error:
            raise StartError.listening("cluster", str(address), error, option="health_listen") from error
        threading.Thread(target=server.serve_forever, name="penstock-health", daemon=True).start()
