"""Schemas: the user's types as bodies, by msgspec or pydantic."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import msgspec
import pydantic
import pytest

import penstock
from penstock.sdk.errors import BadBody


class OfMsgspec(msgspec.Struct):
    name: str
    price: float = 1.0


class OfPydantic(pydantic.BaseModel):
    name: str
    price: float = 1.0


@dataclasses.dataclass
class Plain:
    name: str
    price: float = 1.0


@pytest.mark.parametrize("kind", [OfMsgspec, OfPydantic, Plain])
def test_values_come_back_as_they_were(kind: type) -> None:
    schema = penstock.Schema(kind)
    value = kind(name="an apple", price=2.5)
    assert schema.decode(schema.encode(value)) == value
    assert schema.decode(b'{"name": "a pear"}') == kind(name="a pear")
    assert schema.content_type == "application/json"


@pytest.mark.parametrize("kind", [OfMsgspec, OfPydantic, Plain])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no json",
        b'{"price": 1}',
        b'{"name": "x", "price": "much"}',
        b"\xff",
        b'{"name": "\xff"}',
        b'{"name": "x", "price": ' + b"[" * 100_000,
        b'{"name": "x", "more": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=lambda body: str(body[:24]),
)
def test_an_invalid_value_says_so(kind: type, body: bytes) -> None:
    with pytest.raises(BadBody, match=f"no {kind.__name__}"):
        penstock.Schema(kind).decode(body)


PROGRAM = """
import sys
for name in {missing}: sys.modules[name] = None
import dataclasses, penstock
from penstock.sdk.errors import ClientError

@dataclasses.dataclass
class Plain:
    name: str

try:
    schema = penstock.Schema(Plain)
    print(schema.decode(schema.encode(Plain("x"))))
except ClientError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("missing", "says"),
    [
        (["msgspec"], "Plain(name='x')"),
        (["pydantic"], "Plain(name='x')"),
        (["msgspec", "pydantic"], "a schema needs msgspec or pydantic"),
    ],
)
def test_one_of_the_two_is_enough(missing: list[str], says: str) -> None:
    program = PROGRAM.format(missing=missing)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith(says)
