"""The tests with a Spark session (tests/spark), in one process of their own.

A session is a JVM that takes seconds to start and half a GiB of memory; the workers of pytest-xdist would
each make one. The test that kills gateway and job runs with `make spark-kills`: Spark gives the process that
plans a stream 10 s to start, which cannot be set and is too short on a loaded machine.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from penstock.spark.session import find_java
from tests.support.brokers import ROOT

KILLS = "tests/spark/test_tables.py::test_the_table_has_what_was_published_over_kills_of_gateway_and_job"
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
        [*command, "-W", "default", "--no-header", "--deselect", KILLS, "tests/spark"],
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
