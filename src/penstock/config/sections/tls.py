"""The section `tls`: certificates of all listeners."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from penstock.config.kinds import Choice, Text, option
from penstock.config.tls_hosts import TlsHost, TlsHosts
from penstock.lazy_dataclass import dataclass

__all__ = ["Tls"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """TLS of all listeners; a listener is made one by its own address, such as amqp.tls_listen."""

    cert_file: str = field(
        default="",
        metadata=option(
            Text("a path"),
            "PEM file with the certificate of this server, followed by those of the CAs between it and the "
            "root. Files are read again when they change, and on SIGHUP; new connections get the new ones.",
            when="clients use TLS",
        ),
    )
    key_file: str = field(
        default="",
        metadata=option(
            Text("a path"),
            'PEM file with the private key; "" = the key is in cert_file, too.',
            when="the key is in a file of its own",
        ),
    )
    key_password: str = field(
        default="",
        metadata=option(
            Text(),
            "Password of the private key, when it is encrypted.",
            when="the key is encrypted",
            secret=True,
        ),
    )
    ca_file: str = field(
        default="",
        metadata=option(
            Text("a path"),
            "PEM file with the certificates of the CAs that may sign client certificates.",
            when="clients have certificates",
        ),
    )
    crl_file: str = field(
        default="",
        metadata=option(
            Text("a path"),
            "PEM file with the lists of revoked certificates (CRL) of the CAs in ca_file. A client is "
            "refused when its certificate, or that of a CA above it, is on the list of its CA, and when the "
            'file has no list of that CA that is in force. "" = revocation is not looked at.',
            when="your authority revokes certificates",
        ),
    )
    verify_client: Literal["none", "optional", "required"] = field(
        default="none",
        metadata=option(
            Choice(("none", "optional", "required")),
            "Whether clients are asked for a certificate, and refused without one. One that is shown must be "
            "valid and signed by a CA in ca_file.",
            when="clients have certificates",
        ),
    )
    cert_login_from: Literal["distinguished_name", "common_name", "san_dns", "san_email", "san_uri"] = field(
        default="distinguished_name",
        metadata=option(
            Choice(("distinguished_name", "common_name", "san_dns", "san_email", "san_uri")),
            "Which part of a client certificate is the user name for SASL EXTERNAL and mqtt.cert_login; as "
            'RabbitMQ\'s ssl_cert_login_from. A distinguished name is written as "O=plant,CN=pump".',
            when="your certificates name the user elsewhere",
        ),
    )
    min_version: Literal["1.2", "1.3"] = field(
        default="1.2",
        metadata=option(
            Choice(("1.2", "1.3")), "The oldest version of TLS spoken.", when="all clients know TLS 1.3"
        ),
    )
    ciphers: str = field(
        default="",
        metadata=option(
            Text("an OpenSSL cipher list"),
            'Ciphers of TLS 1.2; "" = OpenSSL\'s default.',
            when="rules ask for a list of ciphers",
        ),
    )
    hosts: tuple[TlsHost, ...] = field(
        default=(),
        metadata=option(
            TlsHosts(),
            'Further certificates, for clients that ask for this name (SNI); "*.example.org" is any one '
            "label. Other clients get cert_file.",
            when="clients reach the gateway by several names with certificates of their own",
        ),
    )
