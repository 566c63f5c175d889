"""A gateway of the demonstration's own: `penstock serve` on free ports and a temporary folder."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

STOP_TIMEOUT_S = 20.0


@contextmanager
def gateway() -> Iterator[tuple[str, str]]:
    """Run a gateway; yields its AMQP and MQTT addresses as HOST:PORT."""
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder:
        command = [sys.executable, "-m", "penstock", "serve", "--data", folder, "--log-level", "warning"]
        command += ["--set", "amqp.listen=127.0.0.1:0", "--set", "mqtt.listen=127.0.0.1:0"]
        for name in ("http", "management", "native", "metrics"):
            command += ["--set", f"{name}.listen="]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            ready = re.match(r"ready amqp=(\S+) mqtt=(\S+) ", line)
            if ready is None:
                raise SystemExit(f"the gateway did not start, see above (it wrote {line!r})")
            yield ready[1], ready[2]
        finally:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
