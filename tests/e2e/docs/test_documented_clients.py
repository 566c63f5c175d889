"""The command lines of other tools that the pages show outside of checked blocks, run as they stand there.

Their places are those of the test: its ports, its certificate authority, and its queues.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, blocks, commands
from tests.support.brokers import Gateway
from tests.support.certificates import Authority
from tests.support.limits import LIMIT_S
from tests.support.management import SETTINGS, Api

pytestmark = pytest.mark.penstock_only("the pages are about penstock")

TOOLS = ("curl", "mosquitto_pub", "mosquitto_sub", "openssl")
ENDLESS = ("curl -N", "mosquitto_sub")
"""They print what comes until they are ended."""
NAMES = {"https://example.org/hook": "https://127.0.0.1:9/hook", "gateway.example.org": "localhost"}
LINES = [
    line
    for page in PAGES
    for line in commands(page, *TOOLS)
    if not any(line in block.code.replace("\\\n", " ") for block in blocks(page))
]


@pytest.fixture(scope="module")
def gateway(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    pair = authority.server()
    settings = {
        **SETTINGS,
        "http.listen": "127.0.0.1:0",
        "amqp.tls_listen": "127.0.0.1:0",
        "mqtt.tls_listen": "127.0.0.1:0",
        "tls.cert_file": str(pair.cert),
        "tls.key_file": str(pair.key),
        "webhooks.allow_networks": "127.0.0.0/8",
        "webhooks.ports": "9",
    }
    with Gateway(tmp_path_factory.mktemp("gateway"), settings=settings) as running:
        api = Api(running)
        rights = {"configure": ".*", "write": ".*", "read": ".*"}
        made = (
            ("queues/%2F/orders", {}),
            ("users/plant", {"tags": "", "password": "secret"}),
            ("permissions/%2F/plant", rights),
        )
        for path, body in made:
            assert api.status("PUT", path, body) == 201
        api.close()
        yield running


def test_the_pages_show_some() -> None:
    assert {line.split()[0] for line in LINES} == {*TOOLS}


@pytest.mark.parametrize("line", LINES)
def test_a_line_of_the_pages_does_it(
    line: str, gateway: Gateway, authority: Authority, tmp_path: Path
) -> None:
    if shutil.which(line.split()[0]) is None:
        pytest.skip(f"{line.split()[0]} is not installed")
    (tmp_path / "ca.pem").write_bytes(authority.file.read_bytes())
    ports = {
        "15672": gateway.ports["management"],
        "15680": gateway.ports["http"],
        "5671": gateway.ports["amqps"],
        "8883": gateway.ports["mqtts"],
    }
    for name, own in NAMES.items():
        line = line.replace(name, own)
    line = re.sub("|".join(ports), lambda port: str(ports[port[0]]), line)
    if line.startswith("mosquitto_sub"):
        line = line.replace("mosquitto_sub", f"mosquitto_sub -p {gateway.mqtt_port}")
    if line.startswith(ENDLESS):
        assert _first_line(line, gateway, tmp_path)
    else:
        # Answers of errors are no success: curl's -f makes it fail with them.
        line = re.sub(r"^curl ", "curl -sSf ", line)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", line],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done
        assert done.stdout or line.startswith("mosquitto_pub")


def _first_line(line: str, gateway: Gateway, folder: Path) -> str:
    """The first line of an endless command, while messages come."""
    listener = subprocess.Popen(["bash", "-c", f"exec {line}"], cwd=folder, stdout=subprocess.PIPE, text=True)
    publish = ["mosquitto_pub", "-p", str(gateway.mqtt_port), "-q", "1", "-t", "jobs/a", "-m", "x"]
    try:
        assert listener.stdout is not None
        if line.startswith("mosquitto_sub"):
            publish += ["--repeat", "600", "--repeat-delay", "0.1"]  # until it has subscribed
        publisher = subprocess.Popen(publish)
        try:
            return listener.stdout.readline()
        finally:
            publisher.kill()
            publisher.wait()
    finally:
        listener.kill()
        listener.communicate()
