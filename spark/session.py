"""A Spark session set up for this: one machine, as many shuffle partitions as cores, UTC, state in RocksDB.

`spark.sql.shuffle.partitions` is 200 by default, which makes each stateful micro-batch some seconds long on a
small machine; times of messages are UTC whatever the machine's zone.

Checkpoints are written by Spark's file manager over Hadoop's `FileSystem`. The one that it takes by itself
asks about links, for which Hadoop without its native library starts a `readlink` for each look at a file: all
of them are half of what a small micro-batch costs. Both write a file under another name and then rename it.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.spark.errors import SparkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SETTINGS", "find_java", "quick_workers", "session"]

SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


def find_java() -> str | None:
    """The `java` that Spark will run: of JAVA_HOME, else of PATH; None: there is none."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(os.path.join(home, "bin", "java")) if home else shutil.which("java")


def _worker_python(master: str) -> str:
    """The command that starts Spark's workers: this interpreter, on this machine without Spark's own zip.

    That is `worker-python`, which only saves time: where it cannot be run, or pyspark is in that zip alone
    (under `spark-submit`), the interpreter itself will do.
    """
    import pyspark

    fast = Path(__file__).with_name("worker-python")
    if not (master.startswith("local") and Path(pyspark.__file__).is_file() and os.access(fast, os.X_OK)):
        return sys.executable
    os.environ["PENSTOCK_SPARK_PYTHON"] = sys.executable
    return str(fast)


def quick_workers() -> None:
    """Let the sessions that this process makes itself start Spark's Python processes as `session` does.

    For the masters `local`. To be called before the first of them: Spark's Java has the environment that it
    was started with. PYSPARK_PYTHON in the environment is obeyed.

    Raises:
        SparkError: Spark's Java runs already.

    """
    from pyspark import SparkContext

    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        raise SparkError(
            "Spark's Java runs already, and its environment stays as it is",
            remedy="call quick_workers() before the first session; under spark-submit leave it out",
        )
    _name_python("local")


def _name_python(master: str) -> None:
    """Spark starts its workers with what PATH calls python3, which need not have penstock; those of a data
    source that it found by itself, with the driver's."""
    for variable in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.setdefault(variable, _worker_python(master))


def session(
    name: str,
    *,
    cores: int | None = None,
    memory: str = "1g",
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session of this process, made with our settings if there is none.

    `master`: where to run, when not with `cores` (default: all) of this machine.

    Under `spark-submit` master and memory are those it was given.

    Raises:
        SparkError: there is no Java.

    """
    if find_java() is None:
        raise SparkError(
            "there is no Java, which Spark needs",
            remedy="install Java 17 or newer (Debian: default-jre-headless)",
        )
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    count = cores or os.cpu_count() or 1
    conf = SparkConf()
    if not conf.contains("spark.master"):
        conf.setMaster(master or f"local[{count}]").set("spark.driver.memory", memory)
    _name_python(str(conf.get("spark.master")))
    conf.setIfMissing("spark.app.name", name)
    conf.setIfMissing("spark.sql.shuffle.partitions", str(count))
    for key, value in {**SETTINGS, **(settings or {})}.items():
        conf.setIfMissing(key, value)
    spark = SparkSession.builder.config(conf=conf).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
