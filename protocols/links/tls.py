"""TLS of links, as a client."""

from __future__ import annotations

import ssl

from penstock.protocols.links.errors import LinkError

__all__ = ["client_tls"]


def client_tls(
    *, ca_file: str = "", cert_file: str = "", key_file: str = "", verify: bool = True
) -> ssl.SSLContext:
    """The context for a connection to another broker.

    Args:
        ca_file: Authorities that are trusted, as PEM; "" = the system's.
        cert_file: The link's own certificate; "" = none.
        key_file: Its key; "" = in the same file.
        verify: Whether the broker's certificate and its name are checked.

    Raises:
        LinkError: a file cannot be used.

    """
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
        if cert_file:
            context.load_cert_chain(cert_file, key_file or None)
    except OSError as error:  # ssl.SSLError is one
        raise LinkError(
            f"a file for TLS cannot be used: {error}", remedy="correct the link's TLS files"
        ) from None
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
