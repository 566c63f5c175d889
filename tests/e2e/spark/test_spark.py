"""The tests with a Spark session (tests/spark), in one process of their own.

A session is a JVM that takes seconds to start and half a GiB of memory; the workers of pytest-xdist would
each make one. Tests that start further JVMs run with `make spark-end-to-end`, `spark-docs` and `spark-kills`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from penstock.spark.session import find_java
from tests.support.brokers import ROOT

END_TO_END = "tests/spark/test_end_to_end.py"
"""A job that is killed is a JVM of its own, and so is its session: `make spark-end-to-end`."""
PAGES = "tests/spark/test_pages.py"
"""Each line of docs/reference/spark.md in a process of its own: `make spark-docs`."""
KILLS = "tests/spark/test_kills.py"
"""Six JVMs and more, which are killed: `make spark-kills`."""
TIMEOUT_S = 1800.0
"""Far more than it takes: something hangs."""


@pytest.mark.penstock_only("the source reads penstock's files")
@pytest.mark.timeout(TIMEOUT_S + 60)
def test_spark() -> None:
    if find_java() is None:
        pytest.skip("there is no Java: apt-get install default-jre-headless")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    # Warnings are those of pyspark and py4j.
    process = subprocess.Popen(
        [
            *command,
            "-W",
            "default",
            "--no-header",
            "--tb=short",
            "--ignore",
            END_TO_END,
            "--ignore",
            PAGES,
            "--ignore",
            KILLS,
            "tests/spark",
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=TIMEOUT_S)
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)  # with the JVM, whatever happened
        except ProcessLookupError:
            pass
        process.wait()
    assert process.returncode == 0, output[-20000:]
    assert " passed" in output
