"""mosquitto.db as bytes: what is read, what is refused, and the order of the steps."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.migrate.mosquitto.apply import Target, apply
from penstock.migrate.mosquitto.convert import Conversion
from penstock.migrate.mosquitto.database import Database, Held, Message, Session, read
from penstock.migrate.mosquitto.plan import Make, Publish, steps
from penstock.migrate.progress import Progress
from penstock.migrate.report import MigrationError

HEAD = b"\x00\xb5\x00mosquitto db" + bytes(4)
NEVER = 2**32 - 1


def chunk(kind: int, body: bytes) -> bytes:
    return struct.pack(">II", kind, len(body)) + body


def stored(number: int, topic: bytes, payload: bytes) -> bytes:
    fields = struct.pack("<Qq", number, 0) + struct.pack(
        ">IHHHHHBB", len(payload), 1, 2, 1, len(topic), 1883, 1, 0
    )
    return chunk(2, fields + b"id" + b"u" + topic + payload)


def file(tmp_path: Path, *chunks: bytes, version: int = 6) -> Path:
    path = tmp_path / "mosquitto.db"
    path.write_bytes(HEAD + version.to_bytes(4, "big") + b"".join(chunks))
    return path


def test_a_message_is_read(tmp_path: Path) -> None:
    found = read(file(tmp_path, stored(7, b"a/b", b"\x00\xff"), chunk(4, struct.pack("<Q", 7))))
    assert found.messages == {7: Message(7, "a/b", b"\x00\xff", 1, False, 0, b"")}
    assert found.retained == [7]


@pytest.mark.parametrize(
    "chunks, version, reason",
    [
        ((), 5, "version 5"),
        ((chunk(9, b""),), 6, "kind 9"),
        ((stored(7, b"a/b", b"xyz")[:-1],), 6, "too early"),
        ((chunk(2, b"short"),), 6, "damaged at byte"),
        ((chunk(4, struct.pack("<Q", 3)),), 6, "no message 3"),
        ((chunk(4, b""),), 6, "damaged"),
    ],
)
def test_a_damaged_or_foreign_file_is_refused(
    chunks: tuple[bytes, ...], version: int, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(MigrationError, match=reason):
        read(file(tmp_path, *chunks, version=version))


@given(st.binary(max_size=200))
def test_no_bytes_do_anything_but_be_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, tail: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.db"
    path.write_bytes(HEAD + (6).to_bytes(4, "big") + stored(1, b"t", b"p") + tail)
    try:
        assert 1 in read(path).messages
    except MigrationError:
        pass


@given(
    st.dictionaries(
        st.sampled_from("abcde"), st.integers(1, 12), min_size=1
    )  # by client: the first message that waits for it; all later ones wait, too
)
def test_each_session_gets_just_the_messages_that_waited(since: dict[str, int]) -> None:
    numbers = range(1, 13)
    database = Database("")
    database.messages = {n: Message(n, "t", b"", 1, False, 0, b"") for n in numbers}
    database.sessions = {name: Session(name, "", 0, NEVER) for name in since}
    database.held = [Held(n, name, 11, True) for name, first in since.items() for n in numbers if n >= first]
    got: dict[str, list[int]] = {}
    for step in steps(database, lambda user: user or "guest"):
        if isinstance(step, Make):
            got.update({session.client_id: [] for session, _ in step.sessions})
        else:
            for waiting in got.values():
                waiting.append(step.message.number)
    assert got == {name: [n for n in numbers if n >= first] for name, first in since.items()}


def test_a_message_that_the_client_has_is_not_sent_again_and_one_that_it_sent_is_published() -> None:
    database = Database("")
    database.messages = {n: Message(n, "t", b"", 2, n == 2, 0, b"") for n in (1, 2)}
    database.sessions = {"c": Session("c", "", 0, NEVER)}
    database.held = [Held(1, "c", 9, True), Held(2, "c", 7, False)]
    made, published = steps(database, lambda user: user or "guest")
    assert isinstance(made, Make)
    assert published == Publish(database.messages[2], True)


def test_progress_is_that_of_one_move(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    Progress(path, "here").save(5)
    assert Progress(path, "here").done == 5
    assert Progress(path, "there").done == 0
    path.write_text("{")
    with pytest.raises(MigrationError, match="delete it"):
        Progress(path, "here")


def test_without_paho_a_move_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Api:
        def request(self, method: str, path: str, body: object = None) -> Any:
            return []

    monkeypatch.setitem(sys.modules, "paho.mqtt.client", None)
    monkeypatch.delitem(sys.modules, "penstock.migrate.mosquitto.publisher", raising=False)
    database = read(file(tmp_path, stored(7, b"a/b", b""), chunk(4, struct.pack("<Q", 7))))
    target = Target(api=Api(), mqtt=("127.0.0.1", 1), vhost="/", anonymous="guest", timeout_s=1.0)
    with pytest.raises(MigrationError, match="pip install 'paho-mqtt"):
        apply(Conversion(), database, target, tmp_path / "state.json")
