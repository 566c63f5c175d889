"""The wheel: every module, kernel and typing file of every folder is in it, and nothing else.

Its kernels are those of this checkout (`assembled_wheel`). All the tests that import them show that they
can be compiled.
"""

from __future__ import annotations

import sysconfig
import zipfile

import pytest

from tests.support.assembled_wheel import FOLDERS, ROOT, assemble

SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


pytestmark = pytest.mark.timeout(900)  # where no C files are there, all kernels are translated


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names in the wheel."""
    wheel = assemble(tmp_path_factory.mktemp("wheel"))
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
