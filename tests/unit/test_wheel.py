"""The wheel: every module, kernel and typing file of every folder is in it, and nothing else.

The wheel is built without network from a copy of the tree, so that compiled files of this checkout cannot
help it. To be quick, the C files are those that are there, where they are current, and a stand-in for the
compiler makes empty files of them: that they can be compiled is shown by all the tests that import kernels.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ["log_core", "protocols", "router", "spark", "subscriptions"]
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


pytestmark = pytest.mark.timeout(900)  # where no C files are there, all kernels are translated

COMPILER = """#!/bin/sh
while [ $# -gt 0 ]; do
    [ "$1" = -o ] && : > "$2"
    shift
done
"""


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names in the wheel."""
    place = tmp_path_factory.mktemp("wheel")
    source = place / "source"
    ignore = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info", "node_modules")
    for name in (*FOLDERS, "src", "tests"):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignore)
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    compiler = place / "cc"
    compiler.write_text(COMPILER)
    compiler.chmod(0o700)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-index"]
    subprocess.run(
        [*pip, "--no-deps", "--no-build-isolation", "--wheel-dir", str(place), str(source)],
        check=True,
        env={**os.environ, "CC": str(compiler)},
        stdin=subprocess.DEVNULL,
    )
    (wheel,) = place.glob("penstock_gateway-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def expected(pattern: str) -> set[str]:
    """The places in the wheel of files matching `pattern`, in the folders and in the package itself."""
    here = {path for folder in FOLDERS for path in (ROOT / folder).rglob(pattern)}
    own = {path.name for path in (ROOT / "src/penstock").glob(pattern)}
    return {f"penstock/{path.relative_to(ROOT)}" for path in here} | {f"penstock/{name}" for name in own}


@pytest.mark.parametrize("pattern", ["*.py", "*.pyi", "*.pxd"])
def test_every_file_of_the_folders_is_in_the_wheel(contents: set[str], pattern: str) -> None:
    assert expected(pattern) <= contents


def test_every_kernel_is_compiled_into_the_wheel(contents: set[str]) -> None:
    kernels = {name.removesuffix(".pyx") + SUFFIX for name in expected("*.pyx")}
    shared = f"penstock/_cyutility{SUFFIX}"  # Cython's own code, of all of them
    assert kernels | {shared} == {name for name in contents if name.endswith(".so")}


def test_the_modules_of_the_package_itself_are_in_the_wheel(contents: set[str]) -> None:
    package = ROOT / "src" / "penstock"
    modules = {str(path.relative_to(ROOT / "src")) for path in package.rglob("*.py")}
    assert modules <= contents
    assert "penstock/py.typed" in contents


def test_nothing_else_is_in_the_wheel_but_what_pyspark_looks_for(contents: set[str]) -> None:
    tops = {name.partition("/")[0] for name in contents}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"penstock", "pyspark_penstock.py"}
    assert not [name for name in contents if "/tests/" in name or name.endswith((".pyx", ".c", ".pyc"))]


def test_the_start_program_of_spark_workers_is_in_the_wheel(contents: set[str]) -> None:
    assert "penstock/spark/worker-python" in contents


def test_the_command_and_the_licence_are_in_the_wheel(contents: set[str]) -> None:
    names = {name.partition(".dist-info/")[2] for name in contents if ".dist-info/" in name}
    assert {"entry_points.txt", "licenses/LICENSE"} <= names
