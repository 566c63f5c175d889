"""The memory alarm: what there is, what is used, when publishers wait; and what of a disk must stay free."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.gateway.layer_options import file_system_bytes, spare_bytes
from penstock.memory import MemoryAlarm, available_bytes, used_bytes

GB = 10**9
MIB = 2**20


def machine(root: Path, groups: str, **limits: str) -> Path:
    """A machine of 16 GiB with these lines in /proc/self/cgroup, and files below /sys/fs/cgroup."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemFree: 1 kB\nMemTotal:  {16 * 1024 * 1024} kB\n")
    (root / "proc/self/cgroup").write_text(groups)
    for name, text in limits.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


@pytest.mark.parametrize(
    ("groups", "limits", "expected"),
    [
        ("", {}, 16 * 1024 * MIB),
        ("0::/\n", {"memory.max": "max"}, 16 * 1024 * MIB),
        ("0::/a/b\n", {"a/memory.max": str(512 * MIB), "a/b/memory.max": "max"}, 512 * MIB),
        ("0::/a/b\n", {"a/memory.max": str(512 * MIB), "a/b/memory.max": str(64 * MIB)}, 64 * MIB),
        ("0::/../x\n", {"memory.max": str(100 * MIB)}, 100 * MIB),
        ("4:cpu,memory:/p\n0::/\n", {"memory/p/memory.limit_in_bytes": str(256 * MIB)}, 256 * MIB),
        ("4:memory:/p\n", {"memory/memory.limit_in_bytes": str(2**63 - 4096)}, 16 * 1024 * MIB),
    ],
)
def test_the_least_limit_holds(tmp_path: Path, groups: str, limits: dict[str, str], expected: int) -> None:
    assert available_bytes(machine(tmp_path, groups, **limits)) == expected


def test_used_memory_grows_with_touched_pages() -> None:
    before = used_bytes()
    held = bytearray(b"x" * (64 * MIB))
    assert 48 * MIB < used_bytes() - before < 200 * MIB
    assert len(held) == 64 * MIB
    assert available_bytes() > used_bytes()


async def test_the_alarm_is_switched_on_and_off_at_the_limit() -> None:
    used = 100
    now = 0.0
    heard: list[bool] = []
    alarm = MemoryAlarm(100, heard.append, used=lambda: used, clock=lambda: now)
    alarm.check()
    assert heard == []
    used = 101
    alarm.check()
    alarm.check()
    assert heard == [True]
    used = 100
    alarm.check()
    assert heard == [True, False]
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("total", "spare"),
    [
        (10**9, 10**8),
        (10 * GB, GB),
        (20 * GB, 2 * GB),
        (30 * GB, 2 * GB),
        (100 * GB, 5 * GB),
        (1000 * GB, 50 * GB),
        (20_000 * GB, 50 * GB),
    ],
)
def test_a_twentieth_of_the_disk_stays_free_within_bounds(total: int, spare: int) -> None:
    assert spare_bytes(total) == spare


def test_the_file_system_of_a_folder_that_is_yet_to_be_made(tmp_path: Path) -> None:
    assert file_system_bytes(tmp_path / "a" / "b") == file_system_bytes(tmp_path) > 0


def test_large_blocks_are_given_back_when_they_are_freed() -> None:
    """Also after one was freed, from when on glibc would otherwise keep blocks of its size."""
    program = """
import gc
from penstock.memory import return_large_blocks, used_bytes
assert return_large_blocks()
del [bytearray(b"x") * (16 << 20)][0]
before, kept = used_bytes(), []
for _ in range(8):
    large = bytearray(b"x") * (16 << 20)
    kept.append(bytearray(b"y") * 100_000)  # behind it, so that the heap could not shrink
    del large
print((used_bytes() - before) >> 20)
"""
    grown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert int(grown) < 8


def test_a_standby_uses_large_blocks_again() -> None:
    """Their pages are made once, not each time."""
    program = """
import resource, sys
from penstock import memory
assert getattr(memory, sys.argv[1])()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
bytearray(4 << 20)
before = faults()
for _ in range(100):
    bytearray(4 << 20)
print(faults() - before)
"""

    def faults(how: str) -> int:
        command = [sys.executable, "-c", program, how]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert faults("keep_large_blocks") < 50
    assert faults("return_large_blocks") >= 100
