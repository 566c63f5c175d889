"""The modules that a start loads: none that only gateways with tokens or expiring certificates need."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["jwt", "cryptography.x509", "penstock.sdk", "numpy"])
def test_a_start_loads_nothing_it_does_not_need(module: str) -> None:
    code = f"import sys, penstock.server; print({module!r} in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
