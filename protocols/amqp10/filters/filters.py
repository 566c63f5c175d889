"""The filters of a source: where it begins, and which messages pass.

| filter | value | a message passes |
|---|---|---|
| `rabbitmq:stream-offset-spec` | see `stream_start`; a timestamp | from there on |
| `rabbitmq:stream-filter` | texts | whose annotation `x-stream-filter-value` is one of them |
| `rabbitmq:stream-match-unfiltered` | a boolean | without that annotation, too |
| `penstock:cursor` | a name | behind those that a receiver of that name was done with |
| `penstock:replay`, `penstock:backfill` | see `start_position`; a timestamp | from there on |
| `amqp:properties-filter` | a map of fields of the properties section | when all are equal |
| `amqp:application-properties-filter` | a map of application properties | when all are equal |
| `amqp:sql-filter`, `apache.org:selector-filter:string` | a text | when the selector is true |

A value is described, and its descriptor says which filter it is. A text that begins with `&p:` or `&s:`
stands for a beginning or an end, `&&` for one `&`. Numbers of all types compare by value; null equals all.

Source: AMQP Filter Expressions 1.0 (working draft 09), section 4; RabbitMQ 4.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.protocols.amqp10.codec import values as v
from penstock.protocols.amqp10.codec.errors import FieldError, Unsupported
from penstock.protocols.amqp10.filters._program import Program
from penstock.protocols.amqp10.filters.parser import parse_selector
from penstock.protocols.amqp10.filters.terms import Term, Tree
from penstock.protocols.amqp10.filters.view import View
from penstock.protocols.amqp10.messages import sections as s
from penstock.protocols.amqp10.messages.sections import PROPERTY_NAMES
from penstock.router.queues.start_position import StartPosition, parse_since

__all__ = ["Filters"]

_FIELDS_MAX: Final = 16
_VALUES_MAX: Final = 32
_NAME_MAX: Final = 255
_CODES: Final = {
    0x173: "amqp:properties-filter",
    0x174: "amqp:application-properties-filter",
    0x120: "amqp:sql-filter",
    0x468C00000004: "apache.org:selector-filter:string",
}
_VALUE: Final = "x-stream-filter-value"

_Test = Callable[[Any], bool]


class Filters:
    """See the module."""

    def __init__(self, filters: Mapping[Any, Any], clock: Callable[[], int]) -> None:
        """`clock` gives ms since the epoch.

        Raises:
            FieldError, SelectorError: a filter with an impossible value.
            Unsupported: one that is not known.

        """
        self._clock = clock
        self.offset: object = None
        self.cursor = ""
        self.replay: StartPosition | None = None
        """The messages of a queue are read again from there on."""
        self.backfill: Any = None
        """A new queue gets what came before it, from there on."""
        self._said: list[str] = []
        self._values: tuple[str, ...] | None = None
        self._unfiltered = False
        self._properties: dict[int, _Test] = {}
        self._application: dict[str, _Test] = {}
        self._trees: dict[int | str, Tree] = {}
        """Of each field of the two before."""
        self._selectors: list[Term] = []
        self.of_stream = False
        """One of them has a meaning for streams only."""
        self.text = ""
        """Their meaning as text, the same for equal ones."""
        for described in filters.values():
            self._add(described)
        self.text = " & ".join(sorted(self._said))

    @property
    def look(self) -> bool:
        """Whether any of them looks at messages."""
        return self._values is not None or bool(self._properties or self._application or self._selectors)

    def _add(self, described: Any) -> None:
        if not isinstance(described, v.Described):
            raise FieldError("a filter is a described value")
        name = described.descriptor
        if not isinstance(name, str | int):
            raise FieldError("the descriptor of a filter is a symbol or a number")
        if isinstance(name, int):
            name = _CODES.get(name, str(name))
        value = described.value
        if not name.startswith("penstock:"):
            said = sorted(value.items(), key=str) if isinstance(value, dict) else value
            self._said.append(f"{name} {said!r}")
        self.of_stream = self.of_stream or name.startswith("rabbitmq:") or name == "penstock:cursor"
        match name:
            case "rabbitmq:stream-offset-spec":
                self.offset = StartPosition(max(value, 0)) if isinstance(value, v.Timestamp) else value
            case "rabbitmq:stream-filter":
                items = value.items if isinstance(value, v.Array) else value
                found = items if isinstance(items, list) else [items]
                if len(found) > _VALUES_MAX or not all(isinstance(one, str) for one in found):
                    raise FieldError(f"rabbitmq:stream-filter has up to {_VALUES_MAX} texts")
                self._values = tuple(found)
            case "rabbitmq:stream-match-unfiltered":
                self._unfiltered = value is True
            case "penstock:cursor":
                if not isinstance(value, str) or not 0 < len(value) <= _NAME_MAX:
                    raise FieldError(f"{name} is a text of 1 to {_NAME_MAX} characters")
                self.cursor = str(value)
            case "penstock:replay":
                self.replay = parse_since(value, self._clock())
                if self.replay is None:
                    raise FieldError(f"{name}: {value!r} is no moment")
            case "penstock:backfill":
                self.backfill = value if isinstance(value, str) else int(value) if _is_int(value) else None
                if self.backfill is None:
                    raise FieldError(f"{name}: {value!r} is no moment")
            case "amqp:properties-filter":
                for key, one in _fields(name, value):
                    if key not in PROPERTY_NAMES:
                        raise FieldError(f"{key} is no field of the properties section")
                    at = PROPERTY_NAMES.index(key)
                    self._properties[at] = _test(one)
                    field: Tree = ("listed", s.PROPERTIES, at, None)
                    self._trees[at] = ("constant", True) if one is None else _tree(field, one)
            case "amqp:application-properties-filter":
                for key, one in _fields(name, value):
                    self._application[key] = _test(one)
                    self._trees[key] = _tree(("mapped", s.APPLICATION_PROPERTIES, key), one)
            case "amqp:sql-filter" | "apache.org:selector-filter:string":
                if not isinstance(value, str):
                    raise FieldError(f"{name} is a text")
                self._selectors.append(parse_selector(value, self._clock))
            case _:
                raise Unsupported(f"there is no filter {name} here; receive without it")

    def program(self) -> Program | None:
        """The same as a program for the kernel; None: there is none."""
        trees = [*self._trees.values(), *(selector.tree for selector in self._selectors)]
        if self._values is not None:
            value: Tree = ("mapped", s.ANNOTATIONS, _VALUE)
            ways: list[Tree] = [("same", value, str(one)) for one in self._values]
            if self._unfiltered:
                ways.append(("null", value, False))
            trees.append(("any", ways))
        found = [tree for tree in trees if tree is not None]
        if not found or len(found) < len(trees):
            return None
        try:
            return Program(found)
        except ValueError:
            return None

    def passes(self, payload: bytes) -> bool:
        """Whether a message passes all of them."""
        message = View(payload)
        if self._values is not None:
            value = message.annotations.get(_VALUE)
            if value not in self._values and not (value is None and self._unfiltered):
                return False
        if not all(selector.value(message) for selector in self._selectors):
            return False
        if self._properties:
            fields = message.properties
            for at, test in self._properties.items():
                if not test(fields[at] if at < len(fields) else None):
                    return False
        if not self._application:
            return True
        found = message.application_properties
        return all(key in found and test(found[key]) for key, test in self._application.items())


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _fields(name: str, value: Any) -> list[tuple[str, Any]]:
    if not isinstance(value, dict) or not 0 < len(value) <= _FIELDS_MAX:
        raise FieldError(f"{name} is a map of 1 to {_FIELDS_MAX} fields")
    if not all(isinstance(key, str) for key in value):
        raise FieldError(f"{name} has a key that is no text")
    return [(str(key), one) for key, one in value.items()]


def _tree(field: Tree, wanted: Any) -> Tree:
    """The test that `_test` makes, as a tree."""
    if wanted is None:
        return ("there", field)
    if isinstance(wanted, str):
        kind, rest = wanted[:3], wanted[3:]
        if kind in ("&p:", "&s:"):
            return ("begins" if kind == "&p:" else "ends", field, rest)
        wanted = str(wanted.removeprefix("&"))
    return ("same", field, wanted)


def _test(wanted: Any) -> _Test:
    """A test of a field against the wanted value. Raises FieldError."""
    if wanted is None:
        return lambda _: True
    if isinstance(wanted, str) and wanted.startswith("&"):
        kind, rest = wanted[:3], wanted[3:]
        if kind == "&p:":
            return lambda value: isinstance(value, str) and value.startswith(rest)
        if kind == "&s:":
            return lambda value: isinstance(value, str) and value.endswith(rest)
        if not wanted.startswith("&&"):
            raise FieldError(f"{wanted!r} begins with & and is no &p:, &s: or &&")
        wanted = wanted[1:]
    if isinstance(wanted, list | dict | v.Array | v.Described):
        raise FieldError("a field is compared with a simple value")
    boolean = isinstance(wanted, bool)
    return lambda value: isinstance(value, bool) == boolean and bool(value == wanted)
