"""The Debian package from nothing to a message: `make deb-checks`.

The package is unpacked beside the system, and its unit is judged. Then Debian's python3 starts the gateway
from there, and the SDK of the package sends a message and reads it. Nothing of this checkout is imported.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.install.wheel import serves

_PYTHON = "/usr/bin/python3"
_EXPOSURE = 20
"""The most that `systemd-analyze security` may say, in tenths."""


def check(package: Path) -> None:
    """Raises AssertionError, CalledProcessError."""
    with tempfile.TemporaryDirectory(prefix="penstock-deb-") as text:
        folder = Path(text)
        root = folder / "root"
        subprocess.run(["dpkg-deb", "--extract", str(package), str(root)], check=True)
        unit = root / "lib/systemd/system/penstock.service"
        assert "ExecStart=/usr/bin/penstock serve --config /etc/penstock/penstock.toml" in unit.read_text()
        judge = ["systemd-analyze", "security", "--offline=true", f"--threshold={_EXPOSURE}", "--no-pager"]
        subprocess.run([*judge, str(unit)], check=True, stdout=subprocess.DEVNULL)
        config = root / "etc/penstock/penstock.toml"
        prefix = f"import sys; sys.path.insert(0, {str(root / 'usr/lib/penstock')!r})\n"
        start = f"{prefix}from penstock.cli import main\nsys.exit(main(sys.argv[1:]))"
        python = [_PYTHON, "-I", "-c"]
        subprocess.run([*python, start, "config", "show", "--config", str(config)], check=True, stdout=-3)
        serves([*python, start], [*python], prefix, folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("package", type=Path)
    try:
        check(parser.parse_args().package.absolute())
    except (AssertionError, subprocess.SubprocessError) as error:
        sys.exit(f"the package does not work: {error}")
