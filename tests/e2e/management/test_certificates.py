"""The certificates that listeners show, in the management API and the command: reading them again."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.cli.command import main
from tests.support.brokers import Gateway
from tests.support.certificates import Authority
from tests.support.management import SETTINGS, Api

pytestmark = pytest.mark.penstock_only("RabbitMQ has no such thing")


class Served:
    """A gateway with TLS, and the files of its certificate."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder / "ca")
        self.pair = self.authority.server("server", "one.example.org")
        other = self.authority.server("other", "two.example.org")
        settings = {
            **SETTINGS,
            "tls.cert_file": str(self.pair.cert),
            "tls.key_file": str(self.pair.key),
            "amqp.tls_listen": "127.0.0.1:0",
        }
        self.other = other
        self.gateway = Gateway(folder / "gateway", settings=settings)

    @property
    def shown(self) -> bytes:
        """The certificate that a client gets now."""
        port = self.gateway.ports["amqps"]
        return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(("127.0.0.1", port)))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    with made.gateway:
        yield made


def test_they_are_described_as_clients_get_them(served: Served) -> None:
    with closing(Api(served.gateway)) as api:
        found = api.get("certificates")
        assert found["fault"] == ""
        assert [one["protocol"] for one in found["listeners"]] == ["amqp/ssl"]
        (chain,) = found["chains"]
        assert (chain["name"], chain["file"], chain["fault"]) == ("", str(served.pair.cert), "")
        leaf = chain["certificates"][0]
        assert leaf["subject"] == "CN=one.example.org" and leaf["issuer"] == "CN=test CA"
        assert leaf["names"] == ["127.0.0.1", "localhost", "one.example.org"]
        assert leaf["not_before"] < leaf["not_after"]


def test_files_that_fit_are_read_and_others_are_not(served: Served) -> None:
    """A mistake leaves the old ones in force, and is told until it is mended."""
    with closing(Api(served.gateway)) as api:
        before = served.shown
        served.pair.cert.write_text("no certificate")
        refused = api.send("POST", "certificates/reload")
        assert refused.status_code == 400
        assert "holds no certificate" in refused.json()["reason"] and "old" in refused.json()["reason"]
        found = api.get("certificates")
        assert "holds no certificate" in found["fault"]
        assert found["chains"][0]["certificates"][0]["subject"] == "CN=one.example.org"
        assert served.shown == before
        served.pair.key.write_bytes(served.other.key.read_bytes())
        served.pair.cert.write_bytes(served.other.cert.read_bytes())
        assert api.status("POST", "certificates/reload") == 204
        found = api.get("certificates")
        assert found["fault"] == ""
        assert found["chains"][0]["certificates"][0]["subject"] == "CN=two.example.org"
        assert served.shown != before
        noted = [one for one in api.get("audit") if one["action"] == "certificates.reload"]
        assert [one["result"] for one in noted].count("done") == 1 and len(noted) == 2


def test_tags_that_see_and_the_one_that_reloads(served: Served) -> None:
    with closing(Api(served.gateway)) as api:
        for tag, sees in (("monitoring", 200), ("policymaker", 401), ("management", 401)):
            assert api.status("PUT", f"users/{tag}", {"password": "p", "tags": tag}) == 201
            with closing(Api(served.gateway, tag, "p")) as other:
                assert other.status("GET", "certificates") == sees
                assert other.status("POST", "certificates/reload") == 401


def test_the_command(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://guest:guest@127.0.0.1:{served.gateway.ports['management']}"
    assert main(["certificates", "list", "--url", url]) == 0
    assert "CN=one.example.org" in capsys.readouterr().out
    assert main(["certificates", "reload", "--url", url]) == 0
    served.pair.cert.write_text("no certificate")
    assert main(["certificates", "reload", "--url", url]) != 0
    assert "holds no certificate" in capsys.readouterr().err


def test_without_tls_there_are_none(api: Api) -> None:
    assert api.get("certificates") == {"fault": "", "listeners": [], "chains": []}
    refused = api.send("POST", "certificates/reload")
    assert refused.status_code == 400 and "tls.cert_file" in refused.json()["reason"]
