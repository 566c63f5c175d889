"""The completions of bash, zsh and fish, by the shells themselves where they are installed."""

from __future__ import annotations

import argparse
import os
import pty
import select
import shutil
import subprocess
import time
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from penstock.cli.commands import FOREIGN, MODULES
from penstock.cli.parsing import parser_of
from tests.support.commands import Run

pytestmark = pytest.mark.penstock_only("this is about the command penstock")


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


@cache
def expected() -> dict[str, list[str]]:
    """Beginning of a command line -> all that it may go on with: verbs, options, values of options."""
    found = {
        "penstock ": [*MODULES, "--help", "--version"],
        "penstock que": ["queues"],
        "penstock rabbitmqctl list_q": ["list_queues"],
        "penstock queues create q --type stream --arg": ["--arguments"],
    }
    for name in FOREIGN:
        verbs = import_module(f"penstock.cli.{MODULES[name][0]}").VERBS
        found[f"penstock {name} "] = [*verbs]

    def walk(parser: argparse.ArgumentParser, line: str) -> None:
        options = [option for action in parser._actions for option in action.option_strings]
        found[f"{line} --"] = [option for option in options if option.startswith("--")]
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                found[f"{line} "] = [*action.choices, *options]
                for verb, below in action.choices.items():
                    walk(below, f"{line} {verb}")
            elif action.choices is not None:
                for option in action.option_strings:
                    found[f"{line} {option} "] = [str(one) for one in action.choices]

    for name in MODULES:
        if name not in FOREIGN:
            walk(parser_of(name), f"penstock {name}")
    return found


def differing(told: str) -> list[str]:
    """Lines with another completion than expected; `told` has each line, and what the shell offered."""
    offered = dict(one.split("\n", 1) for one in told.split("\0")[:-1])
    wanted = expected()
    assert len(wanted) > 200 and offered.keys() == wanted.keys()
    return [line for line in wanted if sorted(offered[line].split()) != sorted(wanted[line])]


def test_bash_completes_every_command(run: Run, tmp_path: Path) -> None:
    file = script(run, "bash", tmp_path)
    asked = (
        'source "$0"; while IFS= read -r line; do COMP_WORDS=($line); '
        '[[ $line == *" " ]] && COMP_WORDS+=(""); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); '
        '_penstock; printf "%s\\n%s\\0" "$line" "${COMPREPLY[*]}"; done'
    )
    assert differing(_told(["bash", "-c", asked, str(file)], tmp_path)) == []


def test_fish_completes_every_command(run: Run, tmp_path: Path) -> None:
    file = script(run, "fish", tmp_path)
    folder = tmp_path / "empty"
    folder.mkdir()
    asked = (
        f"source {file}; cd {folder}; while read -l --null line; "
        "printf '%s\\n%s\\0' $line (complete -C $line | string collect); end"
    )
    assert differing(_told(["fish", "--no-config", "-c", asked], tmp_path, between="\0")) == []


def _told(words: list[str], home: Path, between: str = "\n") -> str:
    """The output of a shell that reads all lines."""
    lines = "".join(f"{line}{between}" for line in expected())
    environment = {**os.environ, "HOME": str(home)}
    ran = subprocess.run(words, input=lines, capture_output=True, text=True, env=environment, check=True)
    assert ran.stderr == ""
    return ran.stdout


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
