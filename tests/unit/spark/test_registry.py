"""Jobs are listed with how they are, and stopped by name; a process id that was given again is no job."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.spark.errors import SparkError
from penstock.spark.jobs.shared.registry import jobs, registered
from tests.support.brokers import ROOT
from tests.support.logs import KIB, durable_feed, fill, open_log

SLEEPER = """
import signal, sys
from pathlib import Path
from penstock.spark.jobs.shared.registry import registered
with registered("sleeper", "sink", Path(sys.argv[1]), "delta:/t") as job:
    print("ready", flush=True)
    try:
        signal.sigwait([signal.SIGUSR1])
    except SystemExit:
        pass
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_SPARK_JOBS", str(tmp_path / "jobs"))
    return tmp_path / "jobs"


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-c", SLEEPER, str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_job_is_listed_while_it_runs_and_after_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["spark", "jobs"]) == 0
    assert capsys.readouterr().out == "no jobs\n"
    with registered("one", "sink", tmp_path, "delta:/t") as job:
        job.note(12)
        job.note(20)
        (found,) = jobs()
        assert (found.state(), found.position, found.batches) == ("running", 20, 2)
    with pytest.raises(ValueError), registered("two", "dedup", tmp_path, "delta:/u"):
        raise ValueError("no space")
    assert {job.name: job.end for job in jobs()} == {"one": "ended", "two": "failed: no space"}
    told = "[STREAM_FAILED] it ended\npenstock.spark.errors.DataLoss: gone; keep it longer\n\tat x"
    with pytest.raises(ValueError), registered("two", "dedup", tmp_path, "delta:/u"):
        raise ValueError(told)
    assert [job.end for job in jobs() if job.name == "two"] == ["failed: gone; keep it longer"]


def test_the_lag_of_a_job_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = open_log(tmp_path / "data", traffic_retention_bytes=1 << 40)
    lsns = fill(log, durable_feed(log), 100 * KIB)
    log.close_sync()
    with registered("one", "sink", tmp_path / "data", "delta:/t") as job:
        job.note(lsns[10])
        assert main(["spark", "lag"]) == 0
        said = capsys.readouterr().out.split()
        assert said[:2] == ["one", "running"]
        assert int(said[2]) >= len(lsns) - 10
        job.note(lsns[-1] + 1)
        before = int(said[2])
        assert main(["spark", "lag"]) == 0
        assert int(capsys.readouterr().out.split()[2]) == before - (lsns[-1] + 1 - lsns[10])
    with registered("two", "sink", tmp_path / "nowhere", "delta:/t"):
        assert main(["spark", "lag"]) == 1
        assert "there is no log in" in capsys.readouterr().out


def test_a_job_is_stopped_by_its_name(
    sleeper: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SparkError, match="job sleeper runs already, as process"):
        registered("sleeper", "sink", Path("/"), "delta:/t").__enter__()
    assert main(["spark", "stop", "sleeper"]) == 0
    assert capsys.readouterr().out == "sleeper is stopped\n"
    assert [job.state() for job in jobs()] == ["killed"], "SIGTERM ends a process that does not mind it"
    assert main(["spark", "stop", "sleeper"]) == 1
    assert "job sleeper does not run (killed)" in capsys.readouterr().err
    assert main(["spark", "stop", "nobody"]) == 1
    assert "there is no job nobody" in capsys.readouterr().err


def test_another_process_with_the_same_id_is_not_the_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with registered("old", "sink", tmp_path, "delta:/t") as job:
        job.pid_started -= 1
        job.save()
        assert [found.state() for found in jobs()] == ["killed"]
        assert main(["spark", "stop", "old"]) == 1, "and is left alone"


def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SparkError, match="is no name of a job"):
        registered("../x", "sink", tmp_path, "delta:/t").__enter__()
