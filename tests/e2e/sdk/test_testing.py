"""penstock's test support for its users: a gateway in the test's process, and pytest fixtures."""

from __future__ import annotations

import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

import penstock
from penstock.errors import ConfigError, StartError
from penstock.sdk.errors import ClientError, ConnectionLost, LoginRefused
from penstock.testing import Gateway
from tests.support.certificates import Authority

USES_THE_FIXTURES = """
import asyncio
import penstock

async def say(url, body):
    async with penstock.connect(url) as client, client.producer("t") as producer:
        await producer.send(body)
        return (await client.admin.describe("t"))["messages"]

def test_one(penstock_url):
    assert asyncio.run(say(penstock_url, "1")) == 1

def test_each_test_has_its_own(penstock_gateway):
    assert asyncio.run(say(penstock_gateway.url, "2")) == 1
"""


def test_pytest_finds_the_fixtures_by_itself(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(USES_THE_FIXTURES)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 passed" in ran.stdout
    assert "Logging error" not in ran.stdout + ran.stderr


def test_it_says_why_it_does_not_start(tmp_path: Path) -> None:
    with Gateway(tmp_path / "data") as gateway:
        with pytest.raises(StartError, match="locked"):
            Gateway(tmp_path / "data").start()
        with pytest.raises(StartError, match=r"native\.listen"):
            Gateway().start(port=gateway.port)
    with pytest.raises(ConfigError, match="no such"):
        Gateway(settings={"native.nothing": "1"}).start()


def test_it_has_what_the_server_has(tmp_path: Path) -> None:
    with Gateway(tmp_path, settings={"management.listen": "127.0.0.1:0"}) as gateway:
        with urllib.request.urlopen(f"{gateway.http_url}/openapi.json", timeout=60) as answer:
            assert answer.status == 200
        assert gateway.listener("management") not in (0, gateway.port)
        with pytest.raises(KeyError):
            gateway.listener("natives")


# TLS of the native listener


@pytest.mark.parametrize(
    ("host", "expired", "says"),
    [
        ("127.0.0.2", False, "not valid for '127.0.0.2'.*; connect by a name that its certificate has, or"),
        ("127.0.0.1", True, "certificate has expired.*; renew the gateway's certificate"),
    ],
)
async def test_a_certificate_fault_is_reported_with_the_remedy(
    tmp_path: Path, host: str, expired: bool, says: str
) -> None:
    authority = Authority(tmp_path)
    pair = authority.server(expired=expired)
    settings = {
        "native.tls_listen": f"{host}:0",
        "tls.cert_file": str(pair.cert),
        "tls.key_file": str(pair.key),
    }
    trusting = ssl.create_default_context(cafile=authority.file)
    with Gateway(settings=settings) as gateway:
        with pytest.raises(ConnectionLost, match=says):
            await penstock.connect(f"penstocks://{host}:{gateway.listener('natives')}", tls=trusting)


async def test_the_sdk_speaks_tls_and_logs_in_by_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.server()
    settings = {
        "native.tls_listen": "127.0.0.1:0",
        "tls.cert_file": str(pair.cert),
        "tls.key_file": str(pair.key),
        "tls.ca_file": str(authority.file),
        "tls.verify_client": "optional",
        "tls.cert_login_from": "common_name",
    }
    with Gateway(settings=settings) as gateway:
        url = f"penstocks://localhost:{gateway.listener('natives')}"
        trusting = ssl.create_default_context(cafile=authority.file)
        async with penstock.connect(url, tls=trusting) as client, client.producer("t") as producer:
            sent = await producer.send_many([bytes(100_000)] * 50)
            async with client.reader("t", start="earliest") as reader:
                found = []
                while len(found) < 50:
                    found += await reader.receive_many(50)
            assert [message.id for message in found] == sent
        with pytest.raises(ConnectionLost, match="CERTIFICATE_VERIFY_FAILED"):
            await penstock.connect(url)
        with pytest.raises(ClientError, match="client certificate"):
            await penstock.connect(url, tls=trusting, certificate_login=True)
        mine = ssl.create_default_context(cafile=authority.file)
        guest, stranger = authority.client("guest"), authority.client("stranger")
        mine.load_cert_chain(guest.cert, guest.key)
        async with penstock.connect(url, tls=mine, certificate_login=True) as client:
            assert await client.admin.topics() == ["t"]
        mine.load_cert_chain(stranger.cert, stranger.key)
        with pytest.raises(LoginRefused):
            await penstock.connect(url, tls=mine, certificate_login=True)
