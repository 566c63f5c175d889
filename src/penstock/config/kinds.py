"""The kinds of value an option can have: how each is read, checked, written and described.

A kind reads a value twice over: `from_value` takes what TOML gives (already typed), `from_text`
what an environment variable or the command line gives. Both end in the same checks and raise
`BadValue`, which says what is wrong with the value but not where it stands: that is the reader's
business (`penstock.config.sources`).
"""

from __future__ import annotations

import ipaddress
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from penstock.lazy_dataclass import dataclass

__all__ = [
    "GIB",
    "KIB",
    "MIB",
    "Address",
    "AutoBytes",
    "BadValue",
    "Bytes",
    "Choice",
    "Count",
    "Kind",
    "Listen",
    "Names",
    "Networks",
    "Pairs",
    "Part",
    "Seconds",
    "Share",
    "Switch",
    "Text",
    "WholeSeconds",
    "Words",
    "inline_tables",
    "option",
    "shown",
    "toml_value",
]

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
TIB = 1024 * GIB

_SIZES: Mapping[str, float] = {
    "": 1,
    "b": 1,
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
    "tib": TIB,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
_TIMES: Mapping[str, float] = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_MEASURE = re.compile(r"\s*([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*([a-zA-Z]*)\s*")


class BadValue(Exception):
    """A value that its kind refuses. `remedy` says what to write instead; may be empty."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class Address(NamedTuple):
    """Where a listener listens."""

    host: str
    """A name or an address; IPv6 without brackets."""
    port: int
    """0..65535; 0 asks the system for any free port."""

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read "HOST:PORT" or "[IPV6]:PORT"; raises `BadValue` for anything else."""
        remedy = 'write it as "127.0.0.1:5672", "[::1]:5672", or "" for off'
        host, colon, port = text.rpartition(":")
        if not colon:
            raise BadValue(f"{text!r} has no port", remedy)
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise BadValue(f"{text!r} is an IPv6 address without brackets", remedy)
        if not host:
            raise BadValue(f"{text!r} has no host", remedy)
        if not (port.isascii() and port.isdigit()) or int(port) > 65535:
            raise BadValue(f"{port!r} is no port (0 to 65535)", remedy)
        return cls(host, int(port))


def option(kind: Kind, doc: str, *, when: str, secret: bool = False) -> dict[str, object]:
    """The metadata of one option.

    Args:
        kind: The values it takes.
        doc: The effect, in whole sentences.
        when: The situation in which a user sets it, as the end of "change it when ...".
        secret: Whether its values are masked whenever they are shown.

    """
    return {"kind": kind, "doc": doc, "when": when, "secret": secret}


class Kind(ABC):
    """How the values of one option are read, checked, written and described."""

    unit = ""

    @abstractmethod
    def from_value(self, value: object) -> object:
        """Check a value as TOML typed it and return it as the configuration keeps it."""

    def from_text(self, text: str) -> object:
        """Check a value written as plain text: an environment variable or a --set."""
        return self.from_value(text)

    @abstractmethod
    def schema(self) -> dict[str, object]:
        """The JSON schema of one value."""

    @abstractmethod
    def range(self) -> str:
        """The values allowed, in words for the reference page."""

    def plain(self, value: object) -> object:
        """The value as plain JSON and TOML data."""
        return value

    def toml(self, value: object) -> str:
        """The value as it is written in a TOML file."""
        return json.dumps(value, ensure_ascii=False)

    def short(self, value: object) -> str:
        """The value as a person would write it in a TOML file."""
        return self.toml(value)


@dataclass(frozen=True)
class Text(Kind):
    """A string of any content."""

    words: str = "text"

    def from_value(self, value: object) -> str:
        if not isinstance(value, str):
            raise BadValue(f"{shown(value)} is not a string", "put it in quotes")
        return value

    def schema(self) -> dict[str, object]:
        return {"type": "string"}

    def range(self) -> str:
        return self.words


@dataclass(frozen=True)
class Choice(Kind):
    """One of a few words; with `switch`, also true or false."""

    words: tuple[str, ...]
    switch: bool = False

    def from_value(self, value: object) -> str | bool:
        if isinstance(value, bool) and self.switch:
            return value
        if isinstance(value, str) and value in self.words:
            return value
        raise BadValue(f"{shown(value)} is not allowed", f"choose one of {self.range()}")

    def from_text(self, text: str) -> str | bool:
        if self.switch and text in ("true", "false"):
            return text == "true"
        return self.from_value(text)

    def schema(self) -> dict[str, object]:
        return {"enum": [*self.words, *([True, False] if self.switch else [])]}

    def range(self) -> str:
        return ", ".join([*(f'"{word}"' for word in self.words), *(["true", "false"] if self.switch else [])])


@dataclass(frozen=True)
class Switch(Kind):
    """true or false."""

    def from_value(self, value: object) -> bool:
        if not isinstance(value, bool):
            raise BadValue(f"{shown(value)} is not allowed", "choose true or false")
        return value

    def from_text(self, text: str) -> bool:
        return self.from_value({"true": True, "false": False}.get(text, text))

    def schema(self) -> dict[str, object]:
        return {"type": "boolean"}

    def range(self) -> str:
        return "true, false"


@dataclass(frozen=True)
class Count(Kind):
    """A whole number in [low, high]."""

    low: int
    high: int

    def from_value(self, value: object) -> int:
        if isinstance(value, str):
            value = self._measured(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadValue(f"{shown(value)} is not a whole number")
        if not self.low <= value <= self.high:
            raise BadValue(f"{value} is out of range", f"choose {self.low} to {self.high}")
        return value

    def _measured(self, text: str) -> object:
        return int(text) if re.fullmatch(r"-?[0-9]{1,30}", text) else text

    def schema(self) -> dict[str, object]:
        return {"type": "integer", "minimum": self.low, "maximum": self.high}

    def range(self) -> str:
        return f"{self.low} to {self.high}"


@dataclass(frozen=True)
class Bytes(Count):
    """A size in bytes in [low, high]: a whole number, or text with a unit such as "64MiB"."""

    unit = "bytes"

    def _measured(self, text: str) -> object:
        return int(_measure(text, _SIZES, "bytes, KiB, MiB, GiB or TiB"))

    def schema(self) -> dict[str, object]:
        text = {"type": "string", "pattern": "^[0-9.]+ *(B|[kKMGT]i?B)?$"}
        return {"anyOf": [super().schema(), text]}

    def range(self) -> str:
        return f"{_size(self.low)} to {_size(self.high)}"

    def short(self, value: object) -> str:
        assert isinstance(value, int)
        text = _size(value).replace(" ", "")
        return text if text.isdigit() else f'"{text}"'


@dataclass(frozen=True)
class AutoBytes(Bytes):
    """A size in bytes, or "auto" for one that is found out."""

    def from_value(self, value: object) -> int | Literal["auto"]:  # type: ignore[override]
        return "auto" if value == "auto" else super().from_value(value)

    def schema(self) -> dict[str, object]:
        return {"anyOf": [{"const": "auto"}, super().schema()]}

    def range(self) -> str:
        return f'"auto", or {super().range()}'

    def short(self, value: object) -> str:
        return self.toml(value) if value == "auto" else super().short(value)


@dataclass(frozen=True)
class Share(Bytes):
    """A part of something, 0 to 1, or a size in bytes above 1."""

    def from_value(self, value: object) -> int | float:  # type: ignore[override]
        if value == 0 and not isinstance(value, bool):
            return 0
        if isinstance(value, str) and _MEASURE.fullmatch(value) and "." in value:
            value = float(_measure(value, _SIZES, "bytes, KiB, MiB, GiB or TiB"))
        if isinstance(value, float) and 0 <= value <= 1:
            return value
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, float):
            raise BadValue(f"{value:g} is no part and no size", f"choose {self.range()}")
        return super().from_value(value)

    def schema(self) -> dict[str, object]:
        return {"anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, super().schema()]}

    def range(self) -> str:
        return f"a part, 0.0 to 1.0, or {super().range()}; 0"

    def short(self, value: object) -> str:
        return self.toml(value) if isinstance(value, float) else super().short(value)


@dataclass(frozen=True)
class Part(Kind):
    """A part of a whole: a number in [0, 1]."""

    def from_value(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadValue(f"{shown(value)} is not a number")
        if not 0 <= value <= 1:
            raise BadValue(f"{value:g} is out of range", f"choose {self.range()}")
        return float(value)

    def from_text(self, text: str) -> float:
        try:
            return self.from_value(float(text))
        except ValueError:
            raise BadValue(f"{shown(text)} is not a number") from None

    def schema(self) -> dict[str, object]:
        return {"type": "number", "minimum": 0, "maximum": 1}

    def range(self) -> str:
        return "0.0 to 1.0"


@dataclass(frozen=True)
class Seconds(Kind):
    """A duration in seconds in [low, high]: a number, or text with a unit such as "10m" or "7d"."""

    low: float
    high: float
    unit = "seconds"

    def from_value(self, value: object) -> float:
        if isinstance(value, str):
            value = _measure(value, _TIMES, "ms, s, m, h or d")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadValue(f"{shown(value)} is not a number")
        if not self.low <= value <= self.high:
            raise BadValue(f"{value:g} is out of range", f"choose {self.range()} seconds")
        return float(value)

    def schema(self) -> dict[str, object]:
        text = {"type": "string", "pattern": "^[0-9.]+ *(ms|s|m|h|d)?$"}
        return {"anyOf": [{"type": "number", "minimum": self.low, "maximum": self.high}, text]}

    def range(self) -> str:
        return f"{self.low:g} to {self.high:.10g}"

    def plain(self, value: object) -> object:
        return int(value) if isinstance(value, float) and value.is_integer() else value

    def toml(self, value: object) -> str:
        return json.dumps(self.plain(value))


@dataclass(frozen=True)
class WholeSeconds(Count):
    """A duration in whole seconds in [low, high]: a whole number, or text with a unit such as "7d"."""

    unit = "seconds"

    def _measured(self, text: str) -> object:
        measured = _measure(text, _TIMES, "s, m, h or d")
        return int(measured) if measured == int(measured) else text

    def schema(self) -> dict[str, object]:
        text = {"type": "string", "pattern": "^[0-9.]+ *(ms|s|m|h|d)?$"}
        return {"anyOf": [super().schema(), text]}


@dataclass(frozen=True)
@dataclass(frozen=True)
class Listen(Kind):
    """An address to listen on, or ""."""

    empty: str = "off"
    """The meaning of ""."""

    def from_value(self, value: object) -> str:
        if not isinstance(value, str):
            raise BadValue(f"{shown(value)} is not an address", 'write it as "127.0.0.1:5672"')
        return str(Address.parse(value)) if value else ""

    def schema(self) -> dict[str, object]:
        return {"type": "string", "pattern": "^$|:[0-9]+$"}

    def range(self) -> str:
        return f'"HOST:PORT", "[IPV6]:PORT"; port 0 = any free port; "" = {self.empty}'


@dataclass(frozen=True)
class Names(Kind):
    """A list of names; as text, separated by commas."""

    def from_value(self, value: object) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise BadValue(f"{shown(value)} is not a list of strings", 'write it as ["guest", "ann"]')
        return tuple(value)

    def from_text(self, text: str) -> tuple[str, ...]:
        if text.lstrip().startswith("["):
            return self.from_value(toml_value(text))
        return tuple(name.strip() for name in text.split(",") if name.strip())

    def schema(self) -> dict[str, object]:
        return {"type": "array", "items": {"type": "string"}}

    def range(self) -> str:
        return "a list of names"

    def plain(self, value: object) -> object:
        return list(value) if isinstance(value, tuple) else value

    def toml(self, value: object) -> str:
        return super().toml(self.plain(value))


@dataclass(frozen=True)
class Words(Names):
    """A list of words out of a few, each once."""

    words: tuple[str, ...]

    def from_value(self, value: object) -> tuple[str, ...]:
        found = super().from_value(value)
        for word in found:
            if word not in self.words:
                raise BadValue(f"{shown(word)} is not allowed", f"choose some of {self.range()}")
        return tuple(dict.fromkeys(found))

    def from_text(self, text: str) -> tuple[str, ...]:
        return self.from_value(list(super().from_text(text)))

    def schema(self) -> dict[str, object]:
        return {"type": "array", "items": {"enum": list(self.words)}, "uniqueItems": True}

    def range(self) -> str:
        return ", ".join(self.words)


@dataclass(frozen=True)
class Pairs(Names):
    """A list of NAME=VALUE with values of a choice; the last `=` counts, each name stands there once."""

    values: tuple[str, ...]
    name: str
    """The kind of thing that the names are of, for people."""

    def from_value(self, value: object) -> tuple[str, ...]:
        pairs = super().from_value(value)
        seen = set()
        for pair in pairs:
            name, _, chosen = pair.rpartition("=")
            if not name or chosen not in self.values:
                raise BadValue(f"{pair!r} is not {self._form}", f'write it as "group={self.values[0]}"')
            if name in seen:
                raise BadValue(f"{name!r} is there twice", "leave one of them out")
            seen.add(name)
        return pairs

    def from_text(self, text: str) -> tuple[str, ...]:
        return self.from_value(list(super().from_text(text)))

    @property
    def _form(self) -> str:
        return f"{self.name}={' or '.join(self.values)}"

    def range(self) -> str:
        return f"a list of {self._form}"


@dataclass(frozen=True)
class Networks(Names):
    """A list of networks in CIDR notation, or of single addresses."""

    def from_value(self, value: object) -> tuple[str, ...]:
        for text in super().from_value(value):
            try:
                ipaddress.ip_network(text)
            except ValueError as error:
                raise BadValue(f"{text!r} is no network: {error}", 'write it as "10.1.0.0/16"') from None
        return super().from_value(value)

    def from_text(self, text: str) -> tuple[str, ...]:
        return self.from_value(list(super().from_text(text)))

    def range(self) -> str:
        return 'networks, such as "10.1.0.0/16"'


def _measure(text: str, units: Mapping[str, float], names: str) -> float:
    """The number in `text` in base units: an exact int where both the number and the unit are whole."""
    match = _MEASURE.fullmatch(text)
    factor = units.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise BadValue(f"{text!r} is not a number with a unit", f"use a plain number, or {names}")
    return (float(match[1]) if "." in match[1] else int(match[1])) * factor


def _size(count: int) -> str:
    for name, factor in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if count and count % factor == 0:
            return f"{count // factor} {name}"
    return str(count)


def toml_value(text: str) -> object:
    """One TOML value written as text; raises `BadValue`."""
    import tomllib  # here: many starts read no TOML

    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        raise BadValue("it is not written as a TOML value", 'write a list as ["a", "b"]') from None


def inline_tables(tables: Iterable[Mapping[str, object]]) -> str:
    """A TOML array of inline tables; values are strings and lists of strings."""
    texts = (
        "{" + ", ".join(f"{key} = {json.dumps(v, ensure_ascii=False)}" for key, v in table.items()) + "}"
        for table in tables
    )
    return "[" + ", ".join(texts) + "]"


def shown(value: object) -> str:
    """The value for a message. Tables and lists are not shown: they may hold a password."""
    return f"this {type(value).__name__}" if isinstance(value, dict | list) else repr(value)
