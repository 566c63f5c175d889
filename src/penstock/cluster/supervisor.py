"""Starts a node's process, starts it again when it ends, and releases the log in the name of a dead owner.

A first process that cannot start ends the supervisor, with its exit code, and so does one that found the
log damaged in Kafka. Once one has followed the log, each is started again, since Kafka may be away for a
while: at once when it had run for some seconds, later when it ends again and again. SIGTERM and SIGINT end
both. When the supervisor is gone the process ends, too: a pipe between them tells.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

from penstock.cluster.health import Health, Pages
from penstock.cluster.settings import journal_options
from penstock.config import Address, Config
from penstock.errors import PenstockError
from penstock.log_core.replication.entries import Kind, encode
from penstock.log_core.replication.kafka import KafkaJournal, client_library
from penstock.service_manager import ServiceManager

__all__ = ["child_pipe", "is_supervised", "supervise_node"]

_LOG: Final = logging.getLogger("penstock.supervisor")

_VARIABLE: Final = "PENSTOCK_NODE_PIPE"
_DELAY_FIRST_S: Final = 0.5
_DELAY_MAX_S: Final = 30.0
_SETTLED_S: Final = 10.0
"""A process that lived so long is started again at once: its node may be the only other one."""
_LOOK_S: Final = 0.2
_ALONE_S: Final = 30.0
"""A process whose supervisor is gone has so long for a clean stop."""


def is_supervised() -> bool:
    """Whether this is the process of a node that has a supervisor."""
    return _VARIABLE in os.environ


def child_pipe() -> Callable[[str], object]:
    """In the process of a node: tells its supervisor a line; ends the process when that is gone."""
    told, alive = (int(word) for word in os.environ.pop(_VARIABLE).split(","))

    def watch() -> None:
        os.read(alive, 1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_ALONE_S)
        os._exit(1)  # nobody else would end it

    threading.Thread(target=watch, name="penstock-supervised", daemon=True).start()

    def tell(line: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # `watch` ends the process
            os.write(told, f"{line}\n".encode())

    return tell


class _Child:
    """One run of the node's process."""

    def __init__(self) -> None:
        told, tell = os.pipe()
        alive, self._alive = os.pipe()
        environment = {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}
        environment[_VARIABLE] = f"{tell},{alive}"
        # The command of Debian's package finds penstock by a path that it sets itself.
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "penstock", *sys.argv[1:]], env=environment, pass_fds=(tell, alive)
        )
        os.close(tell)
        os.close(alive)
        os.set_blocking(told, False)
        self._told = told
        self._ended = os.pidfd_open(self.process.pid)
        self._text = b""
        self.started_at = time.monotonic()
        self.followed = False
        self.claim: int | None = None
        self.reaches = False
        """Clients of the node reach an owner that serves."""
        self.is_unusable = False
        """It would fail again."""

    def look(self, seconds: float = 0.0) -> None:
        """Take in the lines that it told, waiting for one, or for its end."""
        select.select([self._ended], [], [], seconds)
        with contextlib.suppress(BlockingIOError):
            self._text += os.read(self._told, 4096)
        *lines, self._text = self._text.split(b"\n")
        for line in lines:
            word, _, rest = line.decode().partition(" ")
            self.followed = True
            if word == "owner":
                self.claim, self.reaches = int(rest), False
            elif word == "reaches":
                self.reaches = rest == "1"
            elif word == "unusable":
                self.is_unusable = True

    def reload(self, *_: object) -> None:
        """Pass SIGHUP on, once it would not end the process: an owner reads its configuration again."""
        if self.followed:
            self.process.send_signal(signal.SIGHUP)

    def close(self) -> None:
        self.look()
        os.close(self._ended)
        os.close(self._told)
        os.close(self._alive)


class _Releaser:
    """Releases a log in the name of a dead owner; its producer is made before it is needed."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._journal: KafkaJournal | None = None
        self._lock = threading.Lock()

    def warm(self) -> None:
        threading.Thread(target=self._reach, name="penstock-releaser", daemon=True).start()

    def _reach(self) -> KafkaJournal:
        with self._lock:
            if self._journal is None:
                self._journal = KafkaJournal(journal_options(self._config))
            return self._journal

    def release(self, claim: int) -> None:
        def work() -> None:
            try:
                self._reach().hint(encode(Kind.RELEASE, claim, 0))
            except PenstockError as error:
                _LOG.warning("the log was not released, standbys wait: %s", error)

        threading.Thread(target=work, name="penstock-release", daemon=True).start()


def _health(children: list[_Child]) -> Health:
    if not children or children[0].process.returncode is not None:
        return Health(False, False, False)
    [child] = children
    return Health(child.followed, child.reaches, child.claim is not None)


def supervise_node(config: Config) -> int:
    """Run the node until SIGTERM or SIGINT; the exit code.

    Raises:
        ConfigError: settings exclude each other.
        StartError: the library of Kafka is missing, or the port of cluster.health_listen is taken.

    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    client_library()
    journal_options(config)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    manager, releaser = ServiceManager(), _Releaser(config)
    delay_s, alive_at, is_ready = 0.0, 0.0, False
    children: list[_Child] = []
    if config.cluster.health_listen:
        Pages(Address.parse(config.cluster.health_listen), lambda: _health(children))
    while True:
        child = _Child()
        children[:] = [child]
        signal.signal(signal.SIGHUP, child.reload)
        asked = False
        while child.process.poll() is None:
            child.look(_LOOK_S)
            now = time.monotonic()
            if child.followed and not is_ready:
                is_ready = True
                manager.ready("follows the log")
                releaser.warm()
            if manager.alive_every_s and now - alive_at >= manager.alive_every_s:
                alive_at = now
                manager.alive()
            if stopping.is_set() and not asked:
                asked = True
                manager.stopping()
                child.process.terminate()
        child.close()
        is_ready = is_ready or child.followed
        code = child.process.returncode
        if asked or (code == 0 and stopping.is_set()):
            return max(code, 0)
        if not is_ready or child.is_unusable:
            return code if code > 0 else 1
        if child.claim is not None:
            releaser.release(child.claim)
        if time.monotonic() - child.started_at >= _SETTLED_S:
            delay_s = 0.0
        _LOG.warning("the node's process ended with %d; it is started again in %.1f s", code, delay_s)
        if stopping.wait(delay_s):
            return 0
        delay_s = min(max(2 * delay_s, _DELAY_FIRST_S), _DELAY_MAX_S)
