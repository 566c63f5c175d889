"""Programs in Go that the tests run (`tests/e2e/go`)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

__all__ = ["build"]

_FOLDER = Path(__file__).parents[1] / "e2e" / "go"
_BUILD_S = 400
"""On a new machine the standard library is compiled, and modules are fetched."""


def build(package: str, to: Path) -> Path:
    """The program of a package ("." or "./native") in the file `to`; skips when there is no Go."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        pytest.skip("Go is not installed: apt-get install golang-go")
    done = subprocess.run(
        [go, "build", "-o", str(to), package],
        cwd=_FOLDER,
        capture_output=True,
        text=True,
        timeout=_BUILD_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return to
