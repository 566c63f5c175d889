"""A data folder whose tables cannot be read is refused; one from before there was a format is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import StartError
from penstock.router.row_formats import TABLE, VERSION
from tests.support.mqtt import Gateway


def test_a_new_folder_says_its_format_and_so_does_one_without_the_row(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "data")
    assert dict(gateway.log.tables.items(TABLE)) == {b"tables": b"\2\0"}
    gateway.connect("s", 4, clean=False).subscribe(("t", 1))
    gateway.log.tables.delete(TABLE, b"tables")
    gateway = gateway.restart()
    assert dict(gateway.log.tables.items(TABLE)) == {b"tables": b"\2\0"}
    assert list(gateway.connect("s", 4, clean=False).session.client.subscriptions) == ["t"]  # type: ignore[union-attr]
    gateway.stop()


def test_a_folder_of_format_1_is_read_and_is_of_ours_from_then_on(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "data")
    gateway.connect("s", 4, clean=False).subscribe(("site/a/b", 1), ("site/a/c", 2))
    ((key, _),) = gateway.log.tables.items("filter")
    gateway.log.tables.put("filter", key, b"\0" + _page_1(1, b"site/a/b", 1) + _page_1(2, b"site/a/c", 2))
    gateway.log.tables.put(TABLE, b"tables", b"\1\0")
    gateway = gateway.restart()
    assert dict(gateway.log.tables.items(TABLE)) == {b"tables": b"\2\0"}
    client = gateway.connect("s", 4, clean=False).session.client
    assert client is not None
    assert {name: one.qos for name, one in client.subscriptions.items()} == {"site/a/b": 1, "site/a/c": 2}
    gateway.connect("p", 4).publish("site/a/c", b"x", qos=0)
    gateway.stop()


def _page_1(tag: int, topic: bytes, qos: int) -> bytes:
    """A filter in a page of format 1: `OWN`, and options of five bytes."""
    head = tag.to_bytes(4, "little") + b"\1\5" + len(topic).to_bytes(2, "little")
    return head + topic + bytes((qos, 0, 0, 0, 0))


@pytest.mark.parametrize("version", [0, VERSION + 1])
def test_another_format_is_refused(tmp_path: Path, version: int) -> None:
    gateway = Gateway(tmp_path / "data")
    gateway.log.tables.put(TABLE, b"tables", version.to_bytes(2, "little"))
    with pytest.raises(StartError, match=f"format {version}; this penstock knows formats 1 to") as refused:
        gateway.restart()
    assert "--data" in refused.value.remedy


def test_sessions_in_the_layout_before_the_first_format_are_refused(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "data")
    gateway.log.tables.delete(TABLE, b"tables")
    gateway.log.tables.put("mqtt.session", b"\1\0/c", b'{"user": "guest", "expiry_s": 9, "ends_at": null}')
    with pytest.raises(StartError, match="would lose their filters"):
        gateway.restart()
