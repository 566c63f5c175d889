"""The unit of the Debian package, as systemd judges it. Nothing is installed."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.install.errors import NotHere

_EXPOSURE = 20
"""The most that `systemd-analyze security` may say, in tenths."""


def check(package: Path) -> None:
    """Raises AssertionError, CalledProcessError, NotHere."""
    if shutil.which("systemd-analyze") is None:
        raise NotHere("needs systemd-analyze: apt-get install systemd")
    with tempfile.TemporaryDirectory(prefix="penstock-unit-") as text:
        root = Path(text)
        subprocess.run(["dpkg-deb", "--extract", str(package), str(root)], check=True)
        unit = root / "lib/systemd/system/penstock.service"
        assert "ExecStart=/usr/bin/penstock serve --config /etc/penstock/penstock.toml" in unit.read_text()
        judge = ["systemd-analyze", "security", "--offline=true", f"--threshold={_EXPOSURE}", "--no-pager"]
        subprocess.run([*judge, str(unit)], check=True, stdout=subprocess.DEVNULL)
