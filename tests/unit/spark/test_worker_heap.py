"""Imports are exempt from the collection that PySpark's workers make after each task."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.brokers import ROOT

PROGRAM = """
import gc
from pyspark import TaskContext
from penstock.spark.worker_heap import spare_imports

spare_imports()
assert gc.get_freeze_count() == 0, "not in a worker of Spark's"
TaskContext._taskContext = TaskContext()
spare_imports()
spared = gc.get_freeze_count()
assert spared > 10_000, spared
kept = [[index] for index in range(1000)]
spare_imports()
assert gc.get_freeze_count() == spared, "once"
"""
PLANS = """
import gc, sys, types
from penstock.spark.worker_heap import spare_imports

sys.modules["__main__"] = types.SimpleNamespace(__spec__=types.SimpleNamespace(name="pyspark.daemon"))
spare_imports()
spared = gc.get_freeze_count()
sys.exit(0 if spared > 10_000 else f"{spared} spared")
"""


def test_a_worker_of_spark_spares_its_imports_once_and_other_processes_do_not() -> None:
    # In a process of its own: what is exempt stays so.
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True, timeout=300)


def test_so_does_what_the_daemon_forked_to_plan() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, "-c", PLANS], env=environment, check=True, timeout=300)
