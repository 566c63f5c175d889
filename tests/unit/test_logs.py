"""Log lines: their form, their fields, and that a peer cannot forge one."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Callable, Iterator

import pytest

from penstock.logs import configure, event, fields, gathered


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root, mine = logging.getLogger(), logging.getLogger("penstock")
    handlers, levels = root.handlers[:], (root.level, mine.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    mine.setLevel(levels[1])
    logging.captureWarnings(False)


def test_a_text_line_has_time_level_logger_message_and_fields() -> None:
    stream = io.StringIO()
    configure("info", "text", stream=stream)
    logging.getLogger("penstock.amqp").info("connection opened", extra=fields(peer="[::1]:4", user="a b"))
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO penstock\.amqp connection opened "
        r'peer=\[::1\]:4 user="a b"\n',
        stream.getvalue(),
    )


def test_a_json_line_has_the_same_parts() -> None:
    stream = io.StringIO()
    configure("info", "json", stream=stream)
    logging.getLogger("penstock.mqtt").warning("gone %s", "now", extra=fields(bytes=7))
    line = json.loads(stream.getvalue())
    assert line.pop("time").endswith("Z")
    assert line == {"level": "WARNING", "logger": "penstock.mqtt", "message": "gone now", "bytes": 7}


def test_the_level_is_that_of_penstocks_loggers_only() -> None:
    stream = io.StringIO()
    configure("debug", "text", stream=stream)
    logging.getLogger("penstock.log").debug("mine")
    logging.getLogger("asyncio").info("not shown")
    logging.getLogger("asyncio").warning("shown")
    assert [line.split(" ", 3)[3] for line in stream.getvalue().splitlines()] == ["mine", "shown"]


@pytest.mark.parametrize("evil", ["a\nb", "a\r\n2026 INFO x", "a\x1b[2J", "a\x85b", "a\u2028b"])
def test_a_peer_cannot_forge_a_line(evil: str) -> None:
    stream = io.StringIO()
    configure("info", "text", stream=stream)
    logging.getLogger("penstock.mqtt").info("client %s", evil, extra=fields(client=evil))
    assert len(stream.getvalue().splitlines()) == 1
    assert "\x1b" not in stream.getvalue()


def test_bytes_that_are_no_text_do_not_break_a_json_line() -> None:
    stream = io.StringIO()
    configure("info", "json", stream=stream)
    logging.getLogger("penstock.mqtt").info("x", extra=fields(topic=b"\xff".decode(errors="surrogateescape")))
    assert json.loads(stream.getvalue())["message"] == "x"


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("letter", ["x", "\u00fc", "\U0001f600", "\x01", "\udcff"])
def test_a_peer_cannot_fill_the_disk(form: str, letter: str) -> None:
    """Neither by a field, nor by an argument of a message, an error in it, or the message itself."""
    long = letter * 65000
    configure("info", "json" if form == "json" else "text", stream=(stream := io.StringIO()))
    log = logging.getLogger("penstock.mqtt")
    for write, limit in (
        (lambda: log.info("opened", extra=fields(client=long, raw=long.encode("utf-8", "replace"))), 2),
        (lambda: log.info("refused: %s, %r, %d", long, ValueError(long), 7), 2),
        (lambda: log.info(f"closed: {long}"), 8),
        (lambda: log.info("closed: %(why)s", {"why": long}), 8),
    ):
        stream.seek(0)
        stream.truncate()
        write()
        (line,) = stream.getvalue().splitlines()
        assert len(line) <= limit * 256 * 6 + 250  # a control character is six letters as it is escaped
        assert re.search(r"\(\d{5,6} bytes\)", line)


def test_a_short_text_is_whole() -> None:
    configure("info", "text", stream=(stream := io.StringIO()))
    logging.getLogger("penstock.mqtt").info("%s", "m" * 256, extra=fields(client="c" * 256, error=OSError(2)))
    assert stream.getvalue().endswith(f" {'m' * 256} client={'c' * 256} error=2\n")


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_exception_is_shown(form: str) -> None:
    stream = io.StringIO()
    configure("info", "json" if form == "json" else "text", stream=stream)
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("penstock.log").exception("it failed")
    assert "ValueError: broken" in stream.getvalue()


def test_lines_of_events_are_gathered_and_keep_their_order() -> None:
    stream = io.StringIO()
    soon: list[Callable[[], None]] = []
    configure("info", "text", stream=stream)
    logger = logging.getLogger("penstock.test")
    with gathered(soon.append):
        event(logger, "first", {})
        event(logger, "second", {})
        assert stream.getvalue() == ""
        assert len(soon) == 1
        logger.info("third")
        event(logger, "fourth", {})
        soon.pop()()
        event(logger, "fifth", {})
    event(logger, "sixth", {})
    words = [line.split(" ")[3] for line in stream.getvalue().splitlines()]
    assert words == ["first", "second", "third", "fourth", "fifth", "sixth"]
