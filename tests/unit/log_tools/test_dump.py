"""`penstock log dump`: what is in the log, in its protocol's words, filtered; damage is told and skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli import main
from penstock.log_core.files.layout import VERSION, Folder, Head
from penstock.log_core.files.manifest import Manifest
from tests.unit.log_tools.conftest import Run, flip
from tests.unit.router.conftest import World


def test_messages_are_shown_in_the_words_of_their_protocol(stopped: Path, lines: Run) -> None:
    shown = lines("log", "dump", stopped, "--kind", "record")
    assert [item["body"] for item in shown] == [
        "order 0",
        "order 1",
        "order 2",
        "hot",
        "brr",
        "nobody wants it",
    ]
    assert (shown[0]["exchange"], shown[0]["routing_key"]) == ("", "orders")
    assert shown[0]["flags"] == ["persistent"]
    assert (shown[4]["topic"], shown[4]["encoding"]) == ("log/cold", "mqtt5")
    assert (shown[5]["feeds"], "unrouted" in shown[5]["flags"]) == ([], True)
    positions = [item["position"] for item in shown]
    assert positions == sorted(set(positions))


def test_a_queue_a_feed_and_positions_filter(stopped: Path, lines: Run) -> None:
    everything = lines("log", "dump", stopped, "--kind", "record")
    of_queue = lines("log", "dump", stopped, "--queue", "orders")
    assert of_queue == everything[:3]
    assert lines("log", "dump", stopped, "--feed", of_queue[0]["feeds"][0]) == of_queue
    first, last = everything[1]["position"], everything[3]["position"]
    span = ("--first", first, "--last", last, "--kind", "record")
    assert lines("log", "dump", stopped, *span) == everything[1:4]
    assert lines("log", "dump", stopped, *span, "--limit", 2) == everything[1:3]


def test_times_filter(world: World, lines: Run) -> None:
    world.log.flush()
    world.clock.now += 60
    begun_ms = world.log.wall_ms()
    world.publish("", "orders", "a minute later")
    world.close()
    kinds = ("--kind", "record")
    later = lines("log", "dump", world.folder, *kinds, "--since", begun_ms)
    assert [item["body"] for item in later] == ["a minute later"]
    earlier = lines("log", "dump", world.folder, *kinds, "--until", later[0]["time"])
    assert len(earlier) == 6 and earlier[-1]["body"] == "nobody wants it"


def test_changes_of_tables_are_shown(stopped: Path, lines: Run) -> None:
    tables = {item["table"] for item in lines("log", "dump", stopped, "--kind", "state")}
    assert {"queue", "binding", "cursor", "feed"} <= tables


def test_bodies_that_are_no_text_come_as_base64(world: World, lines: Run) -> None:
    world.vhost.publish(world.guest, 2, b"raw", b"", b"\xff\xfe", flags=2)
    world.close()
    *_, item = lines("log", "dump", world.folder, "--kind", "record")
    assert item["body_base64"] == "//4=" and "body" not in item
    *_, item = lines("log", "dump", world.folder, "--kind", "record", "--body", "none")
    assert item["size"] == 2 and "body_base64" not in item and "body" not in item


def test_lines_for_people(stopped: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "dump", str(stopped), "-o", "text", "--kind", "record"]) == 0
    shown = capfd.readouterr().out.splitlines()
    assert len(shown) == 6
    assert "exchange '' key 'orders'" in shown[0] and "topic 'log/cold'" in shown[4]


def test_a_running_log_is_shown_up_to_what_is_written(world: World, lines: Run) -> None:
    world.log.flush()
    before = lines("log", "dump", world.folder, "--kind", "record")
    world.publish("", "orders", "not yet written")
    assert lines("log", "dump", world.folder, "--kind", "record") == before
    world.close()


def test_a_damaged_batch_is_told_and_the_rest_shown(
    stopped: Path, lines: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    everything = lines("log", "dump", stopped)
    wal = Folder(stopped).segment(1)
    at = wal.read_bytes().index(b"order 1")
    flip(wal, at)
    assert main(["log", "dump", str(stopped)]) == 3
    out, err = capfd.readouterr()
    assert str(wal) in err and "byte" in err
    left = out.splitlines()
    assert 0 < len(left) < len(everything)
    assert not any("order 1" in line for line in left)


@pytest.mark.parametrize("what", ["dump", "stats", "inspect", "verify"])
def test_a_folder_of_another_version_is_refused(
    what: str, stopped: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = Folder(stopped)
    manifest = Manifest.read(folder.manifest)
    raw = bytearray(folder.manifest.read_bytes())
    monkeypatch.setattr("penstock.log_core.files.layout.VERSION", VERSION + 1)
    head = Head.decode(_as_version(raw, VERSION + 1), folder.manifest, 5)
    folder.manifest.write_bytes(head.encode(96) + raw[96:])
    monkeypatch.undo()
    assert manifest.epoch == head.epoch
    assert main(["log", what, str(stopped)]) == 1
    told = capfd.readouterr().err
    assert f"is in format version {VERSION + 1}; this penstock knows versions 1 to {VERSION}" in told


def _as_version(raw: bytearray, version: int) -> bytes:
    from penstock.log_core.batch._crc import crc32c

    head = bytearray(raw[:96])
    head[8:10] = version.to_bytes(2, "little")
    head[84:88] = crc32c(bytes(head[:84])).to_bytes(4, "little")
    return bytes(head)


def test_a_time_that_is_none_is_a_mistake_on_the_command_line(
    stopped: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["log", "dump", str(stopped), "--since", "yesterday"]) == 2
    assert "flag --since: 'yesterday' is no time" in capfd.readouterr().err


def test_a_queue_that_is_not_there_is_said(stopped: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "dump", str(stopped), "--queue", "none"]) == 1
    said = capfd.readouterr().err
    assert "no durable queue 'none' in vhost '/'; `penstock log stats` lists them" in said
    assert main(["log", "stats", str(stopped)]) == 0
    assert "queue orders" in capfd.readouterr().out
