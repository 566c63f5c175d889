"""The wheel for a Python that only a later Debian has: from nothing to a message on a minimal one.

The root folder is made by mmdebstrap. pip installs there with the network of this machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.install.machine import debian_root, machine, need
from tests.install.serving import clean, gateway, send_and_read

_SUITE = "sid"
_AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
_ENVIRONMENT = "/srv/env"


def check(wheel: Path, version: str) -> None:
    """Raises AssertionError, CalledProcessError, NotHere."""
    need("mmdebstrap")
    packages = [f"python{version}", f"python{version}-venv", "ca-certificates"]
    # A program there finds the folder under the same name; /tmp is another one there.
    with debian_root(_SUITE, packages) as root, tempfile.TemporaryDirectory(dir="/var/tmp") as text:
        (root / text.lstrip("/")).mkdir()
        for file in ("/etc/resolv.conf", os.environ.get("PIP_CERT", _AUTHORITIES)):
            shutil.copy(file, root / file.lstrip("/"))
        shutil.copy(wheel, root / "srv")
        pip = [f"{_ENVIRONMENT}/bin/python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        for words in ([f"python{version}", "-m", "venv", _ENVIRONMENT], [*pip, f"/srv/{wheel.name}"]):
            subprocess.run(["chroot", str(root), *words], check=True, env=clean())
        with machine(root) as one:
            python = one.words([f"{_ENVIRONMENT}/bin/python"])
            with gateway([*python, "-m", "penstock"], Path(text)) as places:
                send_and_read(python, places, Path(text))
