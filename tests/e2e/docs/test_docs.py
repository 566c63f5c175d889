"""Runs the programs that README.md and docs/ show, as they stand there, against a real gateway.

The pages use the standard ports. The test starts a gateway of its own, so it replaces 5672, 1883, 15672 and
15680 by the ports of that gateway. mosquitto_pub, mosquitto_sub and the command `penstock` get theirs by
default. The blocks of a page run in order and in one folder, like a reader's terminal.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, Block, blocks
from tests.support.brokers import Gateway

pytestmark = pytest.mark.penstock_only("the pages are about penstock")

RUN_TIMEOUT_S = 120


def programs(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language in ("python", "bash")]


@pytest.mark.parametrize("page", [page for page in PAGES if programs(page)], ids=str)
def test_the_programs_of_a_page_do_what_it_says(page: Path, tmp_path: Path) -> None:
    listeners = {"http.listen": "127.0.0.1:0", "management.listen": "127.0.0.1:0"}
    with Gateway(tmp_path / "broker", settings=listeners) as gateway:
        _run(page, gateway, tmp_path)


def _run(page: Path, gateway: Gateway, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("mosquitto_pub", "mosquitto_sub"):
        program = shutil.which(tool)
        if program is None:
            pytest.skip(f"{tool} is not installed (mosquitto-clients)")
        (tools / tool).write_text(f'#!/bin/sh\nexec {program} -p {gateway.mqtt_port} "$@"\n')
        (tools / tool).chmod(0o755)
    folder = tmp_path / "work"
    folder.mkdir()
    management = gateway.ports["management"]
    environment = {
        **os.environ,
        "PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PENSTOCK_URL": f"http://guest:guest@127.0.0.1:{management}",
    }
    # The longest first: 5672 is a part of 15672.
    ports = {
        "15672": str(management),
        "15680": str(gateway.ports["http"]),
        "5672": str(gateway.amqp_port),
        "1883": str(gateway.mqtt_port),
    }
    for block in programs(page):
        code = block.code
        for standard, own in ports.items():
            code = code.replace(standard, own)
        shell = [sys.executable, "-c"] if block.language == "python" else ["bash", "-euo", "pipefail", "-c"]
        ran = subprocess.run(
            [*shell, code],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
        )
        place = f"{page}:{block.line}"
        assert ran.returncode == 0, f"{place} failed:\n{ran.stderr}"
        if block.output is not None:
            assert ran.stdout == block.output, place
