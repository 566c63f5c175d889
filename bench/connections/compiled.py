"""The loads in C, compiled when they are first needed."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
from pathlib import Path

__all__ = ["library"]


@functools.cache
def library(name: str) -> ctypes.CDLL:
    """`NAME.c` of this folder. Needs cc and OpenSSL's headers."""
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder, f"{name}.so")
        source = Path(__file__).with_name(f"{name}.c")
        words = ["cc", "-O2", "-shared", "-fPIC", "-o", str(built), str(source), "-lssl", "-lcrypto"]
        subprocess.run(words, check=True)
        return ctypes.CDLL(str(built))
