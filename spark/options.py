"""Options of the data source, read once and checked: an unknown option or value is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from penstock.sdk.connection.url import parse_url
from penstock.sdk.errors import ClientError
from penstock.spark.errors import SparkOptionError
from penstock.spark.filters import PROTOCOLS, Wanted, amqp_pattern, mqtt_filter
from penstock.spark.logs.archive import archive_path
from penstock.spark.logs.storage import Storage, storage_of
from penstock.spark.reports import check_address
from penstock.spark.schema import select

__all__ = ["DEFAULT_EXCHANGE", "ReadOptions", "parse_duration_s", "parse_time_ms"]

_KNOWN: Final = (
    "path",
    "table",
    "endpoint",
    "cursor",
    "lease",
    "archive",
    "columns",
    "payload",
    "vhosts",
    "exchanges",
    "topics",
    "routingKeys",
    "protocols",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "isolation",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "taskBytes",
    "report",
)
_OF_TRAFFIC: Final = ("archive", "payload", "exchanges", "topics", "routingKeys", "protocols")
_OF_STREAMS: Final = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
"""Options that a batch query refuses."""
DEFAULT_EXCHANGE: Final = "amq.default"
"""The name of the one that has none, as in permissions."""
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True)
class ReadOptions:
    """Options of the source; docs/reference/spark.md lists them for users."""

    path: str
    """The data folder, or the URL of a gateway."""
    table: str
    """`traffic` or `events`."""
    endpoint: str | None
    """The gateway that is told what the query still needs; None: nobody is."""
    cursor: str
    """The name of the query's lease there; "": one of its own."""
    lease_s: int
    archive: Path | None
    """The archive that `tier` wrote of this log; None: the log alone."""
    columns: str | None
    payload: str
    payload_max: int
    vhosts: tuple[str, ...]
    encodings: int
    wanted: Wanted
    starting: str | int | None
    """`earliest`, `latest`, cursor:NAME, a position, or None: by time or by the kind of query."""
    ending: str | int | None
    starting_ms: int | None
    ending_ms: int | None
    fail_on_data_loss: bool
    written: bool
    """Up to what is written, not only what is synced."""
    max_offsets: int | None
    max_bytes: int | None
    min_offsets: int | None
    max_delay_s: float
    min_partitions: int
    of_streams: tuple[tuple[str, str], ...]
    """The given options that only streams have, as they were given."""
    task_bytes: int | None
    """How much a task reads at most; None: the planner says."""
    report: str = ""
    """Where to tell how far it is (`reports`); "": nowhere."""
    task_bytes_min: int = 65536
    """For less no further task is made, whatever `min_partitions` says; no option."""

    @property
    def starts_exactly(self) -> bool:
        """A position was named: what is not there from it on is missed."""
        return self.starting not in (None, "earliest", "latest")

    @property
    def selected(self) -> list[str]:
        """The columns that are asked for, in table order. Raises SparkOptionError."""
        return select(self.columns, self.payload, self.table)

    def for_batch(self) -> ReadOptions:
        """These. Raises SparkOptionError when they say what only a stream does."""
        for name, value in self.of_streams:
            raise SparkOptionError(
                name, value, "a batch query has no triggers: leave it out, or read with spark.readStream"
            )
        if self.starting == "latest":
            raise SparkOptionError(
                "startingOffsets", "latest", "a batch query ends there: give earliest, an offset or a time"
            )
        return self

    def for_stream(self) -> ReadOptions:
        """These. Raises SparkOptionError when they say what only a batch query does."""
        for name, value in (("endingOffsets", self.ending), ("endingTimestamp", self.ending_ms)):
            if value is not None:
                raise SparkOptionError(
                    name, value, "a stream has no end: leave it out, or read with spark.read"
                )
        return self

    @property
    def storage(self) -> Storage:
        """Where the log is read."""
        return storage_of(self.path)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Read the options of a query, whose names may be in any case. Raises SparkOptionError."""
        given = {name.lower(): value for name, value in options.items()}
        known = {name.lower(): name for name in _KNOWN}
        for name in given:
            if name not in known:
                raise SparkOptionError(name, given[name], f"the options are {', '.join(_KNOWN)}")
        if not given.get("path"):
            raise SparkOptionError(
                "path", "", "give penstock's data folder (log.data_dir), or the URL of a gateway"
            )
        table = _choice(given, "table", ("traffic", "events"))
        for name in _OF_TRAFFIC:
            if table == "events" and name.lower() in given:
                raise SparkOptionError(name, given[name.lower()], "leave it out: it is of the table traffic")
        payload = given.get("payload", "full")
        head = re.fullmatch(r"head:([0-9]+)", payload)
        if payload not in ("full", "none") and head is None:
            raise SparkOptionError("payload", payload, "give full, none or head:BYTES")
        topics, keys = _words(given, "topics"), _words(given, "routingKeys")
        for topic in topics:
            if "#" in topic[:-1] or (topic.endswith("#") and topic not in ("#",) and topic[-2] != "/"):
                raise SparkOptionError(
                    "topics", topic, "give MQTT topic filters: # stands last, for whole levels"
                )
            mqtt_filter(topic)
        for key in keys:
            amqp_pattern(key)
        if "startingoffsets" in given and "startingtimestamp" in given:
            raise SparkOptionError(
                "startingTimestamp", given["startingtimestamp"], "leave out startingOffsets"
            )
        if "endingoffsets" in given and "endingtimestamp" in given:
            raise SparkOptionError("endingTimestamp", given["endingtimestamp"], "leave out endingOffsets")
        starting_ms, ending_ms = _time(given, "startingTimestamp"), _time(given, "endingTimestamp")
        if starting_ms is not None and ending_ms is not None and ending_ms < starting_ms:
            remedy = "give a time that is not before startingTimestamp"
            raise SparkOptionError("endingTimestamp", given["endingtimestamp"], remedy)
        return cls(
            path=given["path"],
            table=table,
            endpoint=_endpoint(given),
            cursor=given.get("cursor", ""),
            lease_s=max(1, round(parse_duration_s("lease", given.get("lease", "10m")))),
            archive=archive_path(given["archive"]) if "archive" in given else None,
            columns=given.get("columns"),
            payload=payload,
            payload_max=int(head[1]) if head else -1,
            vhosts=_words(given, "vhosts"),
            encodings=_encodings(_words(given, "protocols")),
            wanted=Wanted(_exchanges(given), topics, keys),
            starting=_position(given, "startingOffsets"),
            ending=_position(given, "endingOffsets"),
            starting_ms=starting_ms,
            ending_ms=ending_ms,
            fail_on_data_loss=_boolean(given, "failOnDataLoss", True),
            written=_choice(given, "isolation", ("synced", "written")) == "written",
            max_offsets=_number(given, "maxOffsetsPerTrigger", 1),
            max_bytes=_number(given, "maxBytesPerTrigger", 1),
            min_offsets=_number(given, "minOffsetsPerTrigger", 1),
            max_delay_s=parse_duration_s("maxTriggerDelay", given.get("maxtriggerdelay", "15m")),
            min_partitions=_number(given, "minPartitions", 1) or 1,
            of_streams=tuple((name, given[name.lower()]) for name in _OF_STREAMS if name.lower() in given),
            task_bytes=_number(given, "taskBytes", 65536),
            report=_report(given),
        )


def _endpoint(given: Mapping[str, str]) -> str | None:
    endpoint = given.get("endpoint", given["path"] if "://" in given["path"] else None)
    for name, text in (("endpoint", endpoint), ("path", given["path"])):
        if text is not None and "://" in text:
            try:
                parse_url(text)
            except ClientError as error:
                raise SparkOptionError(name, text.rpartition("@")[2], error.remedy) from None
    return endpoint


def _report(given: Mapping[str, str]) -> str:
    address = given.get("report", "")
    if address:
        check_address(address)
    return address


def _words(given: Mapping[str, str], name: str) -> tuple[str, ...]:
    text = given.get(name.lower())
    if text is None:
        return ()
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    if not words:
        # It would be all of them, which is not what somebody wants who names none.
        default = f"; {DEFAULT_EXCHANGE} is the default exchange" if name == "exchanges" else ""
        raise SparkOptionError(name, text, f"give names, comma separated, or leave it out for all{default}")
    return words


def _exchanges(given: Mapping[str, str]) -> tuple[str, ...]:
    return tuple("" if name == DEFAULT_EXCHANGE else name for name in _words(given, "exchanges"))


def _encodings(names: tuple[str, ...]) -> int:
    bits = 0
    for name in names:
        if name not in PROTOCOLS:
            raise SparkOptionError("protocols", name, f"give some of {', '.join(PROTOCOLS)}")
        bits |= 1 << PROTOCOLS[name]
    return bits


def _position(given: Mapping[str, str], name: str) -> str | int | None:
    text = given.get(name.lower())
    if text is None or text in ("earliest", "latest"):
        return text
    if text.startswith("cursor:"):
        if _endpoint(given) is None:
            raise SparkOptionError(name, text, "name the gateway that has the cursor, by the option endpoint")
        return text
    remedy = 'give earliest, latest, cursor:NAME, an offset, or JSON such as {"0": 1234}'
    try:
        value = json.loads(text)
    except ValueError:
        raise SparkOptionError(name, text, remedy) from None
    if isinstance(value, dict) and set(value) >= {"0"}:
        value = value["0"]
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise SparkOptionError(name, text, remedy)
    return value


def _time(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    return None if text is None else parse_time_ms(name, text)


def parse_time_ms(name: str, text: str) -> int:
    """A moment as milliseconds since the epoch: those, or ISO 8601 (UTC without a zone).

    Raises SparkOptionError, naming the option.
    """
    if text.lstrip("-").isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise SparkOptionError(
            name, text, 'give a time such as "2026-05-01T10:00:00Z", or milliseconds since 1970'
        ) from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def parse_duration_s(name: str, text: str) -> float:
    """A duration such as 500ms, 30s, 15m, 2h or 1d, in seconds; SparkOptionError names the option."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d)", text.strip())
    if found is None:
        raise SparkOptionError(name, text, "give a duration such as 500ms, 30s, 15m, 2h or 1d")
    return float(found[1]) * _UNITS[found[2]]


def _boolean(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name.lower())
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise SparkOptionError(name, text, "give true or false")
    return text.lower() == "true"


def _choice(given: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    text = given.get(name.lower(), choices[0])
    if text not in choices:
        raise SparkOptionError(name, text, f"give {' or '.join(choices)}")
    return text


def _number(given: Mapping[str, str], name: str, least: int) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not text.isdecimal() or int(text) < least:
        raise SparkOptionError(name, text, f"give a whole number, at least {least}")
    return int(text)
