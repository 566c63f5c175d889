"""`penstock log export` and `import`: another folder with the same messages, and both go on after an end."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.errors import StartError
from penstock.log_core.files.layout import Folder
from penstock.log_tools import importing, portable
from penstock.log_tools.export import export
from penstock.log_tools.importing import import_file
from penstock.log_tools.reading import read_tables
from tests.unit.log_tools.conftest import Run, flip
from tests.unit.router.conftest import World


def _records(lines: Run, folder: Path) -> list[dict[str, object]]:
    return lines("log", "dump", folder, "--kind", "record", "--kind", "delayed")


@pytest.fixture
def rich(world: World) -> Path:
    """More than one member and segment, delayed and transient messages, a stream, several times."""
    world.queue("kept", durable=True, arguments={"x-queue-type": "stream"})
    world.bind("kept", "amq.topic", "#")
    for number in range(120):
        world.clock.now += 0.25
        world.publish("amq.topic", f"log.{number}", f"{number:04}" + "x" * 20_000, flags=2 * (number % 2))
        if number % 7 == 0:
            world.log.flush()
    world.log.appender.append_delayed(world.log.wall_ms() + 60_000, 0, b"k", b"", b"later", flags=2)
    world.close()
    return world.folder


def _nothing(what: object) -> None:
    raise AssertionError(what)


def test_a_folder_made_of_an_export_has_the_same_records_rows_and_queues(
    rich: Path, tmp_path: Path, lines: Run
) -> None:
    (done,) = lines("log", "export", rich, "--to", tmp_path / "log.gz", "-o", "json")
    (made,) = lines("log", "import", tmp_path / "new", "--from", tmp_path / "log.gz", "-o", "json")
    assert (made["records"], made["rows"], made["end"]) == (done["records"], done["rows"], done["end"])
    before = _records(lines, rich)
    assert _records(lines, tmp_path / "new") == before and len(before) == 127
    old, new = (read_tables(Folder(folder))[0].snapshot() for folder in (rich, tmp_path / "new"))
    assert {table: dict(rows) for table, rows in old.items()} == {t: dict(rows) for t, rows in new.items()}
    one, two = World(rich), World(tmp_path / "new")
    for name, entry in one.vhost.queues.items():
        assert two.vhost.queues[name].queue.ready_count == entry.queue.ready_count
    assert two.log.recovery.holes == []
    bodies = one.read(one.vhost.queues["audit"].queue)
    assert two.read(two.vhost.queues["audit"].queue) == bodies and len(bodies) > 50
    assert two.log.delays.waiting == 1
    two.publish("", "orders", "on it goes")
    assert two.read(two.vhost.queues["orders"].queue)[-1] == "on it goes"
    one.close()
    two.restart()
    assert two.log.recovery.clean
    two.close()
    assert main(["log", "verify", str(tmp_path / "new")]) == 0


def test_the_file_is_lines_of_json_for_everybody(stopped: Path, tmp_path: Path) -> None:
    export(Folder(stopped), tmp_path / "log.gz", _nothing)
    with gzip.open(tmp_path / "log.gz") as file:
        lines = [json.loads(line) for line in file]
    assert lines[0]["penstock_export"] == 1
    assert lines[-1] == {"end": True, "records": 6, "rows": sum("table" in line for line in lines)}
    assert sum("position" in line for line in lines) == 6


@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 0.6, 0.999, 1.0])
def test_an_interrupted_export_goes_on(
    rich: Path, tmp_path: Path, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portable, "_MEMBER", 100_000)
    whole = export(Folder(rich), tmp_path / "whole.gz", _nothing)
    raw = (tmp_path / "whole.gz").read_bytes()
    (tmp_path / "cut.gz.part").write_bytes(raw[: int(share * len(raw))])
    done = export(Folder(rich), tmp_path / "cut.gz", _nothing)
    assert (done.records, done.rows, done.end) == (whole.records, whole.rows, whole.end)
    assert bool(done.resumed_at) == (share > 0.1)
    with gzip.open(tmp_path / "whole.gz") as one, gzip.open(tmp_path / "cut.gz") as two:
        expected, found = one.read().splitlines(), two.read().splitlines()
    assert found[: len(expected)] == expected and set(found) == set(expected)
    assert not (tmp_path / "cut.gz.part").exists()


def test_an_interrupted_import_goes_on(
    rich: Path, tmp_path: Path, lines: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(Folder(rich), tmp_path / "log.gz", _nothing)
    monkeypatch.setattr(importing, "_SEGMENT", 300_000)
    import_file(tmp_path / "log.gz", tmp_path / "whole")
    folder = Folder(tmp_path / "new")
    segments = sorted(Folder(tmp_path / "whole").wal.iterdir())
    assert len(segments) > 4
    for kept in (0, 1, 3, len(segments)):
        shutil.rmtree(folder.root, ignore_errors=True)
        folder.make()
        for path in segments[:kept]:
            shutil.copy(path, folder.wal)
        (folder.wal / "0000000099.wal.new").write_bytes(b"half")
        done = import_file(tmp_path / "log.gz", folder.root)
        assert bool(done.resumed_at) == (kept > 0)
        assert _records(lines, folder.root) == _records(lines, rich)
        world = World(folder.root)
        assert world.log.recovery.holes == []
        world.close()


def test_damage_is_reported_and_the_rest_exported(
    stopped: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    wal = Folder(stopped).segment(1)
    flip(wal, wal.read_bytes().index(b"order 1"))
    assert main(["log", "export", str(stopped), "--to", str(tmp_path / "log.gz")]) == 3
    assert str(wal) in capfd.readouterr().err
    done = import_file(tmp_path / "log.gz", tmp_path / "new")
    assert 0 < done.records < 6


def test_a_file_that_is_none_damaged_cut_or_newer_is_refused(stopped: Path, tmp_path: Path) -> None:
    file = tmp_path / "log.gz"
    export(Folder(stopped), file, _nothing)
    raw = file.read_bytes()
    lines = gzip.decompress(raw).splitlines(keepends=True)
    for content, told in (
        (b"something else", "is damaged"),
        (raw[:200] + b"\0\0\0" + raw[203:], "is damaged"),
        (raw[:-10], "is not complete"),
        (b"", "is not complete"),
        (gzip.compress(b'{"a": 1}\n'), "is no export"),
        (gzip.compress(b"text\n"), "is no export"),
        (
            gzip.compress(lines[0].replace(b'"penstock_export":1', b'"penstock_export":2')),
            "version 2 of exports",
        ),
    ):
        file.write_bytes(content)
        shutil.rmtree(tmp_path / "new", ignore_errors=True)
        with pytest.raises(StartError, match=told):
            import_file(file, tmp_path / "new")
        assert not Folder(tmp_path / "new").manifest.exists()


def test_nothing_that_exists_is_overwritten(stopped: Path, tmp_path: Path) -> None:
    file = tmp_path / "log.gz"
    export(Folder(stopped), file, _nothing)
    raw = file.read_bytes()
    with pytest.raises(StartError, match=r"log.gz exists"):
        export(Folder(stopped), file, _nothing)
    with pytest.raises(StartError, match="there is a log in"):
        import_file(file, stopped)
    (tmp_path / "other.gz.part").write_bytes(raw)
    world = World(tmp_path / "other")
    world.close()
    with pytest.raises(StartError, match="an export of another log"):
        export(Folder(tmp_path / "other"), tmp_path / "other.gz", _nothing)
    assert file.read_bytes() == raw
