"""The completions of bash, zsh and fish, by the shells themselves where they are installed."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.commands import Run

pytestmark = pytest.mark.penstock_only("this is about the command penstock")

LINES = [
    ("penstock que", "queues"),
    ("penstock queues li", "list"),
    ("penstock topics create --max-a", "--max-age"),
    ("penstock rabbitmqctl list_q", "list_queues"),
    ("penstock completion f", "fish"),
]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(capsys)


def script(run: Run, shell: str, folder: Path) -> Path:
    """The file with what a shell needs; skips when the shell is not installed."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    file = folder / f"penstock.{shell}"
    file.write_text(run("completion", shell))
    return file


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_bash_completes_commands(run: Run, tmp_path: Path, line: str, expected: str) -> None:
    file = script(run, "bash", tmp_path)
    asked = 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _penstock; echo "${COMPREPLY[@]}"'
    told = subprocess.run(
        ["bash", "-c", asked, str(file), *line.split()], capture_output=True, text=True, check=True
    )
    assert told.stdout.split() == [expected]


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_fish_completes_commands(run: Run, tmp_path: Path, line: str, expected: str) -> None:
    file = script(run, "fish", tmp_path)
    asked = f"source {file}; complete -C '{line}'"
    told = subprocess.run(
        ["fish", "--no-config", "-c", asked],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    assert [one.split("\t")[0] for one in told.stdout.splitlines()] == [expected]


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_tab_key_completes_in_a_terminal(run: Run, tmp_path: Path, shell: str) -> None:
    file = script(run, shell, tmp_path)
    words = {"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "-f", "-i"]}[shell]
    begin = {"bash": "", "zsh": "autoload -U compinit && compinit -u -D; "}[shell]
    here, there = pty.openpty()
    environment = {**os.environ, "HOME": str(tmp_path), "TERM": "xterm", "PS1": "ready> "}
    with subprocess.Popen(
        words, stdin=there, stdout=there, stderr=there, env=environment, start_new_session=True
    ) as process:
        os.close(there)
        os.write(here, f"{begin}source {file}; echo loa''ded\n".encode())
        _wait_for(here, b"loaded")
        for typed, expected in (("penstock que\t", b"penstock queues"), ("li\t", b"list")):
            os.write(here, typed.encode())
            _wait_for(here, expected)
        process.kill()
    os.close(here)


def _wait_for(terminal: int, text: bytes) -> None:
    """Read until the text was shown."""
    ends, shown = time.monotonic() + 60, b""
    while text not in shown:
        assert time.monotonic() < ends, shown
        if select.select([terminal], [], [], 1)[0]:
            shown += os.read(terminal, 65536)
