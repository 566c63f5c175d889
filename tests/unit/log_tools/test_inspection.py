"""`penstock log inspect` and `verify`: on a running, a stopped and a damaged log."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.errors import StartError
from penstock.log_core.files.layout import WAL_HEAD_BYTES, Folder
from penstock.log_tools import inspection
from penstock.log_tools.inspection import Walked, inspect, verify
from penstock.log_tools.reading import open_folder
from tests.support.logs import KIB, append, durable_feed, fill, open_log, settle


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A log of several segments, stopped cleanly."""
    log = open_log(tmp_path)
    feed = durable_feed(log)
    for _ in range(2):
        fill(log, feed, 300 * KIB)
        settle(log)
    log.close_sync()
    return tmp_path


def _verify(path: Path) -> tuple[int, list[str]]:
    out = io.StringIO()
    return verify(Folder(path), out), out.getvalue().splitlines()


def test_a_stopped_log_has_no_problems(stopped: Path) -> None:
    problems, lines = _verify(stopped)
    assert problems == 0
    assert len(lines) == 1 and lines[0].endswith("0 problems")
    out = io.StringIO()
    inspect(Folder(stopped), out)
    assert "stopped cleanly at LSN" in out.getvalue()
    assert "feed 1" in out.getvalue()


def test_zeros_where_a_checkpoint_knows_of_records_are_damage(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    feed = durable_feed(log)
    fill(log, feed, 30 * KIB)
    settle(log)
    log.checkpoint_due()
    known = log.appender.next_lsn - 1
    folder = Folder(tmp_path / "log")
    while not any(int(path.stem, 16) >= known for path in folder.checkpoints.glob("*.ckpt")):
        settle(log)
    assert _verify(tmp_path / "log")[0] == 0
    crashed = Folder(shutil.copytree(tmp_path / "log", tmp_path / "crashed"))
    log.close_sync()
    assert _verify(tmp_path / "crashed")[0] == 0
    written = [one for one in inspection.walk(crashed) if isinstance(one, Walked) and one.found.batches]
    path = written[-1].path
    with path.open("r+b") as file:
        file.seek(WAL_HEAD_BYTES)
        file.write(bytes(path.stat().st_size - WAL_HEAD_BYTES))
    problems, lines = _verify(tmp_path / "crashed")
    assert problems == 1 and "zeros where the log goes on" in lines[0]


def test_a_running_log_may_be_looked_at(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, durable_feed(log), 300 * KIB)
    assert _verify(tmp_path)[0] == 0
    out = io.StringIO()
    inspect(Folder(tmp_path), out)
    assert "not stopped cleanly, or running" in out.getvalue()
    append(log, [], b"still ours")
    assert log.wait_synced(log.appender.next_lsn - 1)
    log.close_sync()


def test_a_segment_that_is_closed_behind_the_walk_is_no_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    feed = durable_feed(log)
    fill(log, feed, 10 * KIB)
    walk = inspection.walk

    def walk_and_go_on(folder: Folder) -> Iterator[object]:
        yield from walk(folder)
        fill(log, feed, 300 * KIB)
        settle(log)

    monkeypatch.setattr(inspection, "walk", walk_and_go_on)
    index = Folder(tmp_path).time_index(Folder(tmp_path).segment_numbers()[-1])
    assert not index.exists()
    problems, lines = _verify(tmp_path)
    assert index.exists(), "it was closed"
    assert problems == 0, lines
    log.close_sync()


@pytest.mark.parametrize(
    "pattern", ["wal/*.wal", "index/*.fdx", "index/*.tix", "ckpt/*.ckpt", "MANIFEST", "../CLEAN"]
)
def test_every_flipped_byte_of_every_kind_of_file_is_found(stopped: Path, pattern: str) -> None:
    path = sorted((stopped / "shard-000").glob(pattern))[0]
    sound = path.read_bytes()
    step = max(1, len(sound) // 60)
    for at in range(0, len(sound), step):
        raw = bytearray(sound)
        raw[at] ^= 0x20
        path.write_bytes(raw)
        problems, lines = _verify(stopped)
        assert problems, at
        assert any(path.name in line for line in lines), at
    path.write_bytes(sound)
    assert _verify(stopped)[0] == 0


def test_a_problem_names_file_byte_and_both_crcs(stopped: Path) -> None:
    path = sorted((stopped / "shard-000" / "wal").glob("*.wal"))[0]
    raw = bytearray(path.read_bytes())
    raw[9000] ^= 1
    path.write_bytes(raw)
    _, lines = _verify(stopped)
    told = re.compile(rf"{path}, byte \d+: .* CRC \(expected \w{{8}}, found \w{{8}}\)")
    assert any(told.match(line) for line in lines)


def test_a_missing_segment_is_a_problem(stopped: Path) -> None:
    gone = sorted((stopped / "shard-000" / "wal").glob("*.wal"))[1]
    gone.unlink()
    problems, lines = _verify(stopped)
    assert problems == 1
    assert any(re.match(rf"{gone}, .*the segment is missing: LSNs \d+ to \d+", line) for line in lines)


def test_all_damage_of_a_segment_is_found_and_the_rest_of_it_counted(stopped: Path) -> None:
    _, (*_, sound) = _verify(stopped)
    path = sorted((stopped / "shard-000" / "wal").glob("*.wal"))[1]
    raw = bytearray(path.read_bytes())
    for at in (20_000, 35_000, 50_000):
        raw[at] ^= 1
    path.write_bytes(raw)
    problems, (*lines, summary) = _verify(stopped)
    assert problems == 3 and all(line.startswith(str(path)) for line in lines)
    records = [int(re.search(r"(\d+) records", line)[1]) for line in (sound, summary)]  # type: ignore[index]
    assert records[0] - records[1] == 30, "the ten of each batch"


def test_inspect_says_what_is_damaged_and_missing(stopped: Path) -> None:
    out = io.StringIO()
    assert inspect(Folder(stopped), out) == 0
    damaged, _, gone, *_ = sorted((stopped / "shard-000" / "wal").glob("*.wal"))
    raw = bytearray(damaged.read_bytes())
    raw[20_000] ^= 1
    damaged.write_bytes(raw)
    gone.unlink()
    out = io.StringIO()
    assert inspect(Folder(stopped), out) == 2
    assert re.search(rf"{damaged}, byte \d+: damaged", out.getvalue())
    assert f"{gone}, byte 0: the segment is missing" in out.getvalue()
    out = io.StringIO()
    assert inspect(Folder(stopped), out, as_json=True) == 2
    said = json.loads(out.getvalue())
    assert said["missing_segments"] == [int(gone.stem)]
    assert [one["number"] for one in said["segments"] if one["damaged"]] == [int(damaged.stem)]


@pytest.mark.parametrize("what", [["inspect"], ["verify"], ["stats"], ["dump"], ["export", "--to", "file"]])
def test_every_command_tells_of_a_missing_segment(
    stopped: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    what: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    gone = Folder(stopped).segment(2)
    gone.unlink()
    assert main(["log", what[0], str(stopped), *what[1:]]) == 3
    out, err = capfd.readouterr()
    told = out if what[0] in ("inspect", "verify") else err
    assert f"{gone}, byte 0: the segment is missing" in told


def test_a_log_with_a_missing_segment_is_not_backed_up(
    stopped: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Folder(stopped).segment(2).unlink()
    assert main(["log", "backup", str(stopped), "--to", str(tmp_path / "copy")]) == 1
    _, err = capfd.readouterr()
    assert "the segment is missing" in err and "penstock log repair" in err


def test_an_unsynced_tail_is_noted_and_not_counted(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.wait_synced(append(log, [durable_feed(log)], b"x"))
    path, end = log._wal.segment.path, log._wal.segment.end
    with path.open("r+b") as file:
        file.seek(end)
        file.write(b"torn")
    problems, lines = _verify(tmp_path)
    assert problems == 0
    assert lines[0].startswith("note: ") and "never synced" in lines[0]
    log.close_sync()


def test_a_folder_without_a_log_is_said(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="no log in"):
        open_folder(tmp_path)
