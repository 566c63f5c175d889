"""Reads the settings of a webhook from JSON, field by field; every mistake names its field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.protocols.http.server.messages import HttpError
from penstock.protocols.http.server.numbers import whole
from penstock.protocols.http.shared.fields import Whole

__all__ = ["Fields", "bad"]


def bad(name: str, detail: str) -> HttpError:
    """The error for a field with an impossible value."""
    return HttpError(400, "bad_field", f"{name}: {detail}")


class Fields:
    """An object whose fields are taken one by one, and what is left over is a mistake."""

    def __init__(self, value: Any, path: str) -> None:
        if not isinstance(value, dict):
            raise bad(path.rstrip(".") or "body", "a JSON object is needed")
        self.left: dict[str, Any] = dict(value)
        self._path = path
        self._known: list[str] = []

    def take(self, name: str, default: Any) -> Any:
        """The field as it is."""
        self._known.append(name)
        return self.left.pop(name, default)

    def object(self, name: str, default: Any = None) -> Fields:
        """An object; without a default it must be there."""
        return Fields(self.take(name, default), f"{self._path}{name}.")

    def text(self, name: str, default: Any = None) -> str:
        """Text; without a default it must be there."""
        value = self.take(name, default)
        if not isinstance(value, str):
            raise bad(self._path + name, "text is needed")
        return value

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> Any:
        """One of these."""
        value = self.take(name, default)
        if value not in choices:
            raise bad(self._path + name, f"one of {', '.join(choices)} is needed")
        return value

    def numbers(self, bounds: Mapping[str, Whole]) -> dict[str, int]:
        """Whole numbers by their names."""
        return {name: self._number(name, one) for name, one in bounds.items()}

    def _number(self, name: str, bounds: Whole) -> int:
        value = whole(self.take(name, bounds.default))
        if value is None or not bounds.least <= value <= bounds.most:
            raise bad(self._path + name, f"a whole number from {bounds.least} to {bounds.most} is needed")
        return value

    def end(self) -> None:
        """Nothing may be left."""
        if self.left:
            name = sorted(self.left)[0]
            raise bad(self._path + name, f"there is no such field; there are {', '.join(self._known)}")
