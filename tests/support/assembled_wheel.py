"""A wheel of this checkout with the kernels that are compiled in it, within seconds and without network.

It is built from a copy of the tree. The C files are those that are there, where they are current. A stand-in
for the compiler makes no objects, and puts each kernel of the checkout where the linker would.

    python -m tests.support.assembled_wheel FOLDER
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("log_core", "protocols", "router", "spark", "subscriptions")
_FILES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")
_COMPILER = f"""#!/bin/sh
while [ $# -gt 0 ]; do
    if [ "$1" = -o ]; then
        case "$2" in
        *.so) cp "{ROOT}/src/${{2#build/lib*/}}" "$2" ;;
        *) : > "$2" ;;
        esac
    fi
    shift
done
"""


def assemble(folder: Path) -> Path:
    """The wheel, in that folder. Raises CalledProcessError, as when a kernel is not compiled here."""
    with tempfile.TemporaryDirectory(prefix="penstock-wheel-") as text:
        source = Path(text) / "source"
        ignore = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info")
        for name in (*FOLDERS, "src"):
            shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignore)
        for name in _FILES:
            shutil.copy(ROOT / name, source)
        compiler = Path(text) / "cc"
        compiler.write_text(_COMPILER)
        compiler.chmod(0o700)
        subprocess.run(
            [sys.executable, "setup.py", "-q", "bdist_wheel", "--dist-dir", str(folder.absolute())],
            check=True,
            cwd=source,
            env={**os.environ, "CC": str(compiler)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
    (wheel,) = folder.glob("penstock_gateway-*.whl")
    return wheel


if __name__ == "__main__":
    print(assemble(Path(sys.argv[1])))
