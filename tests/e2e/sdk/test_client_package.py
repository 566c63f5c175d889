"""penstock-client as it is laid out, without a compiled module: it imports nothing else, and works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.testing import Gateway
from tests.install.serving import PROGRAM
from tests.install.wheel import CLIENT_PARTS
from tests.support.limits import LIMIT_S

pytestmark = pytest.mark.penstock_only("this is about penstock's own client")

ROOT = Path(__file__).parents[3]
MORE = """
with penstock.sync.connect(sys.argv[1]) as client:
    with client.producer("prices") as producer:
        for sent in [producer.send_nowait(b"%d" % i, key=f"k{i % 7}") for i in range(1000)]:
            sent.result()
    with client.subscribe("prices", "all", start="earliest") as consumer:
        found = []
        while len(found) < 1000:
            batch = consumer.receive_many(500, timeout_s=60)
            found += [message.value for message in batch]
            consumer.ack(batch)
    assert found == [b"%d" % i for i in range(1000)]
    with client.table("prices") as prices:
        assert prices["k3"] == b"997" and len(prices) == 7
"""


def test_the_client_in_python_alone_sends_and_receives(tmp_path: Path) -> None:
    subprocess.run([ROOT / "deploy/client/build", "."], check=True, cwd=tmp_path)  # as make does: relative
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}

    def run(program: str, argument: str) -> None:
        words = [sys.executable, "-W", "error", "-c", program, argument]
        done = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 0, done.stderr

    run(CLIENT_PARTS, "pure")
    with Gateway() as gateway:
        run(PROGRAM + MORE, gateway.url)
