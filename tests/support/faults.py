"""Faults of disks: a file system whose power can be cut, and system calls that fail when told to.

Each says why it cannot be made here (`why_not`), so that a test skips with that reason.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import struct
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Self

from tests.support.brokers import Gateway

_SHUTDOWN = 0x8004587D
"""EXT4_IOC_SHUTDOWN."""
_NO_LOG_FLUSH = 2
"""As at a power cut, changes that the file system has not committed are gone."""

SHIM = r"""
// Makes system calls on the data folder fail while a file says so: its text is CALL ERRNO, as "fdatasync 5".
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static int failing(const char *call, int fd) {
    const char *trigger = getenv("FAULT_TRIGGER"), *folder = getenv("FAULT_FOLDER");
    if (!trigger || !folder) return 0;
    char link[64], path[4096], name[64];
    int error = 0;
    FILE *file = fopen(trigger, "re");
    if (!file) return 0;
    int read = fscanf(file, "%63s %d", name, &error);
    fclose(file);
    if (read != 2 || strcmp(name, call)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return strncmp(path, folder, strlen(folder)) ? 0 : error;
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

int fdatasync(int fd) {
    REAL(fdatasync);
    int error = failing("fdatasync", fd);
    if (error) { errno = error; return -1; }
    return real(fd);
}

ssize_t pwritev(int fd, const struct iovec *iov, int count, off_t offset) {
    REAL(pwritev);
    int error = failing("pwritev", fd);
    if (error) { errno = error; return -1; }
    return real(fd, iov, count, offset);
}

ssize_t pread(int fd, void *to, size_t size, off_t offset) {
    REAL(pread);
    int error = failing("pread", fd);
    if (error) { errno = error; return -1; }
    return real(fd, to, size, offset);
}

ssize_t pwritev64(int fd, const struct iovec *iov, int count, off64_t at) {
    return pwritev(fd, iov, count, at);
}

ssize_t pread64(int fd, void *to, size_t size, off64_t at) { return pread(fd, to, size, at); }
"""


def _run(*command: object) -> str:
    """Run a command; why it failed, "" when it did not."""
    try:
        done = subprocess.run(
            [str(word) for word in command], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else (done.stderr or done.stdout).strip() or f"{command[0]} failed"


class LoopDisk:
    """An ext4 file system in a file, on a loop device. Needs root."""

    def __init__(self, folder: Path, mib: int) -> None:
        """Make and mount it under `folder`. Raises OSError."""
        self.path = folder / "disk"
        self.path.mkdir(parents=True)
        self._image = folder / "disk.img"
        with self._image.open("wb") as image:
            image.truncate(mib << 20)
        self._must("mkfs.ext4", "-q", "-F", "-m", "0", self._image)
        self.mount()

    def _must(self, *command: object) -> None:
        wrong = _run(*command)
        if wrong:
            raise OSError(f"{command[0]}: {wrong}")

    def mount(self) -> None:
        """Mount it, again."""
        self._must("mount", "-o", "loop", self._image, self.path)

    def cut_power(self) -> None:
        """From now on nothing reaches the disk, and what was not synced is lost."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(fd)

    def unmount(self) -> None:
        """Take it away; nobody has a file open in it."""
        self._must("umount", self.path)

    def close(self) -> None:
        """Let go of it, whatever state it is in."""
        if os.path.ismount(self.path) and _run("umount", self.path):
            self._must("umount", "--lazy", self.path)
        self._image.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @staticmethod
    @cache
    def why_not(folder: Path) -> str:
        """Why there can be none here; "" when there can. Tries it once."""
        if os.geteuid() != 0:
            return "only root can mount a file system"
        probe = folder / "probe"
        try:
            with LoopDisk(probe, 16) as disk:
                disk.cut_power()
        except OSError as error:
            return f"no file system whose power can be cut: {error}"
        finally:
            shutil.rmtree(probe, ignore_errors=True)
        return ""


class PoweredGateway(Gateway):
    """A gateway on a loop disk, whose kill is a power cut.

    It is stopped first, so that nothing it says after the cut can be believed; then the power goes, and only
    then the process.
    """

    def __init__(self, folder: Path, disk: LoopDisk, *, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, settings=settings)
        self._disk = disk
        self.data_dir = disk.path / "data"

    def kill9(self) -> None:
        if not self.running:
            super().kill9()
            return
        os.kill(self.pid, signal.SIGSTOP)
        self._disk.cut_power()
        super().kill9()
        self._disk.unmount()
        self._disk.mount()


class Shim:
    """A library for LD_PRELOAD that makes calls on a folder fail; needs a C compiler."""

    def __init__(self, folder: Path, data_dir: Path) -> None:
        """Compile it. Raises FileNotFoundError: there is no compiler; OSError: it does not compile."""
        compiler = shutil.which(os.environ.get("CC", "cc"))
        if compiler is None:
            raise FileNotFoundError("no C compiler")
        folder.mkdir(parents=True, exist_ok=True)
        source = folder / "shim.c"
        source.write_text(SHIM)
        self._library = folder / "shim.so"
        wrong = _run(compiler, "-O1", "-fPIC", "-shared", "-o", self._library, source, "-ldl")
        if wrong:
            raise OSError(wrong)
        self._trigger = folder / "trigger"
        self._data_dir = data_dir

    @property
    def environment(self) -> dict[str, str]:
        """For the process whose calls shall fail."""
        return {
            "LD_PRELOAD": str(self._library),
            "FAULT_TRIGGER": str(self._trigger),
            "FAULT_FOLDER": str(self._data_dir.resolve()),
        }

    def fail(self, call: str, error: int) -> None:
        """From now on this call fails: fdatasync, pwritev or pread."""
        new = self._trigger.with_suffix(".new")
        new.write_text(f"{call} {error}\n")
        new.replace(self._trigger)

    def heal(self) -> None:
        """It works again."""
        self._trigger.unlink(missing_ok=True)
