"""The modules that a start loads: none that only some gateways or few connections need."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.brokers import ROOT


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    """The names of the modules."""
    code = "import sys, penstock.gateway.server; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "module",
    [
        "cryptography",
        "difflib",
        "email",
        "h2",
        "jwt",
        "numpy",
        "opentelemetry",
        "pamqp",
        "penstock.protocols.amqp10.session",
        "penstock.protocols.http.webhooks.delivery.worker",
        "penstock.sdk",
        "penstock.telemetry",
        "penstock.workers.supervisor",
        "tomllib",
        "websockets",
    ],
)
def test_a_start_loads_nothing_it_does_not_need(loaded: set[str], module: str) -> None:
    assert "penstock.gateway.server" in loaded and module not in loaded


def test_a_start_loads_few_modules() -> None:
    """Loading is most of the CPU of a start: 0.3 ms for each module."""
    code = "import sys, penstock.cli.local.serve, penstock.gateway.server; print(len(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 820


def test_classes_of_fields_are_made_lazily() -> None:
    """The standard library's dataclass compiles the methods of each class: a third of the CPU of a start."""
    found = [
        str(path.relative_to(ROOT))
        for folder in ("src", "protocols", "router", "log_core", "subscriptions")
        for path in (ROOT / folder).rglob("*.py")
        if "\nfrom dataclasses import" in (text := path.read_text())
        and "dataclass" in text.split("\nfrom dataclasses import")[1].split("\n")[0].replace(",", "").split()
    ]
    assert found == []
