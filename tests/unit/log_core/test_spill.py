"""Values of large tables outside memory: what is put comes back, whatever was let go meanwhile."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.log_core.log import Log
from penstock.log_core.options import LogOptions
from penstock.log_core.state import spill as module
from penstock.log_core.state import tables as tables_module
from penstock.log_core.state.spill import Spill
from tests.support.logs import files_made

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 20), st.integers(0, 300)),
        st.tuples(st.sampled_from(["drop", "hold", "release", "flush"]), st.integers(0, 20), st.just(0)),
    ),
    max_size=120,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_values_come_back_until_they_are_dropped_and_snapshots_stay_whole(
    tmp_path: Path, steps: list[tuple[str, int, int]]
) -> None:
    spill = Spill(tmp_path)
    kept: dict[int, tuple[int, bytes]] = {}
    snapshots: list[dict[int, tuple[int, bytes]]] = []
    for i, (step, key, size) in enumerate(steps):
        if step == "put":
            value = bytes((i + j) % 256 for j in range(size))
            if key in kept:
                spill.drop(kept[key][0])
            kept[key] = spill.put(value), value
        elif step == "drop" and key in kept:
            spill.drop(kept.pop(key)[0])
        elif step == "hold":
            spill.pin()
            snapshots.append(dict(kept))
        elif step == "release" and snapshots:
            snapshots.pop()
            spill.unpin()
        elif step == "flush":
            spill.flush()
        for held in (kept, *snapshots):
            assert all(spill.get(locator) == value for locator, value in held.values())
    spill.close()


def test_a_place_is_used_again(tmp_path: Path) -> None:
    spill = Spill(tmp_path)
    first = spill.put(b"x" * 100)
    spill.drop(first)
    assert spill.put(b"y" * 70) >> 32 == first >> 32
    spill.close()


def test_nothing_is_left_in_the_folder(tmp_path: Path) -> None:
    spill = Spill(tmp_path)
    spill.put(b"x" * 1000)
    spill.flush()
    assert list(tmp_path.iterdir()) == []
    spill.close()


def test_a_full_disk_keeps_rows_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables_module, "SPILL_FROM", 0)
    log = Log.open(tmp_path, LogOptions())
    log.tables.put("t", b"0", b"a" * 100)

    def full(_: Spill, __: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.Spill, "put", full)
    log.tables.put("t", b"1", b"b" * 100)
    assert log.tables.get("t", b"1") == b"b" * 100
    log.close_sync()


@pytest.mark.parametrize("clean", [True, False])
def test_a_large_table_survives_a_restart_and_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: bool
) -> None:
    monkeypatch.setattr(tables_module, "SPILL_FROM", 2000)
    log = Log.open(tmp_path, LogOptions())
    expected = {}
    for i in range(300):
        key, value = (i % 200).to_bytes(2, "big"), bytes((i % 256,)) * (50 + i)
        log.tables.put("t", key, value)
        expected[key] = value
    log.tables.delete("t", b"\0\1")
    del expected[b"\0\1"]
    log.flush()
    assert dict(log.tables.items("t")) == expected
    folder = tmp_path
    if not clean:
        log.wait_synced(log.written_lsn)
        folder = tmp_path.with_name(tmp_path.name + "-copy")
        files_made(log)
        shutil.copytree(tmp_path, folder)
    log.close_sync()
    again = Log.open(folder, LogOptions())
    assert dict(again.tables.items("t")) == expected
    assert {key: again.tables.get("t", key) for key in expected} == expected
    again.close_sync()
