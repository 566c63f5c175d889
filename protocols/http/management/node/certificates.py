"""The certificates that listeners show: which they are, when one ends, and reading their files again.

    GET  /api/certificates            for `monitoring`
         {"fault": "", "listeners": [{"protocol": P, "address": A}],
          "chains": [{"name": HOST, "file": F, "fault": "", "certificates": [...]}]}
    POST /api/certificates/reload     for `administrator`: 204; 400, the files are no good
    GET  /api/health/checks/certificate-expiration/N/UNIT

A chain is as listeners show it, leaf first, which may be another one than its file has now: `fault` of the
whole says why. The one without a name is for clients that ask for none of the names. The check looks at the
files as they are now; its units are days, weeks, months (30 days) and years.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import ConfigError
from penstock.protocols.http.management.context import LISTENER_PROTOCOLS
from penstock.protocols.http.server.messages import HttpError, Request, Response, dumps, json_response

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cryptography.x509 import Certificate

    from penstock.protocols.http.management.context import Management
    from penstock.protocols.tls.contexts import ServedChain

__all__ = ["add"]

_DAYS: Final = {"days": 1, "weeks": 7, "months": 30, "years": 365}


def add(api: Management) -> None:
    """Serve these paths."""

    async def show(request: Request) -> Response:
        api.require(request, "monitoring")
        tls = api.tls
        return json_response(
            {
                "fault": "" if tls is None else tls.fault,
                "listeners": [
                    {"protocol": LISTENER_PROTOCOLS[name], "address": listener.address}
                    for name, listener in api.registry.accepting()
                    if listener.has_tls
                ],
                "chains": [] if tls is None else [_shown(one) for one in tls.served],
            }
        )

    async def reload(request: Request) -> Response:
        api.require(request)
        if api.tls is None:
            raise HttpError(400, "bad_request", "no listener has TLS: set tls.cert_file")
        try:
            api.tls.reload()
        except ConfigError as error:
            raise HttpError(400, "bad_request", f"{error}; the old certificates hold") from error
        if api.forwarder is not None and not request.part:
            await api.forwarder.everywhere(request, api.place, dumps({}))
        return Response(204)

    async def check(request: Request) -> Response:
        unit, text = request.names["unit"], request.names["within"]
        if unit not in _DAYS or not (text.isascii() and text.isdigit() and len(text) < 6):
            raise HttpError(400, "bad_request", f"N/UNIT: a number, and one of {', '.join(_DAYS)}")
        ends = datetime.now(UTC) + timedelta(days=int(text) * _DAYS[unit])
        files = [] if api.tls is None else api.tls.certificate_files
        expired = [one for path in files for one in _ending(path, ends)]
        if not expired:
            return json_response({"status": "ok"})
        body = {"status": "failed", "reason": "Certificates expiring", "expired": expired}
        return json_response(body, 503)

    api.app.routes.add("GET", "/api/certificates", show)
    api.app.routes.add("POST", "/api/certificates/reload", reload)
    api.app.routes.add("GET", "/api/health/checks/certificate-expiration/{within}/{unit}", check)


def _shown(chain: ServedChain) -> dict[str, Any]:
    """A chain; `fault`: why its certificates cannot be described, though OpenSSL takes them."""
    try:
        found, fault = [_described(one) for one in read_chain(chain.pem)], ""
    except ValueError as error:
        found, fault = [], str(error)
    return {"name": chain.name, "file": chain.file, "fault": fault, "certificates": found}


def read_chain(pem: bytes) -> Sequence[Certificate]:
    # Here: it takes longer to load than most of the gateway, and a start has no use for it.
    from cryptography import x509

    return x509.load_pem_x509_certificates(pem)


def _described(certificate: Certificate) -> dict[str, Any]:
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = x509.SubjectAlternativeName([])
    return {
        "subject": certificate.subject.rfc4514_string(),
        "issuer": certificate.issuer.rfc4514_string(),
        "names": [str(one.value) for one in names],
        "serial": f"{certificate.serial_number:x}",
        "not_before": int(certificate.not_valid_before_utc.timestamp() * 1000),
        "not_after": int(certificate.not_valid_after_utc.timestamp() * 1000),
        "sha256": certificate.fingerprint(SHA256()).hex(),
    }


def _ending(path: str, ends: datetime) -> Sequence[dict[str, Any]]:
    """The certificates in a file that end before then."""
    return [
        {
            "path": path,
            "subject": certificate.subject.rfc4514_string(),
            "serial": f"{certificate.serial_number:x}",
            "not_after": certificate.not_valid_after_utc.isoformat(),
        }
        for certificate in read_chain(Path(path).read_bytes())
        if certificate.not_valid_after_utc < ends
    ]
