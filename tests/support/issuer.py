"""An issuer of tokens by HTTPS: its keys, and a login page with the authorization code flow and PKCE."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import secrets
import ssl
import threading
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from tests.support.certificates import Authority
from tests.support.tokens import jwk, key_set, token

__all__ = ["CLIENT", "Issuer"]

CLIENT = "console"
_FORM = """<!doctype html><html lang="en"><title>Issuer</title><form method="post">
<label>Name <input name="user"></label><button>Log in</button><button name="no" value="1">No</button></form>
"""


class Issuer:
    """Publishes its keys, which may be changed; gives codes for a login, and a token for each code once.

    `tokens`: by the name of a user, the arguments of `token`. RFC 6749 4.1, RFC 7636 4.6.
    """

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.keys = key_set(jwk("one"))
        self.tokens: dict[str, dict[str, Any]] = {}
        self.refused: list[str] = []
        """Why it gave no token."""
        self._codes: dict[str, dict[str, str]] = {}
        issuer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_keys = urlsplit(self.path).path == "/keys"
                self.answer(200, issuer.keys if is_keys else _FORM.encode(), "text/html")

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                form, asked = _first(body), urlsplit(self.path)
                if asked.path == "/token":
                    given = issuer.give(form)
                    shown = json.dumps(given or {"error": "invalid_grant"}).encode()
                    self.answer(400 if given is None else 200, shown, "application/json")
                    return
                self.send_response(303)
                self.send_header("location", issuer.logged_in(_first(asked.query), form))
                self.end_headers()

            def answer(self, status: int, body: bytes, kind: str) -> None:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*self.authority.server())
        self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.base = f"https://127.0.0.1:{self.server.server_address[1]}"
        self.url = f"{self.base}/keys"

    def logged_in(self, query: dict[str, str], form: dict[str, str]) -> str:
        """Where the browser goes from the login page."""
        assert query["response_type"] == "code"
        assert query["client_id"] == CLIENT
        assert query["code_challenge_method"] == "S256"
        back = {"state": query["state"]}
        if "no" in form:
            back["error"] = "access_denied"
        else:
            back["code"] = secrets.token_urlsafe(16)
            self._codes[back["code"]] = {**query, "user": form["user"]}
        return f"{query['redirect_uri']}?{urlencode(back)}"

    def give(self, form: dict[str, str]) -> dict[str, Any] | None:
        """The token for a code; None: it is refused."""
        asked = self._codes.pop(form.get("code", ""), None)
        if asked is None:
            return self._refuse("the code is unknown, or was used")
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != asked["code_challenge"]:
            return self._refuse("the verifier is not that of the challenge")
        if (form["client_id"], form["redirect_uri"]) != (asked["client_id"], asked["redirect_uri"]):
            return self._refuse("another client, or another page")
        given = token(**{"user": asked["user"], **self.tokens[asked["user"]]})
        return {"access_token": given, "token_type": "Bearer", "expires_in": 300}

    def _refuse(self, why: str) -> None:
        self.refused.append(why)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def _first(text: str) -> dict[str, str]:
    """The fields of a form or a query, each once."""
    return {name: values[0] for name, values in parse_qs(text).items()}
