"""The section `oauth`: logins by tokens of OAuth 2."""

from __future__ import annotations

from dataclasses import field

from penstock.config.kinds import Names, Seconds, Text, option
from penstock.lazy_dataclass import dataclass

__all__ = ["OAuth"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth:
    """Logins by tokens of OAuth 2 (JWT); see docs/reference/security.md. Off until `issuer` is set."""

    issuer: str = field(
        default="",
        metadata=option(
            Text("a URL"),
            'Who makes the tokens: the claim "iss" must be just this. "" = no token logs in.',
            when="clients log in with tokens",
        ),
    )
    resource_server_id: str = field(
        default="",
        metadata=option(
            Text("a name"),
            'The name of this gateway at the issuer: the claim "aud" must have it.',
            when="clients log in with tokens",
        ),
    )
    jwks_file: str = field(
        default="",
        metadata=option(
            Text("a path"),
            "The issuer's public keys, as a JSON Web Key Set. Either this or jwks_url. It is read again each "
            "refresh_s, and when a token names a key that is not in it.",
            when="the gateway cannot reach the issuer",
        ),
    )
    jwks_url: str = field(
        default="",
        metadata=option(
            Text("a URL"),
            "Where the issuer publishes its public keys, beginning with https://.",
            when="the gateway can reach the issuer",
        ),
    )
    ca_file: str = field(
        default="",
        metadata=option(
            Text("a path"),
            'PEM file with the CAs that jwks_url and token_url are trusted by; "" = those of the system.',
            when="the issuer's certificate is from an authority of your own",
        ),
    )
    refresh_s: float = field(
        default=300.0,
        metadata=option(
            Seconds(1, 86_400),
            "How old the keys may become: a key that the issuer has taken back ends then.",
            when="a key that was taken back must end sooner",
        ),
    )
    scope_prefix: str = field(
        default="",
        metadata=option(
            Text("a prefix"),
            'What scopes begin with that are about this gateway; "" = resource_server_id and a dot.',
            when="your scopes begin otherwise",
        ),
    )
    scope_aliases: tuple[str, ...] = field(
        default=(),
        metadata=option(
            Names(),
            "What a scope of the issuer stands for, as ALIAS=SCOPE SCOPE ... with the prefix, for example "
            '"plant-operator=broker.tag:management broker.read:*/*".',
            when="your issuer cannot make scopes of this form",
        ),
    )
    additional_scopes_claims: tuple[str, ...] = field(
        default=(),
        metadata=option(
            Names(),
            'Claims that have scopes, too, besides "scope".',
            when="your issuer has roles or scopes in another claim",
        ),
    )
    preferred_username_claims: tuple[str, ...] = field(
        default=("sub", "client_id"),
        metadata=option(
            Names(),
            "Claims that may have the user's name; the first one that is there counts.",
            when="your issuer has the user's name in another claim",
        ),
    )
    client_id: str = field(
        default="",
        metadata=option(
            Text("a name"),
            "The name of the console as a public client of the issuer, by which it offers to sign in there "
            '(authorization code with PKCE). "" = it does not.',
            when="people sign in to the console at the issuer",
        ),
    )
    authorization_url: str = field(
        default="",
        metadata=option(
            Text("a URL"),
            "Where the issuer lets users sign in, beginning with https://. Needed by client_id.",
            when="client_id is set",
        ),
    )
    token_url: str = field(
        default="",
        metadata=option(
            Text("a URL"),
            "Where the issuer gives tokens, beginning with https://. Needed by client_id.",
            when="client_id is set",
        ),
    )
    console_url: str = field(
        default="",
        metadata=option(
            Text("a URL"),
            "Where browsers reach the console, without a path: https://console.example.org. The issuer sends "
            'them back there. "" = to where a browser asked to sign in.',
            when="a proxy before the gateway ends TLS or has another name",
        ),
    )
    scopes: tuple[str, ...] = field(
        default=("openid",),
        metadata=option(
            Names(), "The scopes that the console asks for.", when="the issuer gives rights by scopes"
        ),
    )
