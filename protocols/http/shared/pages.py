"""Lists that are read page by page: `?max=`, and `?page_token=` as the page before gave it.

A page is what comes behind the name that its token stands for, so that what is made or deleted meanwhile
neither repeats nor hides anything else. `next_page_token` is there as long as more follows.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from penstock.protocols.http.server.messages import HttpError, Request, Response, json_response
from penstock.protocols.http.shared.fields import Whole, number_in

__all__ = ["MAX", "page"]

MAX: Final = Whole(1000, 1, 1000)


T = TypeVar("T")


def page(
    request: Request, name: str, items: Iterable[tuple[str, T]], shown: Callable[[str, T], Any]
) -> Response:
    """The page of a list that a request asks for.

    Args:
        name: Of the list in the answer.
        items: (name, item), the names being different ones.
        shown: An item as JSON.

    Raises:
        HttpError: 400, a token that no page gave.

    """
    most, after = number_in(request, "max", MAX), _after(request.parameter("page_token"))
    rest = sorted(((key, item) for key, item in items if key > after), key=lambda one: one[0])
    answer: dict[str, Any] = {name: [shown(key, item) for key, item in rest[:most]]}
    if len(rest) > most:
        key = rest[most - 1][0].encode("utf-8", "surrogateescape")
        answer["next_page_token"] = base64.urlsafe_b64encode(key).decode().rstrip("=")
    return json_response(answer)


def _after(token: str) -> str:
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise HttpError(
            400, "bad_field", "page_token: none that a page gave; leave it out for the first page"
        ) from error
    return raw.decode("utf-8", "surrogateescape")
