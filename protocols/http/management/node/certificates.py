"""GET /api/health/checks/certificate-expiration/N/UNIT: whether a certificate ends within so long.

The server's own certificates are looked at, as their files have them now; units are days, weeks, months
(30 days) and years.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.protocols.http.server.messages import HttpError, Request, Response, json_response

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.protocols.http.management.context import Management

__all__ = ["add"]

_DAYS: Final = {"days": 1, "weeks": 7, "months": 30, "years": 365}


def add(api: Management) -> None:
    """Serve the path."""

    async def check(request: Request) -> Response:
        unit, text = request.names["unit"], request.names["within"]
        if unit not in _DAYS or not (text.isascii() and text.isdigit() and len(text) < 6):
            raise HttpError(400, "bad_request", f"N/UNIT: a number, and one of {', '.join(_DAYS)}")
        ends = datetime.now(UTC) + timedelta(days=int(text) * _DAYS[unit])
        expired = [one for path in api.certificates for one in _ending(path, ends)]
        if not expired:
            return json_response({"status": "ok"})
        body = {"status": "failed", "reason": "Certificates expiring", "expired": expired}
        return json_response(body, 503)

    api.app.routes.add("GET", "/api/health/checks/certificate-expiration/{within}/{unit}", check)


def _ending(path: str, ends: datetime) -> Sequence[dict[str, Any]]:
    """The certificates in a file that end before then."""
    # Here, since a start has no use for it.
    from cryptography import x509

    # Here: it takes longer to load than most of the gateway, and a start has no use for it.

    return [
        {
            "path": path,
            "subject": certificate.subject.rfc4514_string(),
            "serial": f"{certificate.serial_number:x}",
            "not_after": certificate.not_valid_after_utc.isoformat(),
        }
        for certificate in x509.load_pem_x509_certificates(Path(path).read_bytes())
        if certificate.not_valid_after_utc < ends
    ]
