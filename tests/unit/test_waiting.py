"""Waiting times that tests must set themselves and not leave to a library."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
REQUESTS = frozenset(
    {"get", "post", "put", "patch", "delete", "head", "options", "request", "stream", "Client", "AsyncClient"}
)


def impatient(source: str) -> Iterator[int]:
    """Lines with a request of httpx that gives up after its default, which is 5 s."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        called = node.func
        if (
            not isinstance(called.value, ast.Name)
            or called.value.id != "httpx"
            or called.attr not in REQUESTS
        ):
            continue
        if not any(keyword.arg in ("timeout", None) for keyword in node.keywords):
            yield node.lineno


def test_every_request_says_how_long_it_waits() -> None:
    found = []
    for path in TESTS.rglob("*.py"):
        source = path.read_text()
        if "httpx." in source:
            found += [f"{path.relative_to(TESTS)}:{line}" for line in impatient(source)]
    assert not found, "timeout=LIMIT_S (tests.support.limits): " + ", ".join(found)


def test_one_that_does_not_is_found() -> None:
    assert list(
        impatient("import httpx\nhttpx.get('u')\nhttpx.Client(auth=a)\nhttpx.get('u', timeout=9)")
    ) == [2, 3]
