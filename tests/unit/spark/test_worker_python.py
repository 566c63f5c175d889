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


def test_path_entries_of_spark_are_removed_and_the_rest_stays(tmp_path: Path) -> None:
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


VARIABLES = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PENSTOCK_SPARK_PYTHON", "PYSPARK_GATEWAY_PORT")


@pytest.fixture
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, "")  # so that it is taken back
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("untold")
def test_sessions_that_others_make_can_have_it__and_a_choice_is_obeyed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from penstock.spark.session import quick_workers

    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    monkeypatch.setenv("PYSPARK_PYTHON", "/their/own")
    quick_workers()
    assert os.environ["PYSPARK_PYTHON"] == "/their/own"
    assert Path(os.environ["PYSPARK_DRIVER_PYTHON"]).resolve() == WORKER_PYTHON


@pytest.mark.usefixtures("untold")
def test_when_spark_runs_already_it_is_too_late__and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.spark.errors import SparkError
    from penstock.spark.session import quick_workers

    monkeypatch.setattr("pyspark.SparkContext._gateway", object())
    with pytest.raises(SparkError, match="runs already"):
        quick_workers()
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    with pytest.raises(SparkError, match="runs already"):
        quick_workers()
    assert "PYSPARK_PYTHON" not in os.environ


def test_numerical_libraries_start_no_threads_where_spark_does_not_say_how_many() -> None:
    known = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    for told, expected in ((None, "1"), ("3", "3")):
        environment = {**known, "PYTHONPATH": "", "PENSTOCK_SPARK_PYTHON": sys.executable}
        if told is not None:
            environment["OMP_NUM_THREADS"] = told
        words = [str(WORKER_PYTHON), "-c", "import os; print(os.environ['OMP_NUM_THREADS'])"]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True, timeout=60)
        assert done.stdout.strip() == expected
