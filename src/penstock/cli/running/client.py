"""The command line's client of the management API: one connection, JSON both ways, errors in one line."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote, unquote, urlsplit

from penstock.cli.hints import command, plain, told_different, told_missing
from penstock.errors import PenstockError

if TYPE_CHECKING:
    import http.client

__all__ = ["DEFAULT_URL", "ApiError", "Client", "segment"]

DEFAULT_URL: Final = "http://guest:guest@127.0.0.1:15672"
_TIMEOUT_S: Final = 60.0


class ApiError(PenstockError):
    """The API refused a request (`status`), or could not be reached (`status` 0)."""

    def __init__(self, message: str, status: int, *, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.status = status


def segment(name: str) -> str:
    """A name as one segment of a path."""
    return quote(name, safe="")


class Client:
    """Requests to one gateway. PENSTOCK_USER and PENSTOCK_PASSWORD overrule what the URL has, and `login`, a
    name and a password, overrules both."""

    def __init__(self, url: str, *, login: tuple[str, str] | None = None) -> None:
        import http.client  # with all of TLS behind it, and `penstock --version` is quick

        try:
            parts = urlsplit(url)
            port = parts.port or 15672
        except ValueError:  # the port is none
            parts, port = urlsplit(""), 0
        if parts.scheme not in ("http", "https") or not parts.hostname:
            shown = re.sub("//[^/]*@", "//", url)  # without the password
            raise ApiError(f"{shown} is no URL of a management API", 0, remedy="write http://HOST:PORT")
        user = os.environ.get("PENSTOCK_USER") or unquote(parts.username or "guest")
        password = os.environ.get("PENSTOCK_PASSWORD") or unquote(parts.password or "guest")
        if login is not None:
            user, password = login
        self.user, self.password = user, password
        self.address = f"{parts.hostname}:{port}"
        self._authorization = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode("ascii")
        self._failures = (OSError, http.client.HTTPException)
        self._scheme = parts.scheme
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection: http.client.HTTPConnection = kind(parts.hostname, port, timeout=_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def get(self, path: str) -> Any:
        """The JSON at a path below /api, or at a whole path. Raises ApiError."""
        return self.request("GET", path)

    def pages(self, path: str, name: str) -> list[Any]:
        """The whole of a list that is read page by page. Raises ApiError."""
        found: list[Any] = []
        token = ""
        while True:
            answer = self.get(f"{path}?page_token={token}")
            found += answer[name]
            if not (token := answer.get("next_page_token", "")):
                return found

    def lines(self, path: str) -> Iterator[str]:
        """The lines of an answer that does not end, as they come. Raises ApiError."""
        where = _target(path)
        try:
            self._connection.request("GET", where, headers={"authorization": self._authorization})
            answer = self._connection.getresponse()
            if answer.status >= 400:
                raise self._refused(answer.read(), answer, wanted=True)
            while line := answer.readline():
                yield line.decode("utf-8", "replace").rstrip("\r\n")
        except self._failures as error:
            raise self._unreachable(error) from error

    def _refused(self, text: bytes, answer: http.client.HTTPResponse, *, wanted: bool) -> ApiError:
        reason = _reason(text) or answer.reason
        if answer.status == 401 and reason == "Login failed":
            return ApiError(
                f"user '{self.user}' cannot log in at {self.address}",
                answer.status,
                remedy="set PENSTOCK_USER and PENSTOCK_PASSWORD, or write --url http://USER:PASSWORD@HOST:PORT",
            )
        if answer.status in (401, 403):
            needs_tag = reason.startswith("Not ")
            how = command("users", "create", self.user, "--tags", "management") if needs_tag else ""
            return ApiError(
                reason.rstrip("."),
                answer.status,
                remedy=f"an administrator gives the user a tag and a password: {how}"
                if needs_tag
                else "`penstock users permissions` shows an administrator what users may do, and `penstock "
                "users grant` changes it",
            )
        if said := told_missing(reason, wanted=wanted) or told_different(reason):
            return ApiError(said[0], answer.status, remedy=said[1])
        return ApiError(plain(reason), answer.status)

    def _unreachable(self, error: Exception) -> ApiError:
        from http.client import HTTPException

        # Another protocol's listener may answer with its own bytes, or close the connection, or reset it.
        if isinstance(error, (HTTPException, ConnectionResetError)) or "SSL" in type(error).__name__:
            return ApiError(
                f"{self.address} gave no answer over {self._scheme}",
                0,
                remedy="name the address of management.listen with --url (http), or of management.tls_listen "
                "(https)",
            )
        return ApiError(
            f"no answer from the management API at {self.address}: {error}",
            0,
            remedy="start one with `penstock serve`, or name the address of its management API with --url",
        )

    def request(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        """Send a request; the JSON of the answer, None when it has none.

        Raises:
            ApiError: it was refused, or nobody answered.

        """
        data = None if body is None else json.dumps(body).encode()
        sent = {"authorization": self._authorization, "content-type": "application/json", **headers}
        where = _target(path)
        try:
            self._connection.request(method, where, data, sent)
            answer = self._connection.getresponse()
            text = answer.read()
        except BaseException as error:
            # Also after Ctrl-C: an answer that was not read would be taken for that of the next request.
            self._connection.close()
            if isinstance(error, self._failures):
                raise self._unreachable(error) from error
            raise
        if answer.status >= 400:
            raise self._refused(text, answer, wanted=method not in ("GET", "DELETE"))
        return json.loads(text) if text else None


def _target(path: str) -> str:
    """The whole of a path that may begin below /api. Raises ApiError: a name in it is empty."""
    if "//" in f"{path.partition('?')[0]}/":
        raise ApiError("a name is empty", 400, remedy="write it; the default exchange is amq.default")
    return path if path.startswith("/") else f"/api/{path}"


def _reason(text: bytes) -> str:
    try:
        said = json.loads(text)
    except ValueError:
        return ""
    reason = said.get("reason") or said.get("detail") if isinstance(said, dict) else None
    return reason if isinstance(reason, str) else ""
