"""Findings about a disk that fills, and about certificates that end."""

from __future__ import annotations

from pathlib import Path

from cryptography import x509

from penstock.protocols.http.management.node.findings import certificate_findings, disk_findings
from tests.support.certificates import Authority

GIB = 1 << 30
HOUR_S = 3600
DAY_S = 24 * HOUR_S


def test_a_disk_that_is_full_within_a_day_is_a_warning() -> None:
    (found,) = disk_findings(50 * GIB, 10 * GIB, 4 * GIB / HOUR_S)
    assert found.level == "warning" and "about 10.0 hours" in found.text
    assert "50 GiB are free and 4 GiB fewer each hour" in found.text
    assert list(disk_findings(50 * GIB, 10 * GIB, GIB / HOUR_S)) == []
    assert list(disk_findings(50 * GIB, 10 * GIB, -4 * GIB / HOUR_S)) == []


def test_little_space_is_a_warning_until_it_is_an_alarm() -> None:
    (found,) = disk_findings(15 * GIB, 10 * GIB, 0)
    assert "publishers wait below 10 GiB" in found.text
    assert list(disk_findings(9 * GIB, 10 * GIB, 4 * GIB)) == []


def test_a_certificate_is_found_in_its_last_30_days_and_after_them(tmp_path: Path) -> None:
    pem = Authority(tmp_path).server("server", "one.example.org").cert.read_bytes()
    ends = x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()
    assert list(certificate_findings("f", pem, ends - 31 * DAY_S)) == []
    (soon,) = certificate_findings("f", pem, ends - 29 * DAY_S)
    assert soon.level == "warning" and soon.text.startswith("CN=one.example.org ends on ")
    (over,) = certificate_findings("f", pem, ends + 1)
    assert over.level == "error" and "are refused" in over.text and over.remedy.endswith(" into f")
    assert list(certificate_findings("f", b"no certificate", ends)) == []
