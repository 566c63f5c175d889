"""The Debian package by dpkg on a minimal Debian: installed, upgraded, removed, purged.

After each step a client of MQTT publishes and reads there. systemd does not run on such a machine: the unit's
command is started as its user would, and says on systemd's socket when it is ready.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.install.machine import CLEAN, Machine, debian, need

SUITE = "bookworm"
USER = "64321:64321"
"""DynamicUser takes one from 61184 to 65519."""
_LIMIT_S = 120.0
_OLDER = "0.0.1"
_CHANGE = "\n# A change of the administrator.\n"
_UNIT = "lib/systemd/system/penstock.service"
_CONFIG = "etc/penstock/penstock.toml"
_STATE = "var/lib/penstock"


def check(package: Path) -> None:
    """Raises AssertionError, CalledProcessError, NotHere."""
    need("dpkg-deb")
    with debian(SUITE, ["python3", "mosquitto-clients"]) as machine:
        _make_older(package, machine.root / "srv/older.deb")
        shutil.copy(package, machine.root / "srv/newer.deb")
        _installed(machine)
        _upgraded(machine)
        _removed(machine)
        _purged(machine)


def _make_older(package: Path, older: Path) -> None:
    """The same program as a lower version, with another configuration of the package."""
    folder = older.with_suffix("")
    subprocess.run(["dpkg-deb", "--raw-extract", str(package), str(folder)], check=True)
    control = folder / "DEBIAN/control"
    lines = control.read_text().splitlines(keepends=True)
    control.write_text(
        "".join(f"Version: {_OLDER}\n" if line.startswith("Version:") else line for line in lines)
    )
    with (folder / _CONFIG).open("a") as config:
        config.write("# Of an older version.\n")
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(folder), str(older)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    shutil.rmtree(folder)


def _installed(machine: Machine) -> None:
    machine.run("dpkg", "--install", "/srv/older.deb")
    assert _version(machine) == _OLDER
    with _service(machine):
        publish(machine, 1)
        read(machine, 1)
        publish(machine, 2)
    print("debian: installed, and a message went through")


def _upgraded(machine: Machine) -> None:
    with (machine.root / _CONFIG).open("a") as config:
        config.write(_CHANGE)
    with _service(machine):
        # As apt does without a terminal: a changed configuration stays.
        machine.run("dpkg", "--force-confold", "--install", "/srv/newer.deb")
        publish(machine, 3)
    assert _version(machine) != _OLDER
    assert (machine.root / _CONFIG).read_text().endswith(_CHANGE)
    assert (machine.root / f"{_CONFIG}.dpkg-dist").is_file()
    with _service(machine):
        read(machine, 2)
        read(machine, 3)
        publish(machine, 4)
    print("debian: upgraded, and the messages and the changed configuration were there")


def _removed(machine: Machine) -> None:
    machine.run("dpkg", "--remove", "penstock")
    for path in ("usr/lib/penstock", "usr/bin/penstock", _UNIT):
        assert not (machine.root / path).exists(), f"removed, but /{path} stays"
    assert (machine.root / _CONFIG).is_file()
    machine.run("dpkg", "--force-confold", "--install", "/srv/newer.deb")
    with _service(machine):
        read(machine, 4)
    print("debian: removed and installed again, and the messages were there")


def _purged(machine: Machine) -> None:
    said = machine.run("sh", "-c", "dpkg --purge penstock 2>&1")
    assert f"the messages in /{_STATE} stay" in said, said
    assert any((machine.root / _STATE).iterdir())
    assert not (machine.root / "etc/penstock").exists()
    machine.run("dpkg", "--install", "/srv/newer.deb")
    with _service(machine):
        publish(machine, 5)
        read(machine, 5)
    machine.run("debconf-set-selections", input="penstock penstock/purge-messages boolean true\n")
    machine.run("dpkg", "--purge", "penstock")
    assert not (machine.root / _STATE).exists()
    print("debian: purged, and the messages stayed until debconf was told to remove them")


@contextlib.contextmanager
def _service(machine: Machine) -> Iterator[None]:
    """The unit's command, until the block ends: it is ready before, and stops without an error."""
    unit = (machine.root / _UNIT).read_text()
    (command,) = [
        line.removeprefix("ExecStart=") for line in unit.splitlines() if line.startswith("ExecStart=")
    ]
    machine.run(
        "install", "-d", "-m", "700", "-o", USER.split(":")[0], "-g", USER.split(":")[1], f"/{_STATE}"
    )
    notify = machine.root / "srv/notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(notify))
        notify.chmod(0o777)
        manager.settimeout(_LIMIT_S)
        gateway = machine.start(command.split(), user=USER, env={**CLEAN, "NOTIFY_SOCKET": "/srv/notify"})
        try:
            assert manager.recv(4096).startswith(b"READY=1")
            yield
            gateway.send_signal(signal.SIGTERM)
            assert gateway.wait(_LIMIT_S) == 0, "the gateway did not stop by SIGTERM"
        finally:
            gateway.kill()
            gateway.wait()
            notify.unlink()


def publish(machine: Machine, number: int) -> None:
    """A message of a topic of its own, which waits in a session of its own."""
    machine.run(*_reader(number), "-E")
    machine.run("mosquitto_pub", "-q", "1", "-t", f"weather/{number}", "-m", f"value {number}")


def read(machine: Machine, number: int) -> None:
    """Take that message from its session."""
    said = machine.run(*_reader(number), "-C", "1", "-W", str(int(_LIMIT_S)))
    assert said.strip() == f"value {number}", said


def _reader(number: int) -> tuple[str, ...]:
    return ("mosquitto_sub", "-c", "-i", f"reader-{number}", "-q", "1", "-t", f"weather/{number}")


def _version(machine: Machine) -> str:
    return machine.run("dpkg-query", "--show", "--showformat=${Version}", "penstock")
