"""Logins by an OAuth 2 token: a JSON Web Token (RFC 7519), signed by an issuer that the operator trusts.

A token is a password of SASL PLAIN, of MQTT's CONNECT, or of HTTP Basic; or it comes as HTTP Bearer. The
user name beside it is ignored: the token says who the user is. Its scopes say what it allows (`grants`);
stored permissions do not count. It logs in until it expires, and not a second longer.

A token is refused if it has no known key, another algorithm than its key, another issuer or audience, or
no `exp` that is a whole number. It is also refused if it names a user of the gateway's own, because the
stored data of that name is not the token's. Claims count only after the signature. No check can be
switched off.

Source: RabbitMQ's rabbit_auth_backend_oauth2; RFC 7519, RFC 8725.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import jwt

from penstock.errors import ConfigError
from penstock.lazy_dataclass import dataclass
from penstock.router.authentication.key_set import KeySet, KeySetError
from penstock.router.authorization.grants import Grants
from penstock.router.authorization.identity import Identity
from penstock.router.errors import AuthenticationRefused

__all__ = ["OAuth", "OAuthOptions"]

logger = logging.getLogger("penstock.auth")

_ISSUED_MAX: Final = 16 << 10
_AHEAD_MAX_S: Final = 10 * 365 * 86_400
"""How far in the future times of a token may be. One that never ends is a mistake of its issuer."""
_REMEMBERED_MAX: Final = 10_000
_SCOPES_MAX: Final = 1000
_NAME_BYTES_MAX: Final = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthOptions:
    """Options of the section `oauth`, with the same keys."""

    issuer: str = ""
    resource_server_id: str = ""
    jwks_file: str = ""
    jwks_url: str = ""
    refresh_s: float = 300.0
    scope_prefix: str = ""
    additional_scopes_claims: tuple[str, ...] = ()
    preferred_username_claims: tuple[str, ...] = ("sub", "client_id")
    scope_aliases: tuple[str, ...] = ()


class OAuth:
    """See the module."""

    def __init__(
        self, options: OAuthOptions, read: Callable[[], bytes], *, wall_s: Callable[[], float] = time.time
    ) -> None:
        """`read` reads the keys, see `KeySet`. Raises ConfigError: aliases or the file of keys are none."""
        self._options = options
        self._wall_s = wall_s
        self._prefix = options.scope_prefix or f"{options.resource_server_id}."
        self._aliases = _aliases(options.scope_aliases)
        self._remembered: OrderedDict[bytes, tuple[Identity, float]] = OrderedDict()
        """Results of verified tokens by their hash, and the time from which each may be used."""
        self._keys = KeySet(read, options.jwks_file or options.jwks_url, refresh_s=options.refresh_s)
        self._keys.on_changed = self._remembered.clear
        if options.jwks_file:
            try:
                self._keys.begin()
            except KeySetError as error:
                raise ConfigError(error.message, key="oauth.jwks_file", remedy=error.remedy) from None

    async def authenticate(self, token: bytes) -> Identity:
        """The user of the token, and the rights that it grants.

        Raises:
            AuthenticationRefused: it is not good; `reason` is "token", or "expired" when it only came late.

        """
        if len(token) > _ISSUED_MAX:
            raise _refused(f"it has more than {_ISSUED_MAX} bytes")
        digest = hashlib.sha256(token).digest()
        known = self._remembered.get(digest)
        now = self._wall_s()
        if known is None:
            claims = await self._verified(token)
            identity = self._identity(claims)
            known = self._remembered[digest] = identity, float(claims.get("nbf", 0))
            while len(self._remembered) > _REMEMBERED_MAX:
                self._remembered.popitem(last=False)
        identity, not_before = known
        assert identity.grants is not None
        if identity.grants.ends_at <= now:
            raise AuthenticationRefused(identity.username, "expired")
        if not_before > now:
            raise _refused("its time has not come (nbf)", identity.username)
        return identity

    async def _verified(self, token: bytes) -> dict[str, Any]:
        """The claims, when signature, issuer and audience are right. Raises AuthenticationRefused."""
        options = self._options
        try:
            header = jwt.get_unverified_header(token)
            if "crit" in header:
                raise _refused("its header has critical fields")
            named = header.get("kid")
            keys = await self._keys.find(named)
            fitting = [key for key in keys if header.get("alg") in key.algorithms]
            if len(fitting) != 1:
                raise _refused(
                    f"there are {len(fitting)} keys {str(named)[:100]!r} for {str(header.get('alg'))[:20]!r}"
                )
            claims: dict[str, Any] = jwt.decode(
                token,
                fitting[0].public,
                algorithms=[header["alg"]],
                issuer=options.issuer,
                audience=options.resource_server_id,
                # Times are looked at each time it is used; when it was made matters to nobody.
                options={
                    "require": ["exp", "iss", "aud"],
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
        except jwt.PyJWTError as error:
            raise _refused(str(error)) from None
        for name in ("exp", "nbf"):
            if name in claims and type(claims[name]) is not int:
                raise _refused(f"{name} is no whole number")
            if name in claims and claims[name] < 0:
                raise _refused(f"{name} is no time")
            if claims.get(name, 0) > self._wall_s() + _AHEAD_MAX_S:
                raise _refused(f"{name} is more than ten years away")
        return claims

    def _identity(self, claims: Mapping[str, Any]) -> Identity:
        """Raises AuthenticationRefused."""
        for claim in self._options.preferred_username_claims:
            name = claims.get(claim)
            if isinstance(name, str) and name and len(name.encode()) <= _NAME_BYTES_MAX:
                break
        else:
            raise _refused(f"it has no user name in {', '.join(self._options.preferred_username_claims)}")
        scopes = [
            scope
            for claim in ("scope", *self._options.additional_scopes_claims)
            for scope in _listed(claims.get(claim))
        ]
        expanded = [one for scope in scopes for one in self._aliases.get(scope, (scope,))]
        own = [scope[len(self._prefix) :] for scope in expanded if scope.startswith(self._prefix)]
        grants, tags = Grants.parse(own[:_SCOPES_MAX], float(claims["exp"]))
        return Identity(name, tags, grants=grants)

    def close(self) -> None:
        """End what runs."""
        self._keys.close()


def _refused(why: str, name: str = "") -> AuthenticationRefused:
    logger.debug("a token was refused: %s", why)
    return AuthenticationRefused(name, "token", why)


def _listed(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        return value.split()
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _aliases(pairs: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Raises ConfigError."""
    found = {}
    for pair in pairs:
        alias, equals, scopes = pair.partition("=")
        if not equals or not alias or not scopes.split():
            raise ConfigError(
                f"{pair!r} is no alias",
                key="oauth.scope_aliases",
                remedy='write it as "admin=broker.tag:administrator broker.read:*/*"',
            )
        found[alias] = tuple(scopes.split())
    return found
