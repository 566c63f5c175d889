"""The order of the tests, and their processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.brokers import ROOT
from tests.support.limits import LIMIT_S
from tests.support.scheduling import LONG, TOGETHER


@pytest.mark.parametrize("place", sorted({*LONG, *TOGETHER}))
def test_each_long_unit_is_there(place: str) -> None:
    path = ROOT / place
    assert path.is_dir() if place.endswith("/") else path.is_file()


TESTS = """
import os
import pytest

@pytest.mark.parametrize("n", range(4))
def test_it(n):
    with open(os.environ["RAN"], "a") as file:
        print(os.path.basename(__file__), os.environ["PYTEST_XDIST_WORKER"], file=file)
"""


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the tests of a folder in two processes."""
    words = ["-q", "-n", "2", "--dist", "loadfile", "--import-mode=importlib"]
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider"),
            *("-p", "tests.support.scheduling", *words),
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "src"))), "RAN": "ran"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def test_each_module_runs_in_one_process_the_long_ones_first(tmp_path: Path) -> None:
    rabbitmq = tmp_path / "tests" / "e2e" / "rabbitmq"
    rabbitmq.mkdir(parents=True)
    (tmp_path / "pytest.ini").touch()
    for place in (
        tmp_path / "test_a.py",
        tmp_path / "test_b.py",
        rabbitmq / "test_c.py",
        rabbitmq / "test_d.py",
    ):
        place.write_text(TESTS)
    done = run(tmp_path)
    assert "16 passed" in done.stdout, done.stdout + done.stderr
    lines = [line.split() for line in (tmp_path / "ran").read_text().splitlines()]
    places = {module: {process for name, process in lines if name == module} for module, _ in lines}
    assert len(places) == 4 and all(len(processes) == 1 for processes in places.values()), places
    assert places["test_c.py"] == places["test_d.py"], "they share a broker"
    first = next(name for name, process in lines if {process} == places["test_c.py"])
    assert first == "test_c.py", "it is among the long ones"


SHARED = """
import pathlib
import pytest

@pytest.fixture(scope="session")
def shared():
    yield
    pathlib.Path("ended").touch()
"""


def test_a_process_that_is_terminated_ends_its_fixtures_first(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(SHARED)
    (tmp_path / "test_ends.py").write_text(
        "import os, signal\ndef test_ends(shared): os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    done = run(tmp_path)
    assert done.returncode != 0, done.stdout + done.stderr
    assert (tmp_path / "ended").exists(), "brokers of the whole run would go on"
