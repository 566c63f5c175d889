"""Finds the compiled kernels: every *.pyx under src/penstock becomes the module of the same name.

The rest of the packaging is in pyproject.toml. Environment variables change what is built:

    PENSTOCK_ASAN=1         kernels with the address and undefined-behaviour sanitizers (`make asan`)
    PENSTOCK_NO_KERNELS=1   no kernels: the Makefile builds them in place by a call of its own
    PENSTOCK_FAST_BUILD=1   kernels without optimisation, to try a change quickly
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
import time
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.modified import newer_group

ROOT = Path(__file__).parent
SOURCE = ROOT / "src"
CORES = os.cpu_count() or 1

# No debug information: Python's own flags ask for it, and it makes the kernels eight times as large.
FLAGS = ["-O3", "-g0", "-fno-strict-aliasing", "-Wno-unused-function", "-Wno-unreachable-code"]
LINK: list[str] = []
if os.environ.get("PENSTOCK_ASAN"):
    FLAGS = [
        "-O1",
        "-g",
        "-fno-omit-frame-pointer",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
    ]
    LINK = ["-fsanitize=address,undefined"]
elif os.environ.get("PENSTOCK_FAST_BUILD"):
    FLAGS = ["-O0", "-w"]


SHARED = "penstock._cyutility"
"""Holds Cython's own code for memory views once: each kernel would compile a copy of it, a megabyte of C."""


class Build(build_ext):
    """Says how far it is and how long the rest may take, by the size of the C that is left."""

    def build_extensions(self) -> None:
        """The largest first: whichever core ends last then ends soon."""
        sizes = {one.name: sum(os.path.getsize(source) for source in one.sources) for one in self.extensions}
        self.extensions.sort(key=lambda one: -sizes[one.name])
        self._waiting = {one.name: sizes[one.name] for one in self.extensions if self._is_older(one)}
        self._count, self._bytes = len(self._waiting), sum(self._waiting.values())
        self._lock = threading.Lock()
        self._began = time.monotonic()
        super().build_extensions()

    def _is_older(self, ext: Extension) -> bool:
        """Whether it has to be compiled, as `build_extension` decides."""
        built = self.get_ext_fullpath(ext.name)
        return bool(self.force or newer_group([*ext.sources, *ext.depends], built, "newer"))

    def build_extension(self, ext: Extension) -> None:
        """Build one, and say so when it had to be compiled."""
        super().build_extension(ext)
        with self._lock:
            if self._waiting.pop(ext.name, None) is None:
                return
            left = sum(self._waiting.values())
            left_s = (time.monotonic() - self._began) * left / max(self._bytes - left, 1)
            count = f"[{self._count - len(self._waiting)}/{self._count}]"
            print(f"penstock: {count} {ext.name}, about {left_s:.0f} s left", flush=True)


class Progress(io.TextIOBase):
    """Standard output without the line that Cython has for each changed kernel before it begins.

    Its processes are forks of this one: their lines, `[i/n]` in front, pass through here, too.
    """

    def __init__(self) -> None:
        self._out = sys.stdout
        self._line = ""

    def write(self, text: str) -> int:
        """Pass on whole lines, at once."""
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            if not line.startswith("Compiling "):
                self._out.write(f"{line}\n")
        self._out.flush()
        return len(text)


def kernels() -> list[Extension]:
    """One extension per .pyx file, named by its place under src/ (links are followed)."""
    if os.environ.get("PENSTOCK_NO_KERNELS"):
        return []
    include = "src/penstock/log_core/batch"  # not by the link's target: a source distribution has no links
    headers = sorted(str(path.relative_to(ROOT)) for path in (ROOT / include).glob("*.h"))
    found = []
    for folder, _, files in os.walk(SOURCE / "penstock", followlinks=True):
        for name in sorted(files):
            if name.endswith(".pyx"):
                path = (Path(folder) / name).relative_to(ROOT)
                module = ".".join(path.relative_to("src").with_suffix("").parts)
                found.append(
                    Extension(
                        module,
                        [str(path)],
                        include_dirs=[include],
                        depends=headers,
                        extra_compile_args=FLAGS,
                        extra_link_args=LINK,
                    )
                )
    found.append(
        Extension(SHARED, ["src/penstock/_cyutility.c"], extra_compile_args=FLAGS, extra_link_args=LINK)
    )
    return sorted(found, key=lambda extension: extension.name)


def translated() -> list[Extension]:
    """The kernels with their C files, which are written anew where they are older."""
    with contextlib.redirect_stdout(Progress()):
        extensions: list[Extension] = cythonize(
            kernels(),
            include_path=[str(SOURCE)],
            language_level=3,
            shared_utility_qualified_name=SHARED,
            nthreads=CORES,
            # Also with -q: it says [i/n] of each file that it translates.
            quiet=False,
            compiler_directives={
                "boundscheck": False,
                "wraparound": False,
                "initializedcheck": False,
                "cdivision": True,
                "embedsignature": True,
                "freethreading_compatible": False,
            },
        )
        return extensions


if __name__ == "__main__":
    setup(
        ext_modules=translated(),
        cmdclass={"build_ext": Build},
        options={"build_ext": {"parallel": CORES}},
    )
