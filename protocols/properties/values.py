"""The types of AMQP field values in Python, for signatures. Which field type is which: `_tables.pyx`."""

from __future__ import annotations

from decimal import Decimal
from typing import TypeAlias

__all__ = ["Table", "Value"]

Value: TypeAlias = bool | int | float | str | bytes | Decimal | list["Value"] | dict[str, "Value"] | None
Table: TypeAlias = dict[str, Value]
