"""`penstock spark VERB` without Spark: what there is, what is missing."""

from __future__ import annotations

import argparse
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.extras import install
from penstock.spark.errors import SparkOptionError
from penstock.spark.jobs import analytics, doctor, verbs
from penstock.spark.jobs.verbs import VERBS
from penstock.spark.schema import arrow_schema
from penstock.spark.tables.files import DataFile
from penstock.spark.tables.parquet import ParquetFormat
from penstock.spark.tables.table import open_table
from tests.support.logs import open_log


def test_the_verbs_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spark", "--help"]) == 0
    said = capsys.readouterr().out
    assert all(verb in said for verb in VERBS)
    assert main(["spark"]) == 2


def test_the_error_about_an_unknown_verb_has_the_nearest_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spark", "sing"]) == 2
    said = capsys.readouterr().err
    assert "there is no verb 'sing' of penstock spark, but sink, dedup" in said
    assert "did you mean 'sink'? `penstock spark --help` says more" in said


NOWHERE = "there is no log in"
LOG = "--data LOG"
STREAM = "--data LOG --to parquet:T --checkpoint C"
MISTAKES = {
    "sink --data nowhere --to delta:t --checkpoint c": (1, NOWHERE),
    "sink --data amqp://h --to delta:t --checkpoint c": (2, "penstock://"),
    "sink --data LOG --to hudi:t --checkpoint c": (2, "give delta:PATH"),
    f"sink {STREAM} --every soon": (2, "give a duration"),
    f"sink {STREAM} --evry 1s": (2, "did you mean '--every'?"),
    f"sink {STREAM} --columns offset,nothing": (2, "nothing"),
    f"sink {STREAM} --payload half": (2, "give full, none or head:BYTES"),
    f"sink {STREAM} --archive delta:a": (2, "give parquet:PATH"),
    "dedup --data nowhere --to delta:t --checkpoint c": (1, NOWHERE),
    f"dedup {STREAM} --within 5": (2, "give a duration"),
    "telemetry --data nowhere --to delta:t --checkpoint c --value v": (1, NOWHERE),
    f"telemetry {STREAM} --value v --window 5": (2, "give a duration"),
    f"telemetry {STREAM} --value v --topics a/#/b": (2, "# stands last"),
    "tier --data nowhere --to parquet:a --engine spark": (1, NOWHERE),
    f"tier {LOG} --to parquet:a --engine sprak": (2, "did you mean 'spark'?"),
    "replay --data nowhere --url amqp://h --name n": (1, NOWHERE),
    f"replay {LOG} --url http://h --name n": (2, "give amqp://"),
    "replay --from parquet:nowhere --url amqp://h --name n": (1, "there is nothing in parquet:nowhere"),
    "replay --from parquet:nowhere --url amqp://h --name n --topics a": (1, "use --where"),
    "analytics --data nowhere": (1, NOWHERE),
    f"analytics {LOG} --since yesterday": (2, "give a time"),
    f"analytics {LOG} --html nowhere/a.html": (2, "there is no folder nowhere"),
    f"analytics {LOG} --to parquet:t --window 10ms": (2, "at least 1s"),
    "dlq --data nowhere": (1, NOWHERE),
    f"dlq {LOG} --protocols smtp": (2, "give some of"),
    "stop --timeout long": (2, "invalid float value"),
}
"""Command line -> (exit code, words of the error)."""


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_told_before_spark_starts(
    line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    open_log(tmp_path / "LOG").close_sync()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("penstock.spark.session.session", lambda *_, **__: pytest.fail("Spark starts"))
    code, words = MISTAKES[line]
    assert main(["spark", *line.split()]) == code
    said = capsys.readouterr().err
    assert said.startswith("penstock: error: ") and words in said


def test_mistakes_are_tried_of_every_job_that_starts_spark() -> None:
    folder = Path(verbs.__file__).parent
    starting = {
        file.stem for file in folder.glob("*.py") if "spark.session import session" in file.read_text()
    }
    assert starting & {*VERBS} == {line.split()[0] for line in MISTAKES} - {"stop"}


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_each_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["spark", verb, "--help"])
    assert ended.value.code == 0
    assert f"usage: penstock spark {verb}" in capsys.readouterr().out


def test_the_doctor_names_what_is_missing_and_how_it_comes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def version(name: str) -> str:
        if name == "deltalake":
            raise PackageNotFoundError(name)
        return {"pyspark": "3.5.1"}.get(name, "99.0")

    monkeypatch.setattr(doctor, "version", version)
    monkeypatch.setattr(doctor, "find_java", lambda: None)
    assert main(["spark", "doctor", "--data", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "MISSING no Java\n" in said
    assert "apt-get install default-jre-headless" in said
    assert "MISSING no deltalake" in said
    assert "MISSING pyspark 3.5.1" in said
    assert said.count(install("spark")) == 2
    assert "there is no log in" in said
    assert "ok      pyiceberg 99.0" in said


@pytest.mark.parametrize("package", ["pyarrow", "pyspark"])
def test_a_job_without_its_packages_says_how_they_come(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, package: str, tmp_path: Path
) -> None:
    def run(arguments: argparse.Namespace) -> int:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)

    monkeypatch.setattr(analytics, "_run", run)
    open_log(tmp_path).close_sync()
    assert main(["spark", "analytics", "--data", str(tmp_path)]) == 1
    said = f"penstock: error: there is no {package}; {install('spark')} (penstock spark doctor)\n"
    assert capsys.readouterr().err == said
    package = "nobody_knows"
    with pytest.raises(ModuleNotFoundError):
        main(["spark", "analytics", "--data", str(tmp_path)])


def test_the_doctor_finds_a_log(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    open_log(tmp_path).close_sync()
    main(["spark", "doctor", "--data", str(tmp_path)])
    said = capsys.readouterr().out
    assert f"ok      {tmp_path}: a log with positions 1 to " in said
    assert 'ok      format("penstock") is found' in said


def test_a_table_of_no_known_format_is_refused() -> None:
    with pytest.raises(SparkOptionError, match="give delta:PATH, iceberg:FOLDER"):
        open_table("hudi:x")


def test_files_that_no_commit_lists_do_not_count(tmp_path: Path) -> None:
    table = ParquetFormat(tmp_path)
    table.create(arrow_schema(["offset"]))
    listed = DataFile("event_date=2020-01-01/a.parquet", "2020-01-01", 5, 1, 1, 9)
    folder = tmp_path / "event_date=2020-01-01"
    folder.mkdir()
    for name in ("a.parquet", "orphan.parquet"):
        (folder / name).write_bytes(b"x")
    assert table.position("log") is None
    table.publish("log", [listed], 1, 10)
    assert (table.position("log"), table.position("other"), table.files()) == (10, None, [listed])
    with pytest.raises(FileExistsError):
        table.publish("log", [listed], 1, 10)
    assert table.files() == [listed], "a commit is there once"
