"""Gateways that the tests fork are as others: command, environment, folder, output, end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.brokers import ROOT, Gateway
from tests.support.data_plane import until
from tests.support.forks import ForkedProcess, Forks
from tests.support.limits import LIMIT_S

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"}


Fork = Callable[..., ForkedProcess]


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    made = Forks()
    made.allowed = True
    yield made
    made.close()


@pytest.fixture
def fork(forks: Forks) -> Iterator[Fork]:
    """Forks a command in a folder; those that still run at the end of the test are killed."""
    started: list[ForkedProcess] = []

    def start(folder: Path, *words: str, **variables: str) -> ForkedProcess:
        command = [sys.executable, "-m", "penstock", *words]
        with (folder / "output").open("wb") as output:
            for _ in range(2):
                if found := forks.start(command, output, folder, {**ENVIRONMENT, **variables}):
                    started.append(found)
                    return found
        raise AssertionError("it was not forked")

    yield start
    for one in started:
        if one.poll() is None:
            one.kill()
            one.wait(LIMIT_S)


def test_it_does_and_prints_the_same(fork: Fork, tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text("[log]\nsegment_bytes = '3MiB'\n")
    words = ("config", "show", "--config", "penstock.toml")
    variables = {"PENSTOCK__LOG__FSYNC": "never"}
    assert fork(tmp_path, *words, **variables).wait(LIMIT_S) == 0
    other = subprocess.run(
        [sys.executable, "-m", "penstock", *words],
        cwd=tmp_path,
        env={**ENVIRONMENT, **variables},
        capture_output=True,
        check=True,
    )
    assert (tmp_path / "output").read_bytes() == other.stdout
    assert b"never" in other.stdout


def test_exit_codes_are_those_of_the_command(fork: Fork, tmp_path: Path) -> None:
    assert fork(tmp_path, "make-coffee").wait(LIMIT_S) == 2
    assert b"no command 'make-coffee'" in (tmp_path / "output").read_bytes()


def test_a_signal_ends_just_one_gateway(fork: Fork, tmp_path: Path) -> None:
    listeners = {"management": "", "metrics": "", "http": "", "native": "", "amqp": "127.0.0.1:0", "mqtt": ""}
    settings = [word for name, to in listeners.items() for word in ("--set", f"{name}.listen={to}")]
    made = []
    for name in ("a", "b"):
        folder = tmp_path / name
        folder.mkdir()
        made.append(fork(folder, "serve", "--data", str(folder / "data"), *settings))
    first, second = made
    first.kill()
    assert first.wait(LIMIT_S) == -signal.SIGKILL
    assert second.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(0)
    until(lambda: os.getsid(second.pid) == second.pid)
    second.kill()
    assert second.wait(LIMIT_S) == second.poll() == -signal.SIGKILL


def test_the_first_one_and_one_with_a_library_of_its_own_are_not_forked(tmp_path: Path) -> None:
    made = Forks()
    made.allowed = True
    try:
        with (tmp_path / "output").open("wb") as output:
            words = [sys.executable, "-m", "penstock", "--version"]
            assert made.start(words, output, tmp_path, ENVIRONMENT) is None
            second = made.start(words, output, tmp_path, ENVIRONMENT)
            assert second is not None and second.wait(LIMIT_S) == 0
            assert made.start(words, output, tmp_path, {**ENVIRONMENT, "LD_PRELOAD": ""}) is None
            assert made.start([sys.executable, "-c", ""], output, tmp_path, ENVIRONMENT) is None
    finally:
        made.close()


def test_a_program_of_the_tests_finds_penstock_and_the_tests(forks: Forks, tmp_path: Path) -> None:
    environment = {**ENVIRONMENT, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    words = ["tests.support.await_faults", str(tmp_path / "places"), "0", "--version"]
    with (tmp_path / "output").open("wb") as output:
        found = forks.start([sys.executable, "-m", *words], output, tmp_path, environment)
    assert found is not None and found.wait(LIMIT_S) == 0
    assert (tmp_path / "output").read_bytes().startswith(b"penstock ")


def test_a_gateway_is_ended_and_starts_again(tmp_path: Path) -> None:
    with Gateway(tmp_path) as gateway:
        for _ in range(2):
            gateway.kill9()
            assert not gateway.running
            gateway.start()
        assert gateway.terminate() == 0
