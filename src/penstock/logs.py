"""Log lines of the process: one line per event on standard error, as text or as JSON.

    2026-01-01T00:00:00.000Z INFO penstock.amqp connection opened peer=127.0.0.1:40312 user=guest
    {"time":"2026-01-01T00:00:00.000Z","level":"INFO","logger":"penstock.amqp","message":...}

Each layer logs to its own logger: penstock.amqp, penstock.mqtt, penstock.log, penstock.server. Values that
vary between two lines of the same event go into fields, not into the message:

    logger.info("connection opened", extra=fields(peer=peer, user=user))

Texts that a peer chose (user names, client ids, topics) may stand in a field or a message: line breaks and
other control characters are escaped, so that no peer can forge a line. A text in a field, or put into a
message by an argument, is cut after 256 bytes, and a message after 2,048, so that no peer can fill the disk.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, TextIO

from penstock import _log_lines
from penstock._log_fields import moment, pairs

__all__ = ["as_json", "configure", "event", "fields", "gathered", "level", "set_level"]

_FIELDS: Final = "penstock_fields"
_PLAIN: Final = re.compile(r"[^\s\"=\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_FIELD_BYTES: Final = 256
_SHORT: Final = _FIELD_BYTES // 4
"""A text of at most so many characters is never cut."""
_MESSAGE_BYTES: Final = 2048
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def fields(**values: object) -> dict[str, dict[str, object]]:
    """The `extra` argument of a logging call that attaches `values` to the line, in this order."""
    return {_FIELDS: values}


def event(logger: logging.Logger, message: str, values: dict[str, object]) -> None:
    """`logger.info(message, extra=fields(**values))` for lines of each connection, at a tenth of the cost.

    It makes no record where nobody else wants one: our own handler, for people, is the only one. `message`
    is a constant.
    """
    _log_lines.event(logger, message, values)


def _recorded(logger: logging.Logger, message: str, values: dict[str, object]) -> None:
    logger.info(message, extra=fields(**values))


@contextlib.contextmanager
def gathered(later: Callable[[Callable[[], None]], object]) -> Iterator[None]:
    """Write the lines of events of this thread together, many connections' at once.

    `later` calls a function soon. Any other line is written behind those that were there before it.
    """
    _log_lines.gather(later)
    try:
        yield
    finally:
        _log_lines.gather(None)
        _write_gathered()


def _write_gathered() -> None:
    handler = _ours
    if handler is None:
        return
    with handler.lock or contextlib.nullcontext():
        lines = "".join(_log_lines.gathered_lines())
        if not lines:
            return
        try:
            stream = handler.stream
            stream.write(lines)
            # It may be that of a terminal, which has written all up to the last line's end.
            if not getattr(stream, "line_buffering", False):
                stream.flush()
        except (OSError, ValueError, UnicodeError):
            handler.handleError(logging.makeLogRecord({"msg": lines, "levelno": logging.INFO}))


_common: dict[str, object] = {}


def common(**values: object) -> None:
    """Attach `values` to every line of this process from now on."""
    _common.update(values)
    _log_lines.common(values)


def configure(
    level: Literal["debug", "info", "warning", "error"],
    form: Literal["text", "json"],
    *,
    stream: TextIO | None = None,
) -> None:
    """Send the process's log lines to `stream` (standard error), replacing what was set up before.

    Args:
        level: The least severe line of penstock's own loggers; of all others it is warning.
        form: "text" for people, "json" for machines.
        stream: Where to write.

    """
    global _ours
    handler = _Handler(stream) if stream is not None else _StandardError()
    _ours = handler
    handler.setFormatter(_Json() if form == "json" else _Text())
    _log_lines.use(handler if form == "text" else None, _recorded, _write_gathered, _value, _SHORT)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    set_level(level)
    logging.captureWarnings(True)
    # No line says from where in the code, in which thread or in which task it was written. To find it out for
    # each costs a third of a line; these are the switches that the documentation of logging names.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    if sys.version_info >= (3, 12):
        logging.logAsyncioTasks = False


def level() -> str:
    """The least severe level of penstock's own loggers that is logged, in lower case."""
    return logging.getLevelName(logging.getLogger("penstock").getEffectiveLevel()).lower()


def set_level(level: str) -> None:
    """Log from this level on ("debug", "info", "warning", "error"), in penstock's own loggers."""
    logging.getLogger("penstock").setLevel(level.upper())


class _Handler(logging.StreamHandler[TextIO]):
    """Writes lines in the order in which they came."""

    def emit(self, record: logging.LogRecord) -> None:
        _write_gathered()
        super().emit(record)


class _StandardError(_Handler):
    """Writes to what is standard error when a line is written: who replaces and closes it gets no lines."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]  # an attribute there
        return sys.stderr


_ours: _Handler | None = None
"""The handler of `configure`."""
_log_lines.use(None, _recorded, _write_gathered, str, 0)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        message = _CONTROL.sub(_escape, _message(record))
        line = f"{moment(record.created)} {record.levelname} {record.name} {message}"
        trouble = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return line + _pairs({**_common, **getattr(record, _FIELDS, {})}) + trouble


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        import orjson

        line: dict[str, object] = {
            "time": moment(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": _message(record),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        # A lone surrogate (bytes of a peer that are no UTF-8) is no JSON string: it is replaced.
        try:
            return orjson.dumps(line, default=str).decode()
        except orjson.JSONEncodeError:
            return json.dumps(line, default=str)


def as_json() -> logging.Formatter:
    """The formatter of lines in JSON."""
    return _Json()


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    found: dict[str, Any] = getattr(record, _FIELDS, {})
    found = {**_common, **found} if _common else found
    return {name: value if type(value) is int else cut(value) for name, value in found.items()}


def _message(record: logging.LogRecord) -> str:
    arguments = record.args
    if isinstance(arguments, tuple):
        text = str(record.msg) % tuple(map(cut, arguments)) if arguments else str(record.msg)
    else:
        text = record.getMessage()
    return str(cut(text, _MESSAGE_BYTES))


def cut(value: Any, limit: int = _FIELD_BYTES) -> Any:
    """A text, bytes or error of more than `limit` bytes cut there, and how many it has; all else as it is."""
    if not isinstance(value, str | bytes | Exception):
        return value
    text = str(value)
    if len(text) <= limit // 4:
        return value
    raw = text.encode("utf-8", "backslashreplace")
    if len(raw) <= limit:
        return value
    return f"{raw[:limit].decode('utf-8', 'ignore')}... ({len(raw)} bytes)"


def _pairs(values: dict[str, object]) -> str:
    """Behind the message: ` key=value` of each, quoted where it has to be."""
    return pairs(values, _SHORT, _value)


def _value(value: object) -> str:
    return _quoted(str(cut(value)))


@functools.lru_cache(maxsize=256)  # reasons, most of all
def _quoted(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
