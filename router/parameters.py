"""Run-time parameters of vhosts: named values of a component, which acts on them; kept in the log's tables.

    table parameter   key row_key(vhost, component, name)
                      value  encoded table: vhost, component, name, value, user

A component (`Component`) checks a value before it is kept, and is told of every change. Without a component
of that name nothing can be put.
Source: RabbitMQ's rabbit_runtime_parameters.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from penstock.lazy_dataclass import dataclass
from penstock.router.arguments import decode_table, encode_table
from penstock.router.errors import InvalidParameter
from penstock.router.rows import Tables, row_key

__all__ = ["Component", "Parameter", "Parameters"]

_TABLE: Final = "parameter"
_NAME_MAX: Final = 255


@dataclass(frozen=True, slots=True)
class Parameter:
    """One value."""

    vhost: str
    component: str
    name: str
    value: Any
    """A table, or a list of tables."""
    user: str
    """The user who put it, with whose rights it acts; "" = it was loaded from a file at a start."""


class Component(Protocol):
    """The part of the gateway that acts on parameters."""

    def check(self, parameter: Parameter, known: Parameter | None) -> Parameter:
        """The parameter as it is to be kept; `known` has its name so far. Raises InvalidParameter."""

    def changed(self, before: Parameter | None, now: Parameter | None) -> None:
        """It was put, changed or cleared."""


class Parameters:
    """See the module. `Broker.parameters`."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.components: Final[dict[str, Component]] = {}
        """By name."""
        self._all: dict[tuple[str, str, str], Parameter] = {}
        for _, value in tables.items(_TABLE):
            found = Parameter(**decode_table(value))
            self._all[found.vhost, found.component, found.name] = found

    def of(self, vhost: str, component: str | None = None) -> list[Parameter]:
        """Those of a vhost, by component and name."""
        found = (
            one for one in self._all.values() if one.vhost == vhost and component in (None, one.component)
        )
        return sorted(found, key=lambda one: (one.component, one.name))

    def get(self, vhost: str, component: str, name: str) -> Parameter | None:
        """One of them; None: there is none of that name."""
        return self._all.get((vhost, component, name))

    def checked(self, parameter: Parameter) -> Parameter:
        """The parameter as it would be kept.

        Raises:
            InvalidParameter: no such component, or it refuses the value.

        """
        component = self.components.get(parameter.component)
        if component is None:
            raise InvalidParameter(f"Validation failed\n\ncomponent {parameter.component} not found\n")
        if not 1 <= len(parameter.name.encode()) <= _NAME_MAX:
            raise InvalidParameter(f"the name of a parameter has 1 to {_NAME_MAX} bytes")
        known = self.get(parameter.vhost, parameter.component, parameter.name)
        return component.check(parameter, known)

    def put(self, parameter: Parameter) -> int:
        """Put or change one; the LSN to wait for. Raises InvalidParameter: see `checked`."""
        now = self.checked(parameter)
        key = now.vhost, now.component, now.name
        before = self._all.get(key)
        if before is not None and before.value == now.value:
            return 0
        row = {
            "vhost": now.vhost,
            "component": now.component,
            "name": now.name,
            "value": now.value,
            "user": now.user,
        }
        lsn = self._tables.put(_TABLE, row_key(*key), encode_table(row))
        self._all[key] = now
        self.components[now.component].changed(before, now)
        return lsn

    def clear(self, vhost: str, component: str, name: str) -> int:
        """Remove one; the LSN to wait for, 0 when there is none."""
        before = self._all.pop((vhost, component, name), None)
        if before is None:
            return 0
        lsn = self._tables.delete(_TABLE, row_key(vhost, component, name))
        if component in self.components:
            self.components[component].changed(before, None)
        return lsn

    def clear_vhost(self, vhost: str) -> int:
        """Remove all of a vhost that goes; the LSN to wait for."""
        return max((self.clear(vhost, one.component, one.name) for one in self.of(vhost)), default=0)
