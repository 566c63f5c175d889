"""TLS of all listeners: contexts made from the configured files, and made anew when the files change.

A listener puts a layer on each connection it accepts (`Tls.layer`, `net.layers.tls_transport`), with the
context in force then. So a new certificate holds from the next connection on; open ones keep theirs.
`reload` makes all contexts before it swaps any: files that do not fit together (a certificate whose key is
not there yet) leave the old ones in force.

`login_name` says whom a client certificate stands for. Knows no protocol and no socket; the files are read in
the loop's thread, a few KB at a time, at start and when they changed.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Literal, NamedTuple, Protocol

from penstock.errors import ConfigError
from penstock.lazy_dataclass import dataclass

__all__ = ["Layer", "LoginFrom", "ServedChain", "Tls", "TlsOptions", "login_name"]


@dataclass(frozen=True, slots=True)
class Layer:
    """The part of TLS that a listener needs."""

    context: Callable[[], ssl.SSLContext]
    """Of a new connection."""
    user_of: Callable[[Mapping[str, Any] | None], str | None]
    """The user whom a verified client certificate names; None: nobody."""


LoginFrom = Literal["distinguished_name", "common_name", "san_dns", "san_email", "san_uri"]

_VERIFY: Final = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_VERSION: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}

# Attribute types as RabbitMQ writes them; others by the name that OpenSSL has for them.
_SHORT: Final = {
    "surname": "SN",
    "givenName": "GIVENNAME",
    "initials": "INITIALS",
    "generationQualifier": "GENERATIONQUALIFIER",
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "title": "TITLE",
    "countryName": "C",
    "serialNumber": "SERIALNUMBER",
    "pseudonym": "PSEUDONYM",
    "domainComponent": "DC",
    "emailAddress": "EMAILADDRESS",
    "streetAddress": "STREET",
    "userId": "UID",
}
_SAN: Final = {"san_dns": "DNS", "san_email": "email", "san_uri": "URI"}


class Host(Protocol):
    """A further certificate, for clients that ask for this name (SNI)."""

    @property
    def name(self) -> str: ...
    @property
    def cert_file(self) -> str: ...
    @property
    def key_file(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """The section `tls` of the configuration; files are PEM."""

    cert_file: str = ""
    """The chain, leaf first; "" = TLS is not configured."""
    key_file: str = ""
    """"" = the key is in `cert_file`."""
    key_password: str = ""
    ca_file: str = ""
    """The authorities that may sign client certificates."""
    crl_file: str = ""
    """Which of these certificates are revoked; "" = that is not looked at."""
    verify_client: Literal["none", "optional", "required"] = "none"
    min_version: Literal["1.2", "1.3"] = "1.2"
    ciphers: str = ""
    """OpenSSL's cipher list for TLS 1.2; "" = OpenSSL's own."""
    cert_login_from: LoginFrom = "distinguished_name"
    hosts: Sequence[Host] = field(default=())


class ServedChain(NamedTuple):
    """A chain of certificates that listeners show."""

    name: str
    """Clients that ask for this name get it; "": all others."""
    file: str
    pem: bytes
    """The contents of the file when it was read, leaf first."""


class Tls:
    """The contexts in force."""

    def __init__(self, options: TlsOptions) -> None:
        """Read all files.

        Raises:
            ConfigError: a file is missing or not what it should be; names the file and its key.

        """
        self.options: Final = options
        self.fault = ""
        """Why the files that are there now are not in force; "": they are."""
        self._contexts: dict[tuple[str, ...], ssl.SSLContext] = {}
        self._chains: dict[str, bytes] = {}
        """The contents of each certificate file as the contexts have them."""
        self._seen = self._stamp()
        self._make(())

    @property
    def certificate_files(self) -> list[str]:
        """Files with the certificates that listeners show, each once."""
        return list(dict.fromkeys([self.options.cert_file, *(one.cert_file for one in self.options.hosts)]))

    @property
    def served(self) -> list[ServedChain]:
        """The chains that listeners show: to everybody first, then to clients that ask for a name."""
        named = [("", self.options.cert_file), *((one.name, one.cert_file) for one in self.options.hosts)]
        return [ServedChain(name, file, self._chains[file]) for name, file in named]

    def context(self, *alpn: str) -> ssl.SSLContext:
        """The context for a new connection whose listener speaks these application protocols.

        A client that offers none of them is served all the same.
        """
        context = self._contexts.get(alpn)
        return context if context is not None else self._make(alpn)

    def layer(self, *alpn: str) -> Layer:
        """For the layer that a listener puts between its sockets and its connections.

        Raises:
            ConfigError: as in the constructor.

        """
        self.context(*alpn)
        return Layer(lambda: self.context(*alpn), self._user_of)

    def _user_of(self, certificate: Mapping[str, Any] | None) -> str | None:
        return login_name(certificate, self.options.cert_login_from)

    def reload(self) -> None:
        """Read all files anew; new connections get what they hold.

        Raises:
            ConfigError: as in the constructor; nothing was changed.

        """
        self._seen = self._stamp()
        old = self._contexts, self._chains
        self._contexts, self._chains = {}, {}
        try:
            for alpn in old[0]:
                self._make(alpn)
        except BaseException as error:
            self._contexts, self._chains = old
            self.fault = str(error)
            raise
        self.fault = ""

    def changed(self) -> bool:
        """Whether a file is another one, or has other content, than at the last (try of) reading."""
        return self._stamp() != self._seen

    def _files(self) -> list[str]:
        options = self.options
        named = [options.cert_file, options.key_file, options.ca_file, options.crl_file]
        for host in options.hosts:
            named += (host.cert_file, host.key_file)
        return [name for name in named if name]

    def _stamp(self) -> list[tuple[int, ...] | None]:
        stamps: list[tuple[int, ...] | None] = []
        for name in self._files():
            try:
                about = os.stat(name)
            except OSError:
                stamps.append(None)
            else:
                stamps.append((about.st_dev, about.st_ino, about.st_mtime_ns, about.st_size))
        return stamps

    def _make(self, alpn: tuple[str, ...]) -> ssl.SSLContext:
        options = self.options
        main = self._one(options.cert_file, options.key_file, "tls.cert_file", "tls.key_file", alpn)
        if options.hosts:
            named = {
                host.name.lower(): self._one(host.cert_file, host.key_file, "tls.hosts", "tls.hosts", alpn)
                for host in options.hosts
            }
            main.sni_callback = _chooser(named)
        self._contexts[alpn] = main
        return main

    def _one(
        self, cert_file: str, key_file: str, cert_key: str, key_key: str, alpn: tuple[str, ...]
    ) -> ssl.SSLContext:
        options = self.options
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = _VERSION[options.min_version]
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
        # OpenSSL sends 2. Each is 7 % of a handshake's CPU; a client that resumes a session gets a new one.
        context.num_tickets = 1
        if options.ciphers:
            try:
                context.set_ciphers(options.ciphers)
            except ssl.SSLError:
                raise ConfigError(
                    f"OpenSSL knows no cipher in {options.ciphers!r}",
                    key="tls.ciphers",
                    remedy="see: openssl ciphers -v",
                ) from None
        chain = _check_readable(cert_file, cert_key, b"-----BEGIN CERTIFICATE-----", "certificate")
        _check_readable(key_file or cert_file, key_key, b"PRIVATE KEY-----", "private key")
        try:
            context.load_cert_chain(cert_file, key_file or None, lambda: options.key_password)
        except ssl.SSLError as error:
            raise _unusable(error, cert_file, key_file or cert_file, key_key) from None
        self._chains[cert_file] = chain
        context.verify_mode = _VERIFY[options.verify_client]
        if options.ca_file:
            _check_readable(options.ca_file, "tls.ca_file", b"-----BEGIN CERTIFICATE-----", "certificate")
            try:
                context.load_verify_locations(options.ca_file)
            except ssl.SSLError as error:
                raise ConfigError(
                    f"{options.ca_file} cannot be used: {error.reason}", key="tls.ca_file", remedy=_REMEDY
                ) from None
        elif context.verify_mode is not ssl.CERT_NONE:
            raise ConfigError(
                f'verify_client is "{options.verify_client}" but no CA is trusted',
                key="tls.ca_file",
                remedy="give the file with the certificates of the client CAs",
            )
        if options.crl_file:
            self._check_revocation(context)
        if alpn:
            context.set_alpn_protocols(list(alpn))
        return context

    def _check_revocation(self, context: ssl.SSLContext) -> None:
        """Refuse what is revoked, and whatever has no list in force that could say so."""
        name = self.options.crl_file
        if context.verify_mode is ssl.CERT_NONE:
            raise ConfigError(
                f'{name} is given, but verify_client is "none": no client shows a certificate',
                key="tls.crl_file",
                remedy='set tls.verify_client to "optional" or "required"',
            )
        _check_readable(name, "tls.crl_file", b"-----BEGIN X509 CRL-----", "list of revoked certificates")
        try:
            context.load_verify_locations(name)
        except ssl.SSLError as error:
            raise ConfigError(
                f"{name} cannot be used: {error.reason}", key="tls.crl_file", remedy=_REMEDY
            ) from None
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_CHAIN


_REMEDY: Final = "give a readable PEM file"


def _check_readable(name: str, key: str, mark: bytes, what: str) -> bytes:
    """The contents of a file, in which there is `mark`. Raises ConfigError."""
    try:
        with open(name, "rb") as file:
            content = file.read(1 << 20)
    except OSError as error:
        raise ConfigError(f"cannot read {name}: {error.strerror}", key=key, remedy=_REMEDY) from None
    if mark not in content:
        raise ConfigError(f"{name} holds no {what} in PEM form", key=key, remedy=_REMEDY)
    return content


def _unusable(error: ssl.SSLError, cert_file: str, key_file: str, key: str) -> ConfigError:
    if error.reason == "KEY_VALUES_MISMATCH":
        message, remedy = (
            f"{key_file} is not the key of the certificate in {cert_file}",
            "give the pair that was made together",
        )
    elif error.reason and "DECRYPT" in error.reason.upper():
        message, remedy = f"{key_file} cannot be decrypted", "correct tls.key_password"
    else:
        message, remedy = f"{cert_file} and {key_file} cannot be used: {error.reason or error}", _REMEDY
    return ConfigError(message, key=key, remedy=remedy)


def _chooser(
    named: Mapping[str, ssl.SSLContext],
) -> Callable[[ssl.SSLObject, str | None, ssl.SSLContext], None]:
    def choose(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        if name is None:
            return
        name = name.lower()
        found = named.get(name) or named.get("*." + name.partition(".")[2])
        if found is not None:
            connection.context = found

    return choose


# The name in a certificate


def login_name(certificate: Mapping[str, Any] | None, login_from: LoginFrom) -> str | None:
    """The user that a verified client certificate stands for, as RabbitMQ's ssl_cert_login_from reads it.

    Args:
        certificate: As `ssl.SSLObject.getpeercert()` gives it; None or empty = none was shown.
        login_from: The whole subject ("O=plant,CN=pump", last attribute first), its common name (several
            are joined by commas), or the first alternative name of a kind.

    Returns:
        None without a certificate, or where it has nothing of the kind asked for.

    """
    if not certificate:
        return None
    if login_from in _SAN:
        kind = _SAN[login_from]
        return next((value for name, value in certificate.get("subjectAltName", ()) if name == kind), None)
    subject: Sequence[Sequence[tuple[str, str]]] = certificate.get("subject", ())
    if login_from == "common_name":
        names = [value for part in subject for name, value in part if name == "commonName"]
        return ",".join(names) or None
    parts = ("+".join(f"{_SHORT.get(n, n)}={_escaped(v)}" for n, v in part) for part in reversed(subject))
    return ",".join(parts) or None


def _escaped(value: str) -> str:
    """An attribute value as RFC 4514 writes it."""
    text = "".join("\\" + char if char in ',+"\\<>;' else char for char in value)
    if text[:1] in ("#", " "):
        text = "\\" + text
    if text.endswith(" ") and not text.endswith("\\ "):
        text = text[:-1] + "\\ "
    return text
