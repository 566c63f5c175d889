"""Starts the workers of a gateway, starts again those that end, and ends with them.

The supervisor touches no message. It makes sure of the ports, so that they are the same for all and for
whoever is started again (the workers listen themselves, with SO_REUSEPORT), makes a door for each worker
(`protocols.workers.handover`), and forks: it has no loop and no thread, so a fork is a copy of the
modules that were just loaded.
A worker that cannot start at all ends everything, with its exit code; one that served before is started
again at once, then after 0.5, 1, 2 ... 30 s; having served for a minute it begins anew.

SIGTERM and SIGINT stop all, each as it would stop alone; SIGHUP is passed on. Workers notice by a pipe
when the supervisor is gone, and stop.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import field, fields, replace
from pathlib import Path
from typing import Any, Final

import orjson

from penstock import logs
from penstock.config import Address, Config
from penstock.errors import ConfigError, PenstockError, StartError
from penstock.lazy_dataclass import dataclass
from penstock.protocols.listening.listener import listening_socket
from penstock.service_manager import ServiceManager
from penstock.workers.folders import worker_folder
from penstock.workers.peers import Membership

__all__ = ["supervise", "worker_config"]

logger: Final = logging.getLogger("penstock.supervisor")

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
_BACKLOG: Final = 1024
_DELAY_FIRST_S: Final = 0.5
_DELAY_MAX_S: Final = 30.0
_SETTLED_S: Final = 60.0
_LOOK_S: Final = 1.0

Work = Callable[[Config, Membership | None], int]
ReadyLine = Callable[[Mapping[str, str], Config], str]
Status = Callable[[Mapping[str, str]], str]


@dataclass(slots=True)
class _Worker:
    """One worker, whether it runs or not."""

    number: int
    door: socket.socket
    config: Config
    pid: int = 0
    word: int = -1
    """Descriptor of the pipe by which it says that it serves; -1: it has, or does not run."""
    serves: bool = False
    started_at: float = 0.0
    delay_s: float = 0.0
    due_at: float | None = None
    """When it is started again."""
    addresses: dict[str, str] = field(default_factory=dict)


def worker_config(config: Config, number: int) -> Config:
    """The configuration of one worker: its folder, its part of the caches."""
    count = config.server.workers
    log = replace(
        config.log,
        data_dir=str(worker_folder(config.log.data_dir, number)),
        folders=tuple(str(worker_folder(folder, number)) for folder in config.log.folders),
        tail_cache_bytes=config.log.tail_cache_bytes // count,
        read_cache_bytes=config.log.read_cache_bytes // count,
        feed_cache_bytes=config.log.feed_cache_bytes // count,
    )
    # A path in the file system belongs to one process.
    mqtt = config.mqtt if number == 0 else replace(config.mqtt, unix_listen="")
    return replace(config, log=log, mqtt=mqtt)


def supervise(config: Config, work: Work, ready_line: ReadyLine, status: Status) -> int:
    """Serve with `server.workers` processes; see the module, and `server.serve`.

    Args:
        config: Of the whole.
        work: The work of each process, with its own configuration; returns its exit code.
        ready_line: The text that is printed when all serve, from the addresses by listener.
        status: The status that the service manager shows then.

    Raises:
        StartError: a port is taken.

    """
    return _Supervisor(config, work, ready_line, status).run()


class _Supervisor:
    def __init__(self, config: Config, work: Work, ready_line: ReadyLine, status: Status) -> None:
        self._work = work
        self._ready_line = ready_line
        self._status = status
        self._manager = ServiceManager()
        self._alive_at = 0.0
        self._ports: list[socket.socket] = []
        self._config = self._with_ports(config)
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-"))
        self._paths = [self._folder / str(number) for number in range(config.server.workers)]
        self._workers = [
            _Worker(number, _door(path), worker_config(self._config, number))
            for number, path in enumerate(self._paths)
        ]
        self._selector = selectors.DefaultSelector()
        self._life, self._life_end = os.pipe()
        self._woken, self._wake = os.pipe()
        self._stopping = False
        self._ready = False
        self._code = 0

    def run(self) -> int:
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wake, False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        for number in _SIGNALS:
            signal.signal(number, lambda number, frame: None)  # they come through the pipe
        signal.set_wakeup_fd(self._wake)
        cores = len(os.sched_getaffinity(0))
        if len(self._workers) > cores:
            logger.warning(
                "more workers than cores: each uses one, and they share those that there are",
                extra=logs.fields(workers=len(self._workers), cores=cores),
            )
        try:
            for worker in self._workers:
                self._start(worker)
            while any(worker.pid or worker.due_at is not None for worker in self._workers):
                self._turn()
        finally:
            signal.set_wakeup_fd(-1)
            shutil.rmtree(self._folder, ignore_errors=True)
        return self._code

    # Ports

    def _with_ports(self, config: Config) -> Config:
        """The configuration with a port for each 0, and every port made sure of."""
        sections: dict[str, Any] = {}
        for section in fields(config):
            values = getattr(config, section.name)
            changed = {}
            for option in fields(values):
                text = getattr(values, option.name)
                if option.name in _LISTENS and text:
                    address = Address.parse(text)
                    port = self._reserved(section.name, option.name, address)
                    changed[option.name] = str(Address(address.host, port))
            if changed:
                sections[section.name] = replace(values, **changed)
        return replace(config, **sections)

    def _reserved(self, section: str, option: str, address: Address) -> int:
        """A port that nobody else has. Raises StartError."""
        # Not shared: who has it already is found, another gateway with workers included.
        with listening_socket(section, address.host, address.port, option=option) as probe:
            port: int = probe.getsockname()[1]
        held = listening_socket(section, address.host, port, option=option, shared=True, listen=False)
        self._ports.append(held)  # bound and not listening: it gets no connection
        return port

    # Workers

    def _start(self, worker: _Worker) -> None:
        worker.due_at = None
        worker.started_at = time.monotonic()
        word, word_end = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            os._exit(self._child(worker, word, word_end))
        os.close(word_end)
        worker.pid, worker.word, worker.serves = pid, word, False
        self._selector.register(word, selectors.EVENT_READ, worker)

    def _child(self, worker: _Worker, word: int, word_end: int) -> int:
        """In the new process: let go of what is not its own, and work; the exit code."""
        signal.set_wakeup_fd(-1)
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        self._selector.close()
        others = [one for one in self._workers if one is not worker]
        for held in (*self._ports, *(one.door for one in others)):
            held.close()
        for descriptor in (self._life_end, self._woken, self._wake, word):
            os.close(descriptor)
        for one in others:
            if one.word >= 0:
                os.close(one.word)
        logs.common(worker=worker.number)
        membership = Membership(worker.number, worker.door.dup(), self._paths, self._life, word_end)
        try:
            for folder in worker.config.log.folders:
                with contextlib.suppress(OSError):  # the log says what is wrong with it
                    os.mkdir(folder)
            code = self._work(worker.config, membership)
            logging.shutdown()
        except PenstockError as error:
            print(f"penstock: error: {error}", file=sys.stderr)
            code = 2 if isinstance(error, ConfigError) else 1
        except BaseException:
            logger.exception("worker %s failed", worker.number)
            code = 1
        sys.stderr.flush()
        return code

    def _turn(self) -> None:
        """Wait for something, and see to it."""
        now = time.monotonic()
        due = [worker.due_at for worker in self._workers if worker.due_at is not None]
        due.append(now + _LOOK_S)
        if self._manager.alive_every_s and self._ready and not self._stopping:
            if self._alive_at <= now:
                self._manager.alive()
                self._alive_at = now + self._manager.alive_every_s
            due.append(self._alive_at)
        for key, _ in self._selector.select(max(min(due) - now, 0)):
            if key.data is None:
                for number in os.read(self._woken, 1024):
                    self._signalled(number)
            else:
                self._told(key.data)
        self._reap()
        if not self._stopping:
            for worker in self._workers:
                if worker.due_at is not None and worker.due_at <= time.monotonic():
                    self._start(worker)

    def _signalled(self, number: int) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            self._stop()
        elif number == signal.SIGHUP:
            self._signal(signal.SIGHUP)

    def _signal(self, number: signal.Signals) -> None:
        for worker in self._workers:
            if worker.pid:
                os.kill(worker.pid, number)

    def _stop(self) -> None:
        if not self._stopping:
            logger.info("stopping", extra=logs.fields(workers=len(self._workers)))
            self._manager.stopping()
        self._stopping = True
        for worker in self._workers:
            worker.due_at = None
        self._signal(signal.SIGTERM)

    def _told(self, worker: _Worker) -> None:
        """The worker said that it serves, or ended before."""
        said = os.read(worker.word, 65536)
        self._selector.unregister(worker.word)
        os.close(worker.word)
        worker.word = -1
        if not said:
            return
        worker.serves = True
        worker.addresses = orjson.loads(said)
        logger.info("worker serves", extra=logs.fields(worker=worker.number, pid=worker.pid))
        if not self._ready and all(one.serves for one in self._workers):
            self._ready = True
            addresses = self._workers[0].addresses
            print(self._ready_line(addresses, self._config), flush=True)
            self._manager.ready(self._status(addresses))

    def _reap(self) -> None:
        for worker in self._workers:
            if not worker.pid:
                continue
            pid, status = os.waitpid(worker.pid, os.WNOHANG)
            if pid:
                self._ended(worker, os.waitstatus_to_exitcode(status))

    def _ended(self, worker: _Worker, code: int) -> None:
        if worker.word >= 0:
            self._told(worker)
        pid, worker.pid = worker.pid, 0
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        if self._stopping:
            self._code = max(self._code, code if code >= 0 else 1)
            return
        if not self._ready:
            # Nothing served yet: what is wrong would be wrong the next time.
            logger.error("worker %s ended with %s before it served; all stop", worker.number, how)
            self._code = code if code > 0 else 1
            self._stop()
            return
        lived_s = time.monotonic() - worker.started_at
        if worker.serves and lived_s > _SETTLED_S:
            worker.delay_s = 0.0
        worker.due_at = time.monotonic() + worker.delay_s
        logger.error(
            "worker %s ended with %s: its vhosts pause; it is started again",
            worker.number,
            how,
            extra=logs.fields(pid=pid, lived_s=round(lived_s, 1), in_s=worker.delay_s),
        )
        worker.delay_s = min(max(worker.delay_s * 2, _DELAY_FIRST_S), _DELAY_MAX_S)
        worker.serves = False


_LISTENS: Final = frozenset({"listen", "tls_listen", "ws_listen", "wss_listen"})


def _door(path: Path) -> socket.socket:
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        door.bind(str(path))
        door.listen(_BACKLOG)
    except OSError as error:
        door.close()
        raise StartError(
            f"cannot make the socket {path}: {error.strerror or error}",
            remedy="set TMPDIR to a folder with a short path that this user may write to",
        ) from error
    return door
