"""The command `penstock`: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from penstock import __version__
from penstock.cli import main
from penstock.cli.commands import FOREIGN, GROUPS, MODULES, overview
from penstock.cli.parsing import ELSEWHERE, SYNONYMS, parser_of
from penstock.config import Config
from penstock.errors import ConfigError, PenstockError, StartError
from penstock.log_core.log import Log
from penstock.log_core.options import LogOptions
from tests.support.brokers import ROOT


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """Stands in for the gateway: `gateway.server.serve` notes the configuration it is called with."""
    configs: list[Config] = []
    stand_in = ModuleType("penstock.gateway.server")

    def serve(config: Config, load: object = None) -> int:
        configs.append(config)
        if config.log.data_dir == "locked":
            raise StartError.data_locked("locked", "pid 4711")
        return 0

    stand_in.__dict__["serve"] = serve
    monkeypatch.setitem(sys.modules, "penstock.gateway.server", stand_in)
    # Another gateway of this machine may have the default addresses.
    monkeypatch.setattr("penstock.gateway.default_listeners.unavailable", lambda loaded: ())
    return configs


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {})


def test_serve_runs_the_gateway_with_the_configuration_of_all_sources(
    served: list[Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "p.toml"
    file.write_text("[amqp]\nchannel_max = 7\n")
    monkeypatch.setattr("os.environ", {"PENSTOCK__MQTT__MAX_INFLIGHT": "8"})
    sources = [
        "--config",
        str(file),
        "--data",
        "d",
        "--log-level",
        "error",
        "--set",
        "log.segment_bytes=2MiB",
    ]
    assert main(["serve", *sources]) == 0
    (config,) = served
    assert (config.amqp.channel_max, config.mqtt.max_inflight) == (7, 8)
    assert (config.log.data_dir, config.server.log_level) == ("d", "error")
    assert config.log.segment_bytes == 2 * 2**20


def test_serve_salvages_only_when_asked(served: list[Config]) -> None:
    assert main(["serve"]) == main(["serve", "--salvage"]) == 0
    assert [config.log.salvage for config in served] == [False, True]


def test_serve_warns_when_nothing_is_synced(served: list[Config], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--set", "log.fsync=never"]) == 0
    assert "WARNING penstock.server log.fsync is never" in capsys.readouterr().err


def test_serve_is_silent_about_safe_settings(
    served: list[Config], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve"]) == 0
    assert capsys.readouterr() == ("", "")


def test_an_error_is_one_line_with_the_remedy_and_exit_code_1(
    served: list[Config], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--data", "locked"]) == 1
    assert capsys.readouterr() == (
        "",
        f"penstock: error: the data folder {Path('locked').absolute()} is locked by another penstock "
        "(pid 4711); stop that one, or give this one its own folder with --data DIR\n",
    )


def test_a_mistake_in_the_configuration_ends_with_exit_code_2(
    served: list[Config], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--log-level", "loud"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("penstock: error: flag --log-level: server.log_level: 'loud' is not allowed; ")
    assert served == []


def test_config_show_prints_toml(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--set", "log.fsync=never", "--origin"]) == 0
    shown = capsys.readouterr().out
    assert tomllib.loads(shown)["log"]["fsync"] == "never"
    assert 'fsync = "never"  # --set' in shown


def test_config_schema_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "penstock"


@pytest.mark.parametrize("what", ["inspect", "verify"])
def test_a_log_that_is_not_there_is_an_error(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["log", what, str(tmp_path / "none")]) == 1
    assert "none; name penstock's data folder with --data DIR" in capsys.readouterr().err


def test_a_log_is_inspected_and_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Log.open(tmp_path, LogOptions(segment_bytes=2**20, min_free_bytes=0)).close_sync()
    assert main(["log", "inspect", str(tmp_path)]) == 0
    assert "stopped cleanly" in capsys.readouterr().out
    assert main(["log", "verify", str(tmp_path)]) == 0
    with next(tmp_path.rglob("MANIFEST")).open("r+b") as manifest:
        manifest.seek(20)
        manifest.write(b"\xff")
    capsys.readouterr()
    assert main(["log", "verify", "--data", str(tmp_path)]) == 3
    assert "MANIFEST" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["config"], ["log"], ["serv"], ["serve", "--wrong"]])
def test_a_wrong_command_line_ends_with_exit_code_2(arguments: list[str]) -> None:
    assert main(arguments) == 2


@pytest.mark.parametrize(
    "words", ["audit list --from -7D", "webhooks replay orders -1h --to -5m", "tail --topic t --from -15m"]
)
def test_an_interval_is_a_value(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words.split(), "--url", "http://guest:guest@127.0.0.1:1"]) == 1
    assert "no answer" in capsys.readouterr().err, "the command line was right, and nobody is there"


@pytest.mark.parametrize(
    ("words", "near"),
    [
        ("queu list", "'queues'"),
        ("queues lst", "'list'"),
        ("queues list --columms name", "'--columns'"),
        ("pub --quue q x", "'--queue'"),
        ("queues create q --type quorm", "'quorum'"),
        ("list queues", "'penstock queues list'"),
        ("declare queue q", "'penstock queues create'"),
        ("list_queues", "'penstock rabbitmqctl list_queues'"),
        ("--versoin", "'--version'"),
        ("publish --queue q x", "'penstock pub'"),
        ("add queue q", "'penstock queues create'"),
        ("log verfy", "'verify'"),
        ("serve --slavage", "'--salvage'"),
    ],
)
def test_a_misspelt_word_gets_the_nearest(words: str, near: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    said = capsys.readouterr().err
    assert f"did you mean {near}? `penstock" in said and said.count("\n") == 1


def test_a_word_that_is_like_nothing_gets_no_guess(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ["zzz"],
        ["queues", "zzz"],
        ["queues", "list", "--zzz"],
        ["queues", "create", "q", "--durable"],
        ["queues"],
        ["queues", "list", "x"],
    ):
        assert main(words) == 2
        said = capsys.readouterr().err
        assert "did you mean" not in said and "--help`" in said


def test_words_of_other_tools_lead_to_commands_that_there_are() -> None:
    for word, line in ELSEWHERE.items():
        command, *verb = line.split()
        assert word not in MODULES and command in MODULES, word
        assert not verb or verb[0] in parser_of(command).verbs(), line


NOUNS = sorted(GROUPS["a running gateway"].keys() - {"top", "bench"})


@pytest.mark.parametrize("noun", NOUNS)
def test_verbs_have_the_same_synonyms_for_all_nouns(noun: str, capsys: pytest.CaptureFixture[str]) -> None:
    verbs = parser_of(noun).verbs().keys()
    assert not verbs & {word for words in SYNONYMS.values() for word in words}, (
        "each has one name in the help"
    )
    for verb in verbs & SYNONYMS.keys():
        told = set()
        for word in (verb, *SYNONYMS[verb]):
            with pytest.raises(SystemExit):
                main([noun, word, "--help"])
            told.add(capsys.readouterr().out)
        (text,) = told
        assert text.startswith(f"usage: penstock {noun} {verb} ")


@pytest.mark.parametrize("name", sorted(MODULES))
def test_each_command_and_verb_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"  {name} " in overview()
    if name in FOREIGN:
        assert main(["help", name]) == main([name, "--help"]) == 0
        assert f"penstock {name}" in capsys.readouterr().out
        return
    for words in ([name], *([name, verb] for verb in parser_of(name).verbs())):
        with pytest.raises(SystemExit) as ended:
            main(["help", *words])
        assert ended.value.code == 0
        assert capsys.readouterr().out.startswith(f"usage: penstock {' '.join(words)} ")


def test_help_does_not_show_the_password_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.environ", {"PENSTOCK_URL": "http://ann:s3cret@127.0.0.1:15672"})
    with pytest.raises(SystemExit):
        main(["queues", "list", "--help"])
    assert "s3cret" not in capsys.readouterr().out


def test_a_routing_key_without_an_exchange_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pub", "--queue", "q", "--routing-key", "k", "x"]) == 2
    assert "--exchange" in capsys.readouterr().err


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "penstock", *arguments], capture_output=True, text=True)


def test_the_module_runs_as_the_command() -> None:
    ran = run("--version")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"penstock {__version__}\n", "")


def test_every_command_explains_itself() -> None:
    for command in (["serve"], ["config"], ["config", "show"], ["log"], ["log", "verify"]):
        ran = run(*command, "--help")
        assert ran.returncode == 0
        assert "usage: penstock " + " ".join(command) in ran.stdout


@pytest.mark.parametrize("buffered", ["", "1"])
@pytest.mark.parametrize(
    "words", ["--help", "--version", "config schema", "rabbitmqctl help", "spark --help"]
)
def test_output_into_a_closed_pipe_is_no_error(words: str, buffered: str) -> None:
    program = (
        "import os, sys; reading, writing = os.pipe(); os.close(reading); os.dup2(writing, 1);"
        f"from penstock.cli import main; sys.exit(main({words.split()}))"
    )
    environment = {"PYTHONUNBUFFERED": buffered, "PYTHONPATH": str(ROOT / "src")}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_table_in_a_pipe_is_plain_and_loads_nothing_for_terminals() -> None:
    rows = '[{"name": "a", "on": True, "n": 1.25}, {"name": "b c"}]'
    program = (
        "import sys; from penstock.cli.tables import print_rows;"
        f"print_rows({rows}, ('name', 'on', 'n'), 'table'); print('rich' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "NAME  ON   N\na     yes  1.2\nb c   -    -\nFalse\n"


def test_the_errors_say_what_and_how_to_mend_it() -> None:
    assert str(PenstockError("the tap drips", remedy="close it")) == "the tap drips; close it"
    assert str(PenstockError("the tap drips")) == "the tap drips"
    error = ConfigError("too big", source="p.toml", key="log.x", remedy="choose less")
    assert str(error) == "p.toml: log.x: too big; choose less"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (
            98,
            "is taken by another process; stop that process, or choose another address with --set amqp",
        ),
        (13, "this user may not listen on 127.0.0.1:1; choose a port above 1023"),
        (99, "cannot listen on 127.0.0.1:1: Cannot assign"),
    ],
)
def test_a_listener_that_cannot_be_opened(number: int, text: str) -> None:
    error = StartError.listening("amqp", "127.0.0.1:1", OSError(number, "Cannot assign"))
    assert text in str(error)


@pytest.mark.parametrize(("number", "text"), [(28, "no space left"), (122, "no space left"), (13, "denied")])
def test_a_data_folder_that_cannot_be_used(number: int, text: str) -> None:
    error = StartError.data_unusable("/data", OSError(number, "Permission denied"))
    assert text in str(error)
    assert "--data DIR" in error.remedy


@pytest.mark.parametrize(
    "spoil",
    [
        "sys.modules['penstock.log_core.batch._batch'] = None",
        "import penstock.log_core.batch._batch as kernel; del kernel.Record",
    ],
)
def test_kernels_that_do_not_fit_the_sources_are_named_with_the_remedy(spoil: str, tmp_path: Path) -> None:
    """A stale or missing kernel ends the start with one line."""
    start = "from penstock.cli import main; sys.exit(main(['serve', '--data', sys.argv[1]]))"
    code = f"import sys; {spoil}; {start}"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert "penstock.log_core.batch._batch" in done.stderr
    assert "make kernels" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_help_fits_a_terminal_of_80_columns() -> None:
    assert max(map(len, overview().splitlines())) < 80
