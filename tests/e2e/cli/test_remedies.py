"""The remedies that errors print: each is provoked, run as it is printed, and helps.

Commands stand in backticks. tests/docs/test_executed.py holds the texts of the sources to their tests.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.protocols.http.webhooks.security.secrets import Seal
from tests.support.brokers import ROOT, Gateway
from tests.support.commands import Run
from tests.support.management import SETTINGS

pytestmark = pytest.mark.penstock_only("this is about the command penstock")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("mended"), settings=SETTINGS) as running:
        yield running


@pytest.fixture
def run(gateway: Gateway, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("PENSTOCK_URL", f"http://guest:guest@127.0.0.1:{gateway.ports['management']}")
    return Run(capsys)


def recommended(text: str) -> list[list[str]]:
    """The commands in backticks, as words behind `penstock`."""
    return [shlex.split(found)[1:] for found in re.findall(r"`(penstock [^`]+)`", text)]


# Things that are not there


@pytest.mark.parametrize("vhost", ["/", "it's mine"])
@pytest.mark.parametrize(
    "words",
    [
        "pub --queue NAME x",
        "sub --queue NAME --drain",
        "pub --topic NAME x",
        "tail --topic NAME --from first --max 1",
        "subs create NAME/s",
        "pub --exchange NAME x",
        "exchanges bind NAME there",
        "exchanges bind amq.topic NAME",
    ],
)
def test_a_missing_thing_is_listed_and_made_by_the_remedy(
    run: Run, unique: str, words: str, vhost: str
) -> None:
    name = f"{unique} of mine"
    run("vhosts", "create", vhost)
    run("users", "grant", "--vhost", vhost, "guest", ".*", ".*", ".*")
    run("queues", "create", "there", "--vhost", vhost)
    verb = [word.replace("NAME", name) for word in words.split()]
    at = 1 + (verb[0] in ("subs", "exchanges"))
    command = [*verb[:at], "--vhost", vhost, *verb[at:]]
    run(*command, code=1)
    assert f"'{name}' in vhost '{vhost}'" in run.errors and "/v1/" not in run.errors
    kind = "topic" if "topic" in words.split()[1] or words.startswith("subs") else ""
    assert f"there is no {kind}" in run.errors
    commands = recommended(run.errors)
    assert [command[1] for command in commands] == ["list", "create"]
    assert name not in run(*commands[0])
    run(*commands[1])
    assert name in run(*commands[0])
    if verb[0] == "tail":
        run("pub", "--vhost", vhost, "--topic", name, "x")
    run(*command)


@pytest.mark.parametrize(
    "words",
    [
        "queues show NAME",
        "queues purge NAME",
        "queues delete NAME",
        "exchanges show NAME",
        "topics show NAME",
        "subs list NAME",
        "subs show stream/NAME",
        "webhooks show NAME",
        "webhooks test NAME",
        "policies delete NAME",
        "connections close NAME",
        "users delete NAME",
        "vhosts delete NAME",
        "queues list --vhost NAME",
    ],
)
def test_the_others_of_a_missing_thing_are_listed(run: Run, unique: str, words: str) -> None:
    run("topics", "create", "stream")
    run(*(word.replace("NAME", unique) for word in words.split()), code=1)
    assert f"there is no {'vhost' if '--vhost' in words else ''}" in run.errors and unique in run.errors
    (command,) = recommended(run.errors)
    assert command[1] == "list"
    run(*command)


def test_a_missing_vhost_or_user_is_made(run: Run, unique: str) -> None:
    run("pub", "--vhost", unique, "--queue", "q", "x", code=1)
    _, make = recommended(run.errors)
    run(*make)
    run("users", "grant", "--vhost", unique, unique, "a", "b", "c", code=1)
    _, make = recommended(run.errors)
    run(*make, "--password", "s3cret")
    run("users", "grant", "--vhost", unique, unique, "a", "b", "c")


# Messages


def test_a_message_that_no_queue_gets_has_the_binding_as_remedy(run: Run, unique: str) -> None:
    run("queues", "create", unique)
    publish = ("pub", "--exchange", "amq.topic", "--routing-key", f"{unique}.a b", "x")
    run(*publish, "--mandatory", code=1)
    (mandatory,) = recommended(run.errors)
    run(*publish)
    (bind,) = recommended(run.errors)
    assert bind == mandatory
    run(*(unique if word == "QUEUE" else word for word in bind))
    run(*publish, "--mandatory")


def test_a_binding_that_is_not_there_has_the_list_as_remedy(run: Run, unique: str) -> None:
    run("queues", "create", unique)
    run("exchanges", "bind", "amq.topic", unique, "--routing-key", "a.b")
    run("exchanges", "unbind", "amq.topic", unique, code=1)
    (command,) = recommended(run.errors)
    assert "a.b" in run(*command)


def test_a_topic_that_is_pulled_as_a_queue_is_read_by_the_remedy(run: Run, unique: str) -> None:
    run("topics", "create", unique)
    run("pub", "--topic", unique, "kept")
    run("sub", "--queue", unique, "--drain", code=1)
    (command,) = recommended(run.errors)
    assert run(*command, "--max", "1") == "kept\n"


# Rights


def test_a_user_without_rights_gets_them_by_the_remedies(
    run: Run, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("queues", "create", unique)
    run("users", "create", unique, "--password", "s3cret")

    def as_user(*words: str, code: int = 0) -> str:
        with monkeypatch.context() as other:
            other.setenv("PENSTOCK_USER", unique)
            other.setenv("PENSTOCK_PASSWORD", "s3cret")
            return run(*words, code=code)

    as_user("pub", "--queue", unique, "x", code=1)
    permissions, grant = recommended(run.errors)
    assert unique not in run(*permissions)
    run(*grant, unique, ".*", ".*", ".*")
    assert unique in run(*permissions)
    as_user("pub", "--queue", unique, "x")
    as_user("queues", "list", code=1)
    (tag,) = recommended(run.errors)
    run(*tag, "--password", "s3cret")
    assert unique in as_user("queues", "list")


# Words that are wrong


def test_a_wrong_word_has_help_as_remedy(run: Run) -> None:
    for words in (("queues", "lst"), ("queues", "list", "--colums", "x"), ("queeus",), ("add_user", "x")):
        run(*words, code=2)
        for command in recommended(run.errors):
            assert "usage: " in run(*command)


# Files


def test_a_key_file_is_made_and_closed_by_the_remedies(tmp_path: Path) -> None:
    file = tmp_path / "the webhooks' key"
    for prepared in (None, b"short", file):
        if prepared is file:
            file.chmod(0o644)
        elif prepared is not None:
            file.write_bytes(prepared)
        with pytest.raises(ConfigError) as refused:
            Seal(str(file))
        (command,) = re.findall("`(.*)`", refused.value.remedy)
        subprocess.run(["sh", "-c", command], check=True)
        Seal(str(file))


def test_a_data_folder_that_others_may_read_is_closed_by_the_remedy(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "the data"
    folder.mkdir(mode=0o755)
    said = run("doctor", "--data", str(folder), code=1)
    (command,) = re.findall("`(chmod .*)`", said)
    subprocess.run(shlex.split(command), check=True)
    assert "0 errors" in run("doctor", "--data", str(folder))


def test_extras_that_remedies_install_are_there() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    found = {
        extra
        for folder in ("src/penstock", "protocols", "log_core")
        for file in (ROOT / folder).rglob("*.py")
        for extra in re.findall(r"(?:penstock\[|\binstall\(\")(\w+)[\]\"]", file.read_text())
    }
    assert {"kafka", "migrate"} <= found <= {*extras}
