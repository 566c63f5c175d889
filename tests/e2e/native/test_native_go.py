"""The native protocol as its document has it: a client in Go, written from that alone (`go/native`)."""

from __future__ import annotations

import subprocess
from pathlib import Path

from penstock.testing import Gateway
from tests.support.certificates import Authority
from tests.support.go_programs import build

CHAPTERS = [
    "logins",
    "producing",
    "named",
    "settling",
    "kinds",
    "reading",
    "delaying",
    "transacting",
    "halves",
    "queues",
]


def test_a_client_in_go_does_what_the_document_says(tmp_path: Path) -> None:
    built = build("./native", tmp_path / "native")
    authority = Authority(tmp_path / "ca")
    server, guest = authority.server(), authority.client("guest")
    settings = {
        "native.tls_listen": "127.0.0.1:0",
        "tls.cert_file": str(server.cert),
        "tls.key_file": str(server.key),
        "tls.ca_file": str(authority.file),
        "tls.verify_client": "optional",
        "tls.cert_login_from": "common_name",
    }
    with Gateway(tmp_path / "data", settings=settings) as gateway:
        addresses = [f"127.0.0.1:{gateway.port}", f"127.0.0.1:{gateway.listener('natives')}"]
        done = subprocess.run(
            [built, *addresses, authority.file, guest.cert, guest.key],
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
    assert done.stdout.split() == CHAPTERS, done.stderr
    assert done.returncode == 0
