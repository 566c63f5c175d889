"""The Debian package under systemd: a minimal Debian boots, and its systemd runs the service.

The unit's user, folders, readiness, watchdog, restart and reload are systemd's own here; `debian` plays its
part where no machine may boot. A message waits in a session of MQTT over all of it.
"""

from __future__ import annotations

import contextlib
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.install.debian import SUITE, publish, read
from tests.install.errors import NotHere
from tests.install.machine import HOSTS, Machine, debian_root, need
from tests.install.serving import LIMIT_S

_DYNAMIC = range(61184, 65520)
"""The users that DynamicUser takes."""
_WATCHDOG_S = 5
"""Shorter than the unit's, for the sake of this check."""


class Booted(Machine):
    """A machine whose systemd has booted. Its programs run beside that, in all of its namespaces."""

    def __init__(self, root: Path) -> None:
        words = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--private-network", "--boot"]
        with (root.parent / "console").open("wb") as console:
            holder = subprocess.Popen(
                [*words, f"--directory={root}"], stdin=subprocess.DEVNULL, stdout=console, stderr=console
            )
        super().__init__(root, holder)
        self._first = ""

    def begin(self) -> None:
        """Wait until it has booted. Raises AssertionError."""
        _until("systemd-nspawn has no child", self._has_first)
        _until("systemd does not boot", lambda: self.state("is-system-running") in ("running", "degraded"))

    def end(self) -> None:
        """It shuts down, or is ended."""
        self._holder.terminate()
        try:
            self._holder.wait(30)
        finally:
            super().end()

    def state(self, *words: str) -> str:
        """The output of systemctl; its exit code does not matter."""
        return subprocess.run(
            self.words(["systemctl", *words]), capture_output=True, text=True, stdin=subprocess.DEVNULL
        ).stdout.strip()

    def words(self, command: Sequence[str], *, user: str = "0:0") -> list[str]:
        """The command as this machine has to call it; as root alone."""
        assert user == "0:0"
        spaces = ["--mount", "--uts", "--ipc", "--net", "--pid", "--root"]
        return ["nsenter", f"--target={self._first}", *spaces, *command]

    def _has_first(self) -> bool:
        """Whether the machine's first process is there."""
        assert self._holder.poll() is None, (self.root.parent / "console").read_text(errors="replace")
        nspawn = self._holder.pid
        children = Path(f"/proc/{nspawn}/task/{nspawn}/children").read_text().split()
        self._first = children[0] if children else ""
        return bool(children) and Path(f"/proc/{self._first}/comm").read_text().strip() == "systemd"


def check(package: Path) -> None:
    """Raises AssertionError, CalledProcessError, NotHere."""
    need("systemd-nspawn", "nsenter")
    packages = ["python3", "mosquitto-clients", "systemd-sysv", "dbus"]
    with debian_root(SUITE, packages) as root:
        shutil.copy(package, root / "srv/penstock.deb")
        (root / "etc/hosts").write_text(HOSTS)
        _may_open(root)
        with _boot(root) as machine:
            machine.run("dpkg", "--install", "/srv/penstock.deb")
            _wait_active(machine)
            _runs_as_its_own_user(machine)
            publish(machine, 1)
            _reloads(machine)
            _comes_back(machine, "KILL", "after kill -9")
            _comes_back(machine, "STOP", "by the watchdog")
            read(machine, 1)
            machine.run("systemctl", "stop", "penstock")
            assert machine.state("show", "--value", "--property=Result", "penstock") == "success"
            machine.run("dpkg", "--purge", "penstock")
            assert (machine.root / "var/lib/private/penstock").is_dir()


@contextlib.contextmanager
def _boot(root: Path) -> Iterator[Booted]:
    machine = Booted(root)
    try:
        try:
            machine.begin()
        except AssertionError as error:
            raise NotHere(f"may not boot a machine: {error}") from error
        yield machine
    finally:
        machine.end()


def _may_open(root: Path) -> None:
    """Say in a drop-in how the unit differs here: the watchdog, and files if this machine may open fewer."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    changes = f"[Service]\nWatchdogSec={_WATCHDOG_S}\n"
    if 0 < most < 1_048_576:
        changes += f"LimitNOFILE={most}\n"
    folder = root / "etc/systemd/system/penstock.service.d"
    folder.mkdir(parents=True)
    (folder / "here.conf").write_text(changes)


def _runs_as_its_own_user(machine: Booted) -> None:
    pid = machine.state("show", "--value", "--property=MainPID", "penstock")
    status = machine.run("cat", f"/proc/{pid}/status")
    (user,) = [int(line.split()[1]) for line in status.splitlines() if line.startswith("Uid:")]
    assert user in _DYNAMIC, f"the service runs as user {user}"
    assert "\nCapEff:\t0000000000000000\n" in status, status
    data = (machine.root / "var/lib/private/penstock").stat()
    assert (data.st_uid, data.st_mode & 0o777) == (user, 0o700)
    assert "serves amqp at 127.0.0.1:5672" in machine.state("status", "penstock")
    print("booted: systemd runs the service as a user of its own")


def _reloads(machine: Booted) -> None:
    config = machine.root / "etc/penstock/penstock.toml"
    config.write_text(config.read_text() + '\n[server]\nlog_level = "debug"\n')
    machine.run("systemctl", "reload", "penstock")
    _until(
        "no word of the reload in the journal",
        lambda: "server.log_level" in machine.run("journalctl", "--unit=penstock", "--no-pager"),
    )
    print("booted: reloaded")


def _comes_back(machine: Booted, signal: str, how: str) -> None:
    before = machine.state("show", "--value", "--property=MainPID", "penstock")
    began = time.monotonic()
    machine.run("systemctl", "kill", "--kill-who=main", f"--signal={signal}", "penstock")
    _until(
        f"the service does not come back {how}",
        lambda: machine.state("show", "--value", "--property=MainPID", "penstock") not in (before, "0"),
    )
    _wait_active(machine)
    print(f"booted: back {how} in {time.monotonic() - began:.1f} s")


def _wait_active(machine: Booted) -> None:
    """Active means ready: the unit's type is notify."""
    try:
        _until("the service is not active", lambda: machine.state("is-active", "penstock") == "active")
    except AssertionError:
        print(machine.state("status", "--no-pager", "--full", "penstock"))
        raise


def _until(failure: str, condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, failure
        time.sleep(0.2)
