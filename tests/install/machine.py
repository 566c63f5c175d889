"""A small machine to install on: a root folder with mounts and a loopback network of its own.

Debian's packages are taken by mmdebstrap, through the sources of the machine that runs this. Root is needed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.install.errors import NotHere

CLEAN = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
HOSTS = "127.0.0.1 localhost\n::1 localhost\n"
_COMMAND_S = 600.0
_PACKAGES = {
    "chroot": "coreutils",
    "dpkg-deb": "dpkg",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "systemd-nspawn": "systemd-container",
    "unshare": "util-linux",
}
"""Debian's packages of commands that have another name."""


class Machine:
    """The root folder, and a process that keeps its mounts and network."""

    def __init__(self, root: Path, holder: subprocess.Popen[bytes]) -> None:
        self.root = root
        """As this machine sees it."""
        self._holder = holder

    def begin(self) -> None:
        """Mount what programs expect, and bring up the network. Raises CalledProcessError."""
        while _network(self._holder.pid) == _network(os.getpid()):
            assert self._holder.poll() is None, "unshare failed"
            time.sleep(0.01)
        root = str(self.root)
        (self.root / "etc/hosts").write_text(HOSTS)
        for words in (
            ["mount", "--make-rprivate", "/"],
            # A mount of its own can become read-only.
            ["mount", "--bind", root, root],
            ["mount", "--bind", "/proc", f"{root}/proc"],
            ["mount", "-t", "tmpfs", "tmpfs", f"{root}/run"],
            ["mount", "-t", "tmpfs", "tmpfs", f"{root}/tmp"],
            ["ip", "link", "set", "lo", "up"],
        ):
            subprocess.run([*self._enter(), *words], check=True)

    def end(self) -> None:
        """Its mounts and network go with the last process in it."""
        self._holder.kill()
        self._holder.wait()

    def volume(self, path: str, user: str) -> None:
        """An empty folder there that stays writable, and belongs to that user and group."""
        owner, group = user.split(":")
        options = f"mode=0700,uid={owner},gid={group}"
        subprocess.run(
            [*self._enter(), "mount", "-t", "tmpfs", "-o", options, "tmpfs", f"{self.root}{path}"], check=True
        )

    def read_only(self) -> None:
        """From now on nothing in it can write, but to /run and /tmp."""
        subprocess.run(
            [*self._enter(), "mount", "-o", "remount,bind,ro", str(self.root), str(self.root)], check=True
        )

    def words(self, command: Sequence[str], *, user: str = "0:0") -> list[str]:
        """The command as this machine has to call it, as a user and group by their numbers."""
        chroot = ["chroot", f"--userspec={user}", "--groups=", str(self.root)]
        return [*self._enter(), *chroot, *command]

    def run(self, *command: str, **options: Any) -> str:
        """Run a command there as root; its output. Raises CalledProcessError."""
        options = {"env": CLEAN, "timeout": _COMMAND_S} | options
        try:
            return str(
                subprocess.run(
                    self.words(command), check=True, capture_output=True, text=True, **options
                ).stdout
            )
        except subprocess.CalledProcessError as error:
            raise AssertionError(
                f"{' '.join(command)}: exit code {error.returncode}\n{error.stdout}{error.stderr}"
            ) from error

    def start(
        self, command: Sequence[str], *, user: str = "0:0", env: Mapping[str, str] = CLEAN
    ) -> subprocess.Popen[str]:
        """Start a program there, whose standard output can be read."""
        return subprocess.Popen(self.words(command, user=user), stdout=subprocess.PIPE, text=True, env=env)

    def _enter(self) -> list[str]:
        return ["nsenter", f"--target={self._holder.pid}", "--mount", "--net"]


def _network(process: int) -> str:
    return os.readlink(f"/proc/{process}/ns/net")


def need(*commands: str) -> None:
    """Raises NotHere: this is not root, or a command is missing."""
    if os.geteuid():
        raise NotHere("needs root")
    missing = [one for one in commands if shutil.which(one) is None]
    if missing:
        packages = sorted({_PACKAGES.get(one, one) for one in missing})
        raise NotHere(f"needs {' '.join(missing)}: apt-get install {' '.join(packages)}")


@contextlib.contextmanager
def machine(root: Path) -> Iterator[Machine]:
    """A machine of that root folder, while the block runs. Raises NotHere."""
    need("unshare", "nsenter", "chroot", "ip")
    one = Machine(root, subprocess.Popen(["unshare", "--mount", "--net", "sleep", "infinity"]))
    try:
        try:
            one.begin()
        except (subprocess.CalledProcessError, AssertionError) as error:
            raise NotHere(f"may not make namespaces: {error}") from error
        yield one
    finally:
        one.end()


@contextlib.contextmanager
def debian(suite: str, packages: Sequence[str]) -> Iterator[Machine]:
    """A machine with a minimal Debian and some packages, while the block runs. Raises NotHere."""
    with debian_root(suite, packages) as root, machine(root) as one:
        yield one


@contextlib.contextmanager
def debian_root(suite: str, packages: Sequence[str]) -> Iterator[Path]:
    """The root folder of a minimal Debian with some packages, while the block runs. Raises NotHere."""
    need("mmdebstrap")
    with tempfile.TemporaryDirectory(prefix="penstock-debian-") as text:
        root = Path(text) / "root"
        include = [f"--include={','.join(packages)}"] if packages else []
        # A mirror of an unstable suite may stand still for longer than its lists are good for.
        old = '--aptopt=Acquire::Check-Valid-Until "false"'
        words = ["mmdebstrap", "--quiet", "--variant=minbase", old, *include, suite, str(root)]
        made = subprocess.run(words, capture_output=True, text=True)
        if made.returncode:
            last = (made.stderr.strip().splitlines() or ["no word"])[-1]
            raise NotHere(f"mmdebstrap of Debian {suite} failed: {last}")
        yield root
