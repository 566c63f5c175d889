"""Spark's workers are started without the zip of pyspark, which each of them would compile."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.brokers import ROOT

WORKER_PYTHON = ROOT / "spark" / "worker-python"


def run(path: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    known = {name: value for name, value in os.environ.items() if name != "PENSTOCK_SPARK_PYTHON"}
    environment = {**known, "PYTHONPATH": os.pathsep.join(path), **variables}
    program = "import os, sys; print(os.environ['PYTHONPATH'], *sys.argv[1:], sep='|')"
    words = [str(WORKER_PYTHON), "-c", program, "a b", "c"]
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=60)


def test_what_spark_puts_in_front_goes_and_the_rest_stays(tmp_path: Path) -> None:
    home, own = str(tmp_path / "a spark"), str(tmp_path / "own.zip")
    spark = [f"{home}/python/lib/pyspark.zip", f"{home}/python/lib/py4j-1-src.zip", f"{home}/jars/core.jar"]
    done = run([*spark, own, "/x y", "/z"], SPARK_HOME=home, PENSTOCK_SPARK_PYTHON=sys.executable)
    assert done.stdout == f"{own}:/x y:/z|a b|c\n", done.stderr


def test_it_says_what_it_lacks() -> None:
    done = run([])
    assert done.returncode != 0
    assert "PENSTOCK_SPARK_PYTHON: is set by penstock.spark.session" in done.stderr


@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,1024]"])
def test_on_this_machine_the_session_names_it(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.spark import session

    monkeypatch.delenv("PENSTOCK_SPARK_PYTHON", raising=False)
    assert session._worker_python("spark://elsewhere:7077") == sys.executable
    assert "PENSTOCK_SPARK_PYTHON" not in os.environ
    monkeypatch.setenv("PENSTOCK_SPARK_PYTHON", "")  # so that it is taken back
    assert Path(session._worker_python(master)).resolve() == WORKER_PYTHON
    assert os.environ["PENSTOCK_SPARK_PYTHON"] == sys.executable
