"""The wheels from nothing to a message: an empty environment gets one with its core dependencies.

The gateway starts from there, and the SDK of that environment, or the client alone in another one, sends a
message and reads it. Then paho and pika come into the environment, and messages go from MQTT and HTTP to
AMQP. Nothing of this checkout is imported.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.install.errors import NotHere
from tests.install.serving import environment, gateway, install, send_and_read, send_by_others

MOST_BYTES = 10_000_000
_BASELINE = "qemu-x86_64"
_CPU = "qemu64"
"""A CPU with SSE2 and SSE3 and nothing later."""
CLIENT_PARTS = """
import importlib, pkgutil, sys
import penstock
for module in pkgutil.walk_packages(penstock.__path__, "penstock."):
    importlib.import_module(module.name)
from penstock.protocols.native.codec import _gathering, _inbox, _records
from penstock.protocols.properties import _properties, _tables
for module in (_gathering, _inbox, _records, _properties, _tables):
    assert module.__file__.endswith(".py") == (sys.argv[1] == "pure"), module.__file__
"""


def interpreters() -> dict[str, str]:
    """The Pythons of this machine that wheels are built with, by the tag of a wheel, such as cp311."""
    found = subprocess.run([".ci/pythons"], check=True, capture_output=True, text=True).stdout.split()
    tag = "import sys; print(f'cp3{sys.version_info.minor}')"
    return {
        subprocess.run([one, "-I", "-c", tag], check=True, capture_output=True, text=True).stdout.strip(): one
        for one in found
    }


def check(wheel: Path, python: str) -> None:
    """Raises AssertionError, CalledProcessError."""
    assert wheel.stat().st_size < MOST_BYTES, f"{wheel.name} has {wheel.stat().st_size} bytes"
    with tempfile.TemporaryDirectory(prefix="penstock-install-") as text:
        folder = Path(text)
        made = environment(folder / "env", python, str(wheel))
        with gateway([str(made.with_name("penstock"))], folder) as places:
            send_and_read([str(made)], places, folder)
            install(made, "paho-mqtt", "pika")
            send_by_others(made, places, folder)


def check_baseline(wheel: Path, python: str) -> None:
    """The same on a CPU without SSE4.2 and AVX. Raises AssertionError, CalledProcessError, NotHere."""
    if shutil.which(_BASELINE) is None:
        raise NotHere(f"needs {_BASELINE}: apt-get install qemu-user")
    with tempfile.TemporaryDirectory(prefix="penstock-install-") as text:
        folder = Path(text)
        made = str(environment(folder / "env", python, str(wheel)))
        emulated = [_BASELINE, "-cpu", _CPU, made]
        with gateway([*emulated, "-m", "penstock"], folder) as places:
            send_and_read(emulated, places, folder)


def check_client(client: Path, wheel: Path, python: str) -> None:
    """The client alone, against a gateway of the wheel. Raises AssertionError, CalledProcessError."""
    with tempfile.TemporaryDirectory(prefix="penstock-install-") as text:
        folder = Path(text)
        made = environment(folder / "client", python, str(client))
        kind = "pure" if client.name.endswith("-none-any.whl") else "compiled"
        subprocess.run([str(made), "-I", "-c", CLIENT_PARTS, kind], check=True)
        server = environment(folder / "env", python, str(wheel))
        with gateway([str(server.with_name("penstock"))], folder) as places:
            send_and_read([str(made)], places, folder)
