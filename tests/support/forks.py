"""Gateways that are forked from a process that has imported penstock: most of a start's CPU is the imports.

Such a gateway runs the whole command `penstock serve`, in a session of its own, with its own environment and
folder. It differs from another one only in who started the interpreter. The first gateway that a process of
the tests starts is not forked, so that a test that runs alone is about the real command; nor is one with
variables that the interpreter or the linker read. PENSTOCK_TEST_FORKS=0 forks none, and benchmarks do not.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final

__all__ = ["ForkedProcess", "Forks", "forks"]

_SERVER = Path(__file__).with_name("fork_server.py")
_ROOT = Path(__file__).resolve().parents[2]
_OF_THE_INTERPRETER = ("PYTHON", "LD_", "MALLOC_", "LC_", "LANG")


class ForkedProcess:
    """A process that the fork server started, with what brokers use of subprocess.Popen."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self.pid = int(pipe.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, or minus the number of the signal; None while it runs."""
        if self.returncode is None and select.select([self._pipe], [], [], 0)[0]:
            self._read()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._pipe], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("penstock serve", timeout or 0)
            self._read()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Unless it has ended."""
        if self.poll() is None:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:  # it is just ending
                pass

    def terminate(self) -> None:
        """SIGTERM, unless it has ended."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL, unless it has ended."""
        self.send_signal(signal.SIGKILL)

    def _read(self) -> None:
        said = self._pipe.readline()
        assert said, "the fork server has ended, and nobody knows how this process did"
        self.returncode = int(said)
        self._pipe.close()

    def __del__(self) -> None:
        self._pipe.close()


class _Server:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._socket, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, str(_SERVER)],
            stdin=its.fileno(),
            stdout=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
        its.close()
        self.read_by_interpreter = _read_by_interpreter(environment)

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def fork(
        self, module: str, words: list[str], output: IO[bytes], cwd: Path, environment: Mapping[str, str]
    ) -> ForkedProcess:
        asked = {"module": module, "words": words, "cwd": str(cwd), "environment": dict(environment)}
        read, write = os.pipe()
        try:
            socket.send_fds(self._socket, [json.dumps(asked).encode()], [output.fileno(), write])
        finally:
            os.close(write)
        return ForkedProcess(os.fdopen(read, "rb"))

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


class Forks:
    """The fork server of this process, once it is needed."""

    def __init__(self) -> None:
        self.allowed = False
        """Set by the tests' conftest."""
        self._lock = threading.Lock()
        self._server: _Server | None = None
        self._starts = 0

    def start(
        self, command: list[str], output: IO[bytes], cwd: Path, environment: Mapping[str, str]
    ) -> ForkedProcess | None:
        """Start `python -m penstock ...`, or a module of `tests.support` that runs code of penstock.

        None: the caller has to start it as any other command.
        """
        if not self.allowed or command[:2] != [sys.executable, "-m"]:
            return None
        module, *words = command[2:]
        ours = module.startswith("tests.support.")
        if module != "penstock" and not ours:
            return None
        with self._lock:
            self._starts += not ours
            if self._starts == 1 and not ours:
                return None
            root = os.pathsep + str(_ROOT)
            of_penstock = dict(environment)
            if ours:
                of_penstock["PYTHONPATH"] = environment.get("PYTHONPATH", "").removesuffix(root)
            if self._server is None or not self._server.running:
                self._server = _Server(of_penstock)
            if _read_by_interpreter(of_penstock) != self._server.read_by_interpreter:
                return None
            return self._server.fork(module, words, output, cwd, environment)

    def close(self) -> None:
        """End the fork server."""
        with self._lock:
            if self._server is not None:
                self._server.close()
                self._server = None


forks: Final = Forks()


def _read_by_interpreter(environment: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in environment.items() if key.startswith(_OF_THE_INTERPRETER)}
