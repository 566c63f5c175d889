"""A data folder whose tables cannot be read is refused; one from before there was a format is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import StartError
from penstock.router.formats import TABLE, VERSION
from tests.support.mqtt import Gateway


def test_a_new_folder_says_its_format_and_so_does_one_without_the_row(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "data")
    assert dict(gateway.log.tables.items(TABLE)) == {b"tables": b"\1\0"}
    gateway.connect("s", 4, clean=False).subscribe(("t", 1))
    gateway.log.tables.delete(TABLE, b"tables")
    gateway = gateway.restart()
    assert dict(gateway.log.tables.items(TABLE)) == {b"tables": b"\1\0"}
    assert list(gateway.connect("s", 4, clean=False).session.client.subscriptions) == ["t"]  # type: ignore[union-attr]
    gateway.stop()


@pytest.mark.parametrize("version", [0, VERSION + 1])
def test_another_format_is_refused(tmp_path: Path, version: int) -> None:
    gateway = Gateway(tmp_path / "data")
    gateway.log.tables.put(TABLE, b"tables", version.to_bytes(2, "little"))
    with pytest.raises(StartError, match=f"format {version}; this penstock knows format 1") as refused:
        gateway.restart()
    assert "--data" in refused.value.remedy


def test_sessions_in_the_layout_before_the_first_format_are_refused(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "data")
    gateway.log.tables.delete(TABLE, b"tables")
    gateway.log.tables.put("mqtt.session", b"\1\0/c", b'{"user": "guest", "expiry_s": 9, "ends_at": null}')
    with pytest.raises(StartError, match="would lose their filters"):
        gateway.restart()
