"""Credentials of a webhook's requests, besides their signatures.

    {"type": "none"}                                                        the default
    {"type": "basic", "user": U, "password": P}                             Authorization: Basic
    {"type": "bearer", "token": T}                                          Authorization: Bearer
    {"type": "oauth2-client-credentials", "token_url": URL,                 the same, with a token that
     "client_id": I, "client_secret": S, "client_auth": "basic" | "post",   is fetched (`access_token`)
     "scope": "...", "audience": "..."}
    {"type": "mtls", "certificate": PEM, "key": PEM}                        a certificate of its own, in TLS

Signatures (HMAC, ed25519) are beside all of them: see `signing`. Secrets are taken, sealed and used; none is
ever shown again.

Source: RFC 7617 (Basic), RFC 6750 (Bearer), RFC 6749, 4.4 (client credentials).
"""

from __future__ import annotations

import base64
import os
import re
import ssl
from dataclasses import field
from typing import Final, Literal

from penstock.lazy_dataclass import dataclass
from penstock.protocols.http.webhooks.fields import Fields, bad

__all__ = [
    "CLIENT_AUTHS",
    "DEFAULTS",
    "FIELDS",
    "MASK",
    "PEM",
    "PEM_MAX",
    "TEXT_MAX",
    "Auth",
    "AuthType",
    "BadCertificate",
    "auth_of",
    "with_certificate",
]

AuthType = Literal["none", "basic", "bearer", "oauth2-client-credentials", "mtls"]

MASK: Final = "***"
"""The text in the place of a secret."""

FIELDS: Final[dict[AuthType, tuple[str, ...]]] = {
    "none": (),
    "basic": ("user", "password"),
    "bearer": ("token",),
    "oauth2-client-credentials": (
        "token_url", "client_id", "client_secret", "client_auth", "scope", "audience",
    ),
    "mtls": ("certificate", "key"),
}  # fmt: skip
_SECRET: Final = frozenset({"password", "token", "client_secret", "key"})
DEFAULTS: Final = {"client_auth": "basic", "scope": "", "audience": ""}
PEM: Final = frozenset({"certificate", "key"})
CLIENT_AUTHS: Final = ("basic", "post")
TEXT_MAX: Final = 8192
PEM_MAX: Final = 64 << 10
_TOKEN: Final = re.compile(r"[!-~]+")


class BadCertificate(ValueError):
    """A certificate and a key that TLS cannot use."""


@dataclass(frozen=True, slots=True)
class Auth:
    """See the module."""

    type: AuthType = "none"
    values: dict[str, str] = field(default_factory=dict, repr=False)
    """By the names of the fields."""

    @property
    def sets_authorization(self) -> bool:
        """Whether requests get a header Authorization by it."""
        return self.type not in ("none", "mtls")

    def shown(self) -> dict[str, str]:
        """As JSON, without secrets."""
        masked = {name: MASK if name in _SECRET else value for name, value in self.values.items()}
        return {"type": self.type, **masked}

    def stored(self) -> dict[str, str]:
        """As JSON, whole; `auth_of` takes it back."""
        return {"type": self.type, **self.values}

    def headers(self) -> dict[str, str]:
        """The headers that each request carries by it, as far as that is known without asking anybody."""
        if self.type == "basic":
            return {"authorization": basic(self.values["user"], self.values["password"])}
        if self.type == "bearer":
            return {"authorization": f"Bearer {self.values['token']}"}
        return {}


def basic(user: str, password: str) -> str:
    """The value of Authorization. Source: RFC 7617, in UTF-8."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def auth_of(fields: Fields) -> Auth:
    """Read it.

    Raises:
        HttpError: 400 `bad_field`, naming it.

    """
    kind: AuthType = fields.choice("type", "none", tuple(FIELDS))
    values: dict[str, str] = {}
    for name in FIELDS[kind]:
        values[name] = value = fields.text(name, DEFAULTS.get(name))
        most = PEM_MAX if name in PEM else TEXT_MAX
        if (not value and name not in DEFAULTS) or len(value) > most:
            raise bad(f"auth.{name}", f"1 to {most} characters")
        if name not in PEM and not value.isprintable():
            raise bad(f"auth.{name}", "it has a control character")
        if name in _SECRET and value == MASK:
            raise bad(f"auth.{name}", f"{MASK} is what is shown in its place: send the secret itself")
    fields.end()
    if kind == "basic" and ":" in values["user"]:
        raise bad("auth.user", "a user name of HTTP Basic has no colon")
    if kind == "bearer" and not _TOKEN.fullmatch(values["token"]):
        raise bad("auth.token", "printable ASCII without spaces")
    if values.get("client_auth", "basic") not in CLIENT_AUTHS:
        raise bad("auth.client_auth", "basic (the header Authorization) or post (in the body)")
    return Auth(kind, values)


def with_certificate(context: ssl.SSLContext, auth: Auth) -> ssl.SSLContext:
    """The context, which shows the certificate to servers that ask.

    OpenSSL reads files only: the key is in one that lies in memory and has no name.

    Raises:
        BadCertificate: they are no PEM, are locked by a passphrase, or do not belong to one another.

    """
    file = os.memfd_create("webhook-key", os.MFD_CLOEXEC)
    try:
        os.write(file, f"{auth.values['key']}\n{auth.values['certificate']}\n".encode())
        # A passphrase, even a wrong one, keeps OpenSSL from asking for it at a terminal.
        context.load_cert_chain(f"/proc/self/fd/{file}", password="")
    except (ssl.SSLError, ValueError) as error:
        why = getattr(error, "reason", None) or error
        raise BadCertificate(
            f"auth: certificate and key cannot be used: {why}; send both as PEM, the key without a "
            "passphrase, the certificate of this key first"
        ) from error
    finally:
        os.close(file)
    return context
