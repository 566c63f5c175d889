"""The layout: folders at the root, one link each under src/penstock, and what importing a part loads.

A missing link would be silent otherwise: the wheel would be built without that folder.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import penstock

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "penstock"
FOLDERS = ["log_core", "protocols", "router", "spark", "subscriptions"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_is_linked_and_the_link_points_home(folder: str) -> None:
    link = PACKAGE / folder
    assert link.is_symlink(), "run `make links`"
    assert str(link.readlink()) == f"../../{folder}"
    assert link.resolve() == ROOT / folder


def test_there_is_no_other_link() -> None:
    assert sorted(path.name for path in PACKAGE.iterdir() if path.is_symlink()) == FOLDERS


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_of_modules_is_a_package(folder: str) -> None:
    sources = (*(ROOT / folder).rglob("*.py"), *(ROOT / folder).rglob("*.pyx"))
    assert sources
    for module in sources:
        assert (module.parent / "__init__.py").is_file(), module


def test_the_package_is_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()


def test_every_kernel_has_its_documented_face() -> None:
    kernels = [kernel for folder in FOLDERS for kernel in (ROOT / folder).rglob("*.pyx")]
    missing = [
        str(kernel.relative_to(ROOT)) for kernel in kernels if not kernel.with_suffix(".pyi").is_file()
    ]
    assert missing == []


@pytest.mark.parametrize("part", ["spark", "config", "errors"])
def test_importing_a_leaf_part_loads_no_other(part: str) -> None:
    program = f"import sys, penstock.{part}; print(*sorted(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    mine = {name for name in ran.stdout.split() if name.startswith("penstock")}
    allowed = {"penstock", f"penstock.{part}", "penstock.errors", "penstock.lazy_dataclass"}
    assert {name for name in mine if not name.startswith(f"penstock.{part}.")} <= allowed


def test_the_version_is_that_of_the_changelog() -> None:
    newest = re.search(r"^## \[([0-9.]+|Unreleased)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] in ("Unreleased", penstock.__version__)
