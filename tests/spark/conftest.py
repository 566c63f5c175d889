"""Tests with a Spark session: one for all of them, so they run in one process of their own.

`tests/e2e/spark/test_spark.py` starts that process; to work on them: `python -m pytest tests/spark`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.spark.session import find_java, session
from tests.support.brokers import ROOT, Gateway
from tests.support.limits import LIMIT_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SETTINGS = {
    "spark.python.worker.faulthandler.enabled": "true",
    # The JVM lives for a minute: what its second compiler would spend is not earned back.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # How long the JVM and its Python processes wait for one another to connect (15 s) and to answer (120 s).
    "spark.python.authenticate.socketTimeout": f"{LIMIT_S:.0f}s",
    "spark.network.timeout": f"{2 * LIMIT_S:.0f}s",
}


PASSWORD = "not-in-a-plan"
"""Of URLs that have none."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session. The files that Java leaves behind are in pytest's own folder."""
    if find_java() is None:
        pytest.skip("there is no Java: apt-get install default-jre-headless")
    # The workers use this interpreter, whatever the environment of the machine says.
    for variable in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.pop(variable, None)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    os.environ["PENSTOCK_PASSWORD"] = PASSWORD
    os.environ["SPARK_AUTH_SOCKET_TIMEOUT"] = f"{LIMIT_S:.0f}"
    master = os.environ.get("PENSTOCK_TEST_SPARK_MASTER")
    folder = tmp_path_factory.mktemp("spark")
    options = SETTINGS["spark.driver.extraJavaOptions"]
    java = f'{options} "-Djava.io.tmpdir={folder}"'
    places = {"spark.driver.extraJavaOptions": java, "spark.local.dir": str(folder)}
    running = session(
        "penstock tests", cores=2, memory="600m", master=master, settings={**SETTINGS, **places}
    )
    yield running
    running.stop()


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway of the test's own."""
    with Gateway(tmp_path / "gateway", settings={"log.segment_bytes": "1MiB"}) as running:
        yield running
