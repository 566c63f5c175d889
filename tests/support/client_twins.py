"""The SDK's kernels as the client has them where nothing is compiled: modules in Python."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

PURE = Path(__file__).parents[2] / "deploy/client/pure"
NAMES = (
    "penstock.protocols.properties._tables",
    "penstock.protocols.properties._properties",
    "penstock.protocols.native.codec._records",
    "penstock.protocols.native.codec._inbox",
    "penstock.protocols.native.codec._gathering",
)
"""Each after those that it imports."""


def twins() -> SimpleNamespace:
    """The modules, each by the last part of its name. They import one another; nobody else gets them."""
    before = {name: sys.modules.pop(name, None) for name in NAMES}
    found = SimpleNamespace()
    try:
        for name in NAMES:
            spec = importlib.util.spec_from_file_location(name, PURE / f"{name.replace('.', '/')}.py")
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            spec.loader.exec_module(module)
            setattr(found, name.rpartition(".")[2], module)
    finally:
        for name, module_before in before.items():
            if module_before is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module_before
    return found
