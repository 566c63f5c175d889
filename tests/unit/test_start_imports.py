"""The modules that a start loads: none that only some gateways or few connections need."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module",
    [
        "cryptography",
        "email",
        "h2",
        "jwt",
        "numpy",
        "penstock.protocols.amqp10.session",
        "penstock.sdk",
        "websockets",
    ],
)
def test_a_start_loads_nothing_it_does_not_need(module: str) -> None:
    code = f"import sys, penstock.server; print({module!r} in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_start_loads_few_modules() -> None:
    """Loading is most of the CPU of a start: 0.6 ms for each module."""
    code = "import sys, penstock.cli.serve, penstock.server; print(len(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 800
