"""A gateway with its management API and metrics, and requests to them; shapes of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.brokers import Gateway

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "management_shapes.json"

SETTINGS = {"management.listen": "127.0.0.1:0", "metrics.listen": "127.0.0.1:0"}


class Api:
    """Requests to the management API of a gateway, as one user."""

    def __init__(self, gateway: Gateway, user: str = "guest", password: str = "guest") -> None:
        self.port = gateway.ports["management"]
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}/api/", auth=(user, password), timeout=60
        )

    def get(self, path: str) -> Any:
        """The JSON of a path, which must be there."""
        answer = self.client.get(path)
        assert answer.status_code == 200, (path, answer.status_code, answer.text[:500])
        return answer.json()

    def status(self, method: str, path: str, body: object = None) -> int:
        """Send a request; its status."""
        return self.send(method, path, body).status_code

    def send(self, method: str, path: str, body: object = None) -> httpx.Response:
        """Send a request with a JSON body."""
        content = None if body is None else json.dumps(body).encode()
        return self.client.request(method, path, content=content)

    def close(self) -> None:
        self.client.close()


def mismatches(shape: Any, value: Any, at: str, ignored: Sequence[str]) -> list[str]:
    """Where `value` lacks a key of `shape`, or has another JSON type there.

    A shape is a type's name, names with "|" between, a list with the shape of its items, or an object whose
    keys with "?" may be missing. Keys in `ignored` (as PATH.KEY, without list indexes) are not looked at.
    """
    if isinstance(shape, str):
        kinds = shape.split("|")
        return [] if _kind(value) in kinds or "null" in (*kinds, _kind(value)) else [f"{at}: {_kind(value)}"]
    if isinstance(shape, list):
        if not isinstance(value, list):
            return [f"{at}: not a list"]
        return [m for item in value for m in mismatches(shape[0], item, at, ignored)] if shape else []
    if value == []:
        value = {}
    if not isinstance(value, Mapping):
        return [f"{at}: not an object"]
    found = []
    for key, inner in shape.items():
        name = key.rstrip("?")
        where = f"{at}.{name}"
        if any(where == one or where.endswith("." + one) for one in ignored):
            continue
        if name not in value:
            found += [] if key.endswith("?") else [f"{where}: missing"]
        else:
            found += mismatches(inner, value[name], where, ignored)
    return found


@pytest.fixture(scope="module")
def api(gateway: Gateway) -> Iterator[Api]:
    """Requests to the gateway of a module, as guest."""
    made = Api(gateway)
    yield made
    made.close()


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "list"
    return "object"
