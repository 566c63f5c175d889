"""Certificate authorities and certificates made for a test."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["Authority", "Pair"]


class Pair(NamedTuple):
    """PEM files of a certificate and its key."""

    cert: Path
    key: Path


class Authority:
    """A certificate authority with a folder for what it makes."""

    def __init__(self, folder: Path, name: str = "test CA") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=10))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.file = folder / f"{name.replace(' ', '-')}.pem"
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def server(self, file: str = "server", *names: str, expired: bool = False) -> Pair:
        """A certificate for 127.0.0.1, localhost and `names`, in files called `file`."""
        alternatives: list[x509.GeneralName] = [x509.IPAddress(ip_address("127.0.0.1"))]
        alternatives += [x509.DNSName(name) for name in ("localhost", *names)]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0] if names else "localhost")])
        return self._make(file, subject, alternatives, ExtendedKeyUsageOID.SERVER_AUTH, expired)

    def client(self, user: str, *, expired: bool = False) -> Pair:
        """A certificate with the subject "O=plant,CN=<user>" and the DNS name "<user>.example.org"."""
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.COMMON_NAME, user),
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "plant"),
            ]
        )
        alternatives = [x509.DNSName(f"{user}.example.org")]
        return self._make(user, subject, alternatives, ExtendedKeyUsageOID.CLIENT_AUTH, expired)

    def revoke(self, *pairs: Pair, expired: bool = False) -> Path:
        """The file with the list of those that are revoked: these and no others."""
        now = datetime.now(UTC)
        listed = x509.CertificateRevocationListBuilder().issuer_name(self._name)
        listed = listed.last_update(now - timedelta(days=5))
        listed = listed.next_update(now + timedelta(days=-1 if expired else 5))
        for pair in pairs:
            number = x509.load_pem_x509_certificate(pair.cert.read_bytes()).serial_number
            entry = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(now)
            listed = listed.add_revoked_certificate(entry.build())
        file = self.folder / "revoked.pem"
        made = self.folder / "revoked.new"
        made.write_bytes(listed.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        made.replace(file)
        return file

    def _make(
        self,
        file: str,
        subject: x509.Name,
        alternatives: list[x509.GeneralName] | list[x509.DNSName],
        usage: x509.ObjectIdentifier,
        expired: bool,
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=9))
            .not_valid_after(now + timedelta(days=-1 if expired else 9))
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )
        pair = Pair(self.folder / f"{file}.pem", self.folder / f"{file}.key")
        pair.cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return pair
