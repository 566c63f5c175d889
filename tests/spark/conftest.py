"""Tests with a Spark session: one for all of them, so they run in one process of their own.

`tests/e2e/test_spark.py` starts that process; to work on them: `python -m pytest tests/spark`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.spark.session import find_java, session
from tests.support.brokers import ROOT, Gateway

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session."""
    if find_java() is None:
        pytest.skip("there is no Java: apt-get install default-jre-headless")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    running = session(
        "penstock tests", cores=2, settings={"spark.python.worker.faulthandler.enabled": "true"}
    )
    yield running
    running.stop()


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway of the test's own."""
    with Gateway(tmp_path / "gateway", settings={"log.segment_bytes": "1MiB"}) as running:
        yield running
