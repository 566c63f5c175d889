"""A short run of `python -m tests.crash.churn`, which is the long one: `make churn`."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.timeout(600), pytest.mark.penstock_only("the SDK speaks the native protocol")]

ROOT = Path(__file__).parents[2]


async def test_clients_that_come_and_go_leave_nothing(tmp_path: Path) -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.crash.churn", "--cycles", "40", "--data", str(tmp_path)),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    told, _ = await child.communicate()
    assert child.returncode == 0, told.decode()
