"""Each way to install penstock from nothing to a served message: `make install-checks`, `make install-smoke`.

    python -m tests.install DIST

DIST has the packages. A way that this machine cannot run is named at the end, with the reason. The exit code
is 1 when a way does not work.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.install import booted, container, debian, later, unit, wheel
from tests.install.errors import NotHere

_OF_LATER_DEBIAN = ("cp313", "cp314")
_TAGS = ("cp311", "cp312", "cp313", "cp314")
Check = Callable[[], None]


def ways(dist: Path) -> Iterator[tuple[str, Check]]:
    """The name of each way, and what tries it."""
    pythons = wheel.interpreters()

    def built(pattern: str) -> Path:
        found = sorted(dist.glob(pattern))
        if not found:
            raise NotHere(f"{dist} has no {pattern}, which `make install-checks` builds")
        return found[-1].absolute()

    def gateway(tag: str) -> Path:
        return built(f"penstock_gateway-*-{tag}-{tag}-*.whl")

    def python(tag: str) -> str:
        if tag not in pythons:
            raise NotHere(f"this machine has no Python 3.{tag[3:]} with venv and headers")
        return pythons[tag]

    def check_wheel(tag: str) -> None:
        if tag in pythons or tag not in _OF_LATER_DEBIAN:
            wheel.check(gateway(tag), python(tag))
        else:
            later.check(gateway(tag), f"3.{tag[3:]}")

    for tag in _TAGS:
        yield f"wheel, Python 3.{tag[3:]}", lambda tag=tag: check_wheel(tag)
    tag = next(iter(pythons), _TAGS[0])
    yield "wheel, baseline CPU", lambda: wheel.check_baseline(gateway(tag), python(tag))
    for name, pattern in (("compiled", f"{tag}-{tag}-manylinux*"), ("in Python", "py3-none-any")):
        yield (
            f"client, {name}",
            lambda pattern=pattern: wheel.check_client(
                built(f"penstock_client-*-{pattern}.whl"), gateway(tag), python(tag)
            ),
        )
    yield "Debian package, its unit", lambda: unit.check(built("penstock_*.deb"))
    yield "Debian package, by dpkg", lambda: debian.check(built("penstock_*.deb"))
    yield "Debian package, by systemd", lambda: booted.check(built("penstock_*.deb"))
    yield "container image", lambda: container.check(built("penstock.oci.tar"))


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dist", type=Path)
    parser.add_argument("--only", default="", help="ways whose name has this in it")
    arguments = parser.parse_args()
    results = []
    for name, check in ways(arguments.dist):
        if arguments.only not in name:
            continue
        print(f"== {name}", flush=True)
        try:
            check()
            results.append((name, "works"))
        except NotHere as reason:
            results.append((name, f"not run here: {reason}"))
        except (AssertionError, OSError, subprocess.SubprocessError):
            traceback.print_exc()
            results.append((name, "FAILED"))
    print()
    for name, result in results:
        print(f"{name:28}{result}")
    return 1 if any(result == "FAILED" for _, result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
