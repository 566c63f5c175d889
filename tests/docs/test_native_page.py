"""The native protocol's page has the numbers, names and bounds of the code: all of them and no others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from penstock.protocols.native import options
from penstock.protocols.native.codec import errors as native_errors
from penstock.protocols.native.codec import frames, kinds, packing
from penstock.protocols.native.codec._producer import CHECKS
from penstock.protocols.native.session import opening, producing, pulling, raw
from penstock.protocols.native.session import requests as native_requests
from penstock.protocols.native.session.session import _OFFERED
from penstock.router import errors as router_errors
from penstock.router.messages import half
from penstock.sdk import errors as sdk_errors
from penstock.sdk import message
from penstock.subscriptions import errors as subscription_errors
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "reference" / "native.md").read_text()
CODE = ROOT / "protocols" / "native"


def rows(beginning: str) -> list[list[str]]:
    """The cells of the table whose head begins so."""
    lines = PAGE[PAGE.index(f"\n| {beginning}") + 1 :].splitlines()[2:]
    table = lines[: next(at for at, line in enumerate(lines) if not line.startswith("|"))]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))] for line in table]


def named(text: str) -> list[str]:
    return re.findall(r"`([a-z_0-9]+)`", text)


def calls(*names: str) -> Iterator[ast.Call]:
    """Calls of functions and methods of these names in the protocol's Python."""
    for path in sorted(CODE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and getattr(node.func, "id", getattr(node.func, "attr", "")) in names
            ):
                yield node


def words_of(found: Iterator[ast.Call]) -> set[str]:
    """The words that these calls say, of those that are constants."""
    said = {arg.value for call in found for arg in call.args if isinstance(arg, ast.Constant)}
    return {word for word in said if isinstance(word, str) and re.fullmatch("[a-z_]+", word)}


def test_each_frame_is_there_by_its_number_and_from_who_sends_it() -> None:
    told: dict[str, tuple[int, str]] = {}
    for numbers, names, sender, _ in rows("type | name"):
        for number, name in zip(numbers.split(", "), names.split(", "), strict=True):
            told[name] = int(number, 16), sender
    here = {name: value for name, value in vars(kinds).items() if isinstance(value, int)}
    for other in ("VERSION", "ACKS_NONE", "ACKS_WRITTEN", "ACKS_FSYNC"):
        del here[other]
    assert {name: number for name, (number, _) in told.items()} == here
    assert {number: name for name, (number, sender) in told.items() if sender in ("client", "both")} == (
        frames.NAMES
    )


def test_the_capabilities_are_those_that_are_offered() -> None:
    (line,) = re.findall(r"^Capabilities of version 1: (.*);", PAGE, re.M)
    assert named(line) == [*_OFFERED, *packing.available()]


def test_the_codes_of_errors_are_those_that_are_told() -> None:
    listed = PAGE[PAGE.index("Codes: ") : PAGE.index(", and the names of the broker's other refusals")]
    codes = named(listed)
    assert codes == sorted(set(codes))
    names = ("_codec", "_consumer", "_producer")
    kernels = "".join((CODE / "codec" / f"{name}.pyx").read_text() for name in names)
    told = words_of(calls("RequestError", "fault", "refused"))
    told |= set(re.findall(r'(?:fault|refused)\([^"\n]*"([a-z_]+)"', kernels)) | set(CHECKS[1:])
    told |= set(native_errors._RENAMED.values()) | native_errors._RETRYABLE
    assert told <= set(codes), "each that is said by its name is listed"
    classes = [*vars(router_errors).values(), *vars(subscription_errors).values()]
    others = {
        native_errors._RENAMED.get(one.__name__) or native_errors._WORD.sub("_", one.__name__).lower()
        for one in classes
        if isinstance(one, type) and issubclass(one, Exception)
    }
    assert set(codes) <= told | others, "nothing is listed that nobody says"


def test_the_requests_and_their_fields_are_those_that_are_read() -> None:
    table = rows("do | fields")
    assert {name for do, *_ in table for name in named(do)} == set(native_requests.REQUESTS)
    reading = ("text", "number", "switch", "any", "choice", "has")
    read = {
        call.args[0].value
        for call in calls(*reading)
        if isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "fields"
        and call.args
        and isinstance(call.args[0], ast.Constant)
    }
    # Of REQUEST itself, HELLO and LOGIN, which the table of frames has.
    read -= {"do", "versions", "client", "capabilities", "mechanism", "user", "password", "vhost"}
    told = {name for _, fields, _ in table for name in named(re.sub(r"\([^)]*\)", "", fields))}
    told.discard("bind")  # of whose `since` the row says something
    assert read <= told
    sources = "".join(path.read_text() for path in CODE.rglob("*.py"))
    # Of a few the names go round a loop.
    assert [name for name in told - read if f'"{name}"' not in sources] == []


def test_the_kinds_of_subscriptions_are_all_there() -> None:
    assert {name for kind, _ in rows("kind | who") for name in named(kind)} == set(native_requests._KINDS)


@pytest.mark.parametrize(
    ("says", "bound"),
    [
        ("| a frame before the login | {} bytes |", options.LOGIN_MAX),
        ("| a frame whose payload is JSON | {} bytes |", options.CONTROL_MAX),
        ("| handles of a connection (`limit_reached`, `busy`) | {} |", options.HANDLES_MAX),
        ("| requests of a connection that wait for a search | {} |", opening._SEARCHES_MAX),
        ("| PULLs of a consumer; of a connection | {};", pulling._PULLS_MAX),
        ("; of a connection | 1,000; {} |", pulling._PULLS_OF_ALL_MAX),
        ("| consumers of a `failover` or `key_shared` subscription | {} |", options.CHOOSERS_MAX),
        ("reads headers (`too_large`) | {} |", options.SINGLES_MAX),
        ("ranges of a TRANSACT | 10,000; {} |", producing._RANGES_MAX),
        ("| a record's properties (`properties_size`) | {} bytes |", message.PROPERTIES_MAX),
        ("At most {} half messages of 1 GiB in all", half.HALVES_MAX),
        ("`ttl_s` (at most {})", raw._TTL_MAX_S),
        ("at most {} wait; fewer bytes than asked for", raw._WAITING_MAX),
    ],
)
def test_a_bound_is_the_one_that_is_kept(says: str, bound: int) -> None:
    assert says.format(f"{bound:,}") in PAGE


def test_figures_in_the_text_equal_the_constants() -> None:
    assert half.BYTES_MAX == 1 << 30, "1 GiB of half messages"
    assert 1 << packing._WINDOW_LOG_MAX == 16 << 20, "a window of at most 16 MiB"


def test_the_errors_of_the_sdk_are_all_in_its_table() -> None:
    page = (ROOT / "docs" / "reference" / "sdk.md").read_text()
    table = page[page.index("\n| error | code") :]
    told: dict[str, str] = {}
    for line in table[: table.index("\n\n")].splitlines()[3:]:
        names, codes, *_ = (re.findall(r"`(\w+)`", cell) for cell in line.strip("|").split("|"))
        told |= dict(zip(names, codes or ["refused"], strict=True))
    classes = [getattr(sdk_errors, name) for name in sdk_errors.__all__]
    here = {
        one.__name__: one.code
        for one in classes
        if isinstance(one, type) and issubclass(one, sdk_errors.ClientError)
    }
    del here["ClientError"]
    assert told == here
