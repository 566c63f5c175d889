"""The configuration: one declaration per option, four sources, mistakes that name their place."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
import tomllib
import typing
from pathlib import Path

import pytest

from penstock.config import Address, Config, User, load
from penstock.config.kinds import BadValue, Count, Seconds
from penstock.config.render import MASK, reference, schema, show
from penstock.config.sources import Option, all_options
from penstock.errors import ConfigError, ConfigErrors
from penstock.log_core.options import FIXED, LogOptions
from penstock.protocols.mqtt.options import MqttOptions

ROOT = Path(__file__).parents[2]
SECTIONS = ROOT / "src/penstock/config/sections"
OPTIONS = list(all_options())
HASH = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"


def each_option() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


# Declarations


def test_the_sections_are_those_of_the_design() -> None:
    names = [section.name for section in dataclasses.fields(Config)]
    fronts = ["amqp", "mqtt", "http", "webhooks", "links", "management", "metrics", "native"]
    last = ["auth", "oauth", "telemetry"]
    assert names == ["server", "log", "cluster", "kafka", "events", "audit", "tls", *fronts, *last]


@each_option()
def test_every_option_has_a_text(option: Option) -> None:
    assert option.doc.endswith("."), "a sentence for the reference page"
    assert option.when and not option.when.endswith("."), "the end of 'change it when ...'"
    assert option.kind.range()


@each_option()
def test_a_default_passes_its_own_checks_and_survives_toml(option: Option) -> None:
    text = f"value = {option.kind.toml(option.default)}"
    assert option.kind.from_value(tomllib.loads(text)["value"]) == option.default


@each_option()
def test_a_default_has_the_declared_type(option: Option) -> None:
    section = type(getattr(Config(), option.section))
    declared = typing.get_type_hints(section)[option.key]
    origin = typing.get_origin(declared)
    if origin is typing.Literal:
        assert option.default in typing.get_args(declared)
    elif declared in (int, float, str, bool):
        assert type(option.default) is declared
    else:
        assert option.key in (
            "additional_scopes_claims",
            "allow_anonymous",
            "allow_any_login",
            "allow_networks",
            "bootstrap_servers",
            "bridges",
            "buffer_budget",
            "folders",
            "headers",
            "host_names",
            "hosts",
            "kinds",
            "loopback_users",
            "memory_high_watermark",
            "min_free_bytes",
            "options",
            "ports",
            "preferred_username_claims",
            "proxy_networks",
            "refuse_networks",
            "scope_aliases",
            "scopes",
            "scram",
            "shared_strategy_of",
            "users",
            "ws_origins",
            "ws_paths",
        )


@pytest.mark.parametrize(
    "option", [o for o in OPTIONS if isinstance(o.kind, Count | Seconds)], ids=lambda option: option.name
)
def test_a_number_is_held_to_its_range(option: Option) -> None:
    kind = option.kind
    assert isinstance(kind, Count | Seconds)
    for value in (kind.low, kind.high):
        load(sets=[f"{option.name}={value}"])
    for value in (kind.high + 1, kind.low - 1):
        with pytest.raises(ConfigError, match=r"out of range|not a number"):
            load(sets=[f"{option.name}={value}"])


def test_the_configuration_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().log.fsync = "never"  # type: ignore[misc]


def test_the_section_log_has_the_keys_and_defaults_of_the_log_core() -> None:
    mine = dataclasses.asdict(Config().log)
    theirs = dataclasses.asdict(LogOptions())
    assert mine.pop("data_dir") == "data"
    assert mine.pop("engine") == "local", "the server decides what the log stands on"
    assert mine.pop("min_free_bytes") == "auto", "the server finds it out"
    assert theirs.pop("min_free_bytes") == 512 * 2**20
    for quota in ("max_backlog_bytes", "max_backlog_bytes_reject", "max_backlog_bytes_evict"):
        assert mine.pop(quota) == 0, "the router's: it knows queues"
    for fixed in (one.name for one in dataclasses.fields(LogOptions) if one.metadata == FIXED):
        del theirs[fixed]
    assert mine == theirs


def test_the_section_mqtt_has_the_keys_and_defaults_of_the_front_end() -> None:
    assert dataclasses.asdict(Config().mqtt) == dataclasses.asdict(MqttOptions())


@each_option()
def test_every_option_is_read_by_the_part_it_is_for(option: Option) -> None:
    """An option that nothing reads would be ignored in silence. Declarations of options do not count."""
    places = ("src/penstock/cluster", "src/penstock/telemetry")
    folders = ("log_core", "protocols", "router", "subscriptions", *places)
    sources = [path for folder in folders for path in (ROOT / folder).rglob("*.py*")]
    modules = ("gateway/server", "gateway/layer_options", "gateway/watches", "cli/local/serve")
    sources += [ROOT / f"src/penstock/{module}.py" for module in modules]
    texts = (path.read_text() for path in sources if path.suffix in (".py", ".pyx"))
    assert any(re.search(rf"\.{option.key}\b", text) for text in texts)


def test_importing_it_imports_no_other_part_of_penstock_and_no_library() -> None:
    program = "import sys, penstock.config; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    mine = {name for name in loaded.stdout.split() if name.startswith("penstock")}
    assert mine == {
        "penstock",
        "penstock.config",
        "penstock.config.bridges",
        "penstock.config.kinds",
        "penstock.config.options",
        "penstock.config.sources",
        "penstock.config.sections",
        *(f"penstock.config.sections.{path.stem}" for path in SECTIONS.glob("[a-z]*.py")),
        "penstock.config.tls_hosts",
        "penstock.config.users",
        "penstock.errors",
        "penstock.lazy_dataclass",
    }
    assert not {"asyncio", "uvloop", "orjson", "pamqp"} & set(loaded.stdout.split())


# Sources


def test_without_sources_all_values_are_the_defaults() -> None:
    loaded = load()
    assert loaded.config == Config()
    assert set(loaded.origins.values()) == {"default"}


def test_each_source_overrules_the_ones_before_it(tmp_path: Path) -> None:
    file = written(tmp_path / "p.toml", '[log]\ndata_dir = "file"\n')
    environ = {"PENSTOCK__LOG__DATA_DIR": "variable", "UNRELATED": "x"}
    sets = ["log.data_dir=first", "log.data_dir=set"]
    flags = {"log.data_dir": ("--data", "flag")}

    def both(**sources: typing.Any) -> tuple[str, str]:
        loaded = load(**sources)
        return loaded.config.log.data_dir, loaded.origins["log.data_dir"]

    assert both(file=file) == ("file", str(file))
    assert both(file=file, environ=environ) == ("variable", "environment variable PENSTOCK__LOG__DATA_DIR")
    assert both(file=file, environ=environ, sets=sets) == ("set", "--set")
    assert both(file=file, environ=environ, sets=sets, flags=flags) == ("flag", "flag --data")


def test_a_file_sets_every_kind_of_value(tmp_path: Path) -> None:
    text = f"""
        [server]
        drain_timeout_s = "2m"
        [log]
        segment_bytes = "16MiB"
        traffic_retention_s = 1.5
        [amqp]
        listen = "[::1]:0"
        heartbeat_s = 30
        [mqtt]
        allow_anonymous = false
        listen = ""
        [auth]
        loopback_users = []
        users = [
            {{name = "ann", password = "secret", tags = ["administrator"]}},
            {{name = "bob", password_hash = "{HASH}"}},
        ]
    """
    config = load(file=written(tmp_path / "p.toml", text)).config
    assert config.server.drain_timeout_s == 120.0
    assert config.log.segment_bytes == 16 * 2**20
    assert config.log.traffic_retention_s == 1.5
    assert config.amqp.address == Address("::1", 0)
    assert config.amqp.heartbeat_s == 30
    assert config.mqtt.allow_anonymous is False
    assert config.mqtt.address is None
    assert config.auth.loopback_users == ()
    assert config.auth.users == (
        User(name="ann", password="secret", tags=("administrator",)),
        User(name="bob", password_hash=HASH),
    )


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("log.segment_bytes=1GiB", "segment_bytes", 2**30),
        ("log.segment_bytes=2MB", "segment_bytes", 2_000_000),
        ("log.segment_bytes=2097152", "segment_bytes", 2**21),
        ("log.traffic_retention_s=7d", "traffic_retention_s", 604800.0),
        ("mqtt.session_expiry_max_s=2h", "session_expiry_max_s", 7200),
        ("server.login_timeout_s=500ms", "login_timeout_s", 0.5),
        ("log.salvage=true", "salvage", True),
        ("mqtt.allow_anonymous=true", "allow_anonymous", True),
        ("mqtt.allow_anonymous=loopback", "allow_anonymous", "loopback"),
        ("auth.loopback_users=guest, ann", "loopback_users", ("guest", "ann")),
        ('auth.loopback_users=["a,b"]', "loopback_users", ("a,b",)),
        ("auth.loopback_users=", "loopback_users", ()),
        ("auth.users=[{name='ann',password='x=y'}]", "users", (User(name="ann", password="x=y"),)),
        ("auth.default_password=a=b", "default_password", "a=b"),
        ("telemetry.endpoint=http://127.0.0.1:4318/", "endpoint", "http://127.0.0.1:4318"),
        ("telemetry.headers=a=b=c, d=", "headers", ("a=b=c", "d=")),
        ("telemetry.message_ratio=1", "message_ratio", 1.0),
    ],
)
def test_a_value_written_as_text(text: str, key: str, value: object) -> None:
    config = load(sets=[text]).config
    assert getattr(getattr(config, text.partition(".")[0]), key) == value


# Mistakes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("log.segment_byte=1", "--set: log.segment_byte: .*did you mean log.segment_bytes"),
        ("segment_bytes=1", "--set: .*SECTION.KEY=VALUE"),
        ("log.fsync", "--set: .*SECTION.KEY=VALUE"),
        ("logs.fsync=group", "--set: logs.fsync: there is no section 'logs'; did you mean log?"),
        ("zzzz.fsync=group", "the sections are amqp, audit, auth, cluster, events, http"),
        ("events.kinds=ack,acks", "'acks' is not allowed; choose some of connect, disconnect"),
        ("log.salvage=yes", "'yes' is not allowed; choose true or false"),
        ("log.fsync=always", 'choose one of "group", "never"'),
        ("log.segment_bytes=1XiB", "'1XiB' is not a number with a unit"),
        ("log.segment_bytes=12", "12 is out of range; choose 1048576 to 2147483648"),
        ("amqp.channel_max=1.5", "'1.5' is not a whole number"),
        ("amqp.listen=5672", "has no port"),
        ("amqp.listen=:5672", "has no host"),
        ("amqp.listen=::1:5672", "without brackets"),
        ("amqp.listen=localhost:65536", "'65536' is no port"),
        ("amqp.listen=localhost:x", "'x' is no port"),
        ("mqtt.listen=127.0.0.1:5672", "mqtt.listen: 127.0.0.1:5672 is also the address of amqp.listen"),
        ("mqtt.allow_anonymous=yes", '"loopback", true, false'),
        ("mqtt.shared_strategy_of=g=fair", "'g=fair' is not GROUP=round-robin or random or sticky"),
        ("mqtt.shared_strategy_of==sticky", "'=sticky' is not GROUP="),
        ("mqtt.shared_strategy_of=g=sticky,g=random", "'g' is there twice"),
        ("auth.users=ann", "not written as a TOML value"),
        ("auth.users=[{name='ann'}]", "'ann' needs either password or password_hash"),
        ("auth.users=[{name='ann',password='x',password_hash='y'}]", "needs either"),
        ("auth.users=[{name='ann',password_hash='y'}]", "no base64 of salt"),
        ("auth.users=[{name='',password='y'}]", "a name of 1 to 255 bytes"),
        ("auth.users=[{name='ann',pass='y'}]", "a user has no 'pass'"),
        ("auth.users=[{name='a',password='x'},{name='a',password='y'}]", "'a' is given twice"),
        ("auth.users=[{name='guest',password='x'}]", "'guest' is also auth.default_user"),
        ("telemetry.endpoint=127.0.0.1:4318", "'127.0.0.1:4318' is no URL of a collector"),
        ("telemetry.endpoint=http://127.0.0.1:4318?a=b", "is no URL of a collector"),
        ("telemetry.headers=token", "a header is not NAME=VALUE"),
        ("telemetry.headers= =token", "a header is not NAME=VALUE"),
        ("telemetry.message_ratio=1.5", "1.5 is out of range; choose 0.0 to 1.0"),
        ("telemetry.message_ratio=nan", "nan is out of range"),
        ("telemetry.message_ratio=few", "'few' is not a number"),
    ],
)
def test_a_mistake_names_its_place_and_the_remedy(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load(sets=[text])
    assert caught.value.source == "--set"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[log\n", "it is not TOML"),
        ("fsync = 1\n", "fsync: there is no section 'fsync'"),
        ("log = 1\n", r"write \[log\]"),
        ("[lgo]\nfsync = 1\n", "lgo: there is no section 'lgo'; did you mean log"),
        ("[log]\nfsink = 1\n", "log.fsink: there is no such option; did you mean log.fsync"),
        ("[log]\nfsync = 1\n", "log.fsync: 1 is not allowed"),
        (
            '[log]\nsegment_bytes = "64"\ntraffic_retention_s = true\n',
            "log.traffic_retention_s: True is not a number",
        ),
        ("[amqp]\nlisten = 5672\n", "amqp.listen: 5672 is not an address"),
        ("[auth]\nusers = [1]\n", "1 is not a user"),
        ('[auth]\nloopback_users = "guest"\n', "not a list of strings"),
        ("[auth]\ndefault_user = 1\n", "1 is not a string"),
    ],
)
def test_a_mistake_in_a_file_names_the_file(tmp_path: Path, text: str, message: str) -> None:
    file = written(tmp_path / "p.toml", text.replace('"64"', '"64MiB"'))
    with pytest.raises(ConfigError, match=message) as caught:
        load(file=file)
    assert str(caught.value).startswith(f"{file}: ")


def test_all_mistakes_of_all_sources_are_named_at_once(tmp_path: Path) -> None:
    text = """
    [lgo]
    [log]
    fsync = 1
    fsink = 2
    [mqtt]
    tls_listen = "127.0.0.1:8883"
    [tls]
    cert_file = 5
    [oauth]
    resource_server_id = "x"
    """
    file = written(tmp_path / "p.toml", text)
    with pytest.raises(ConfigErrors) as caught:
        load(file=file, environ={"PENSTOCK__AMQP__LISTEN": "x"}, sets=["log.fsync=often", "nothing"])
    found = [(error.source, error.key) for error in caught.value.errors]
    assert found == [
        (str(file), "lgo"),
        (str(file), "log.fsync"),
        (str(file), "log.fsink"),
        (str(file), "tls.cert_file"),  # and nothing about mqtt.tls_listen, which needs it
        ("environment variable PENSTOCK__AMQP__LISTEN", "amqp.listen"),
        ("--set", "log.fsync"),
        ("--set", ""),
        (str(file), "oauth.resource_server_id"),
    ]
    lines = str(caught.value).splitlines()
    assert lines[0] == "8 mistakes in the configuration:"
    assert lines[1:] == [f"  {error}" for error in caught.value.errors]


def test_the_address_of_the_console_is_a_url_without_a_path() -> None:
    names = ("issuer", "resource_server_id", "client_id")
    sets = [*(f"oauth.{name}=x" for name in names), "oauth.jwks_file=keys.json"]
    sets += [f"oauth.{name}=https://login.example.org/x" for name in ("authorization_url", "token_url")]
    for good in ("https://console.example.org", "http://10.0.0.1:8080/"):
        loaded = load(sets=[*sets, f"oauth.console_url={good}"])
        assert loaded.config.oauth.console_url == good
    for bad in ("console.example.org", "https://", "https://h/path", "ftp://h", "https://u@h", "https://h?q"):
        with pytest.raises(ConfigError, match="URL without a path"):
            load(sets=[*sets, f"oauth.console_url={bad}"])


def test_a_missing_file_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: cannot read it: No such file"):
        load(file=tmp_path / "none.toml")


def test_a_file_that_is_not_utf8_is_a_mistake(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_bytes(b'[log]\ndata_dir = "\xff"\n')
    with pytest.raises(ConfigError, match="not UTF-8"):
        load(file=file)


@pytest.mark.parametrize(
    "name", ["PENSTOCK__LOG", "PENSTOCK__LOG__", "PENSTOCK__LOG__FSINK", "PENSTOCK__X__Y"]
)
def test_a_mistake_in_a_variable_names_the_variable(name: str) -> None:
    with pytest.raises(ConfigError, match=f"environment variable {name}: "):
        load(environ={name: "group"})


def test_a_message_about_users_shows_no_password() -> None:
    with pytest.raises(ConfigError) as caught:
        load(sets=["auth.users=[{name='guest',password='hunter2'}]"])
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        load(sets=["auth.users=[['hunter2']]"])
    assert "hunter2" not in str(caught.value)


# Texts made from the declarations


def test_the_shown_configuration_reads_back_as_the_same(tmp_path: Path) -> None:
    loaded = load(sets=["log.segment_bytes=32MiB", "amqp.listen=", "mqtt.allow_anonymous=true"])
    shown = show(loaded).replace(f'"{MASK}"', '"guest"')
    assert load(file=written(tmp_path / "p.toml", shown)).config == loaded.config


def test_secrets_are_masked() -> None:
    loaded = load(sets=["auth.default_password=hunter2", "auth.users=[{name='a',password='hunter3'}]"])
    shown = show(loaded, origin=True)
    assert "hunter" not in shown
    assert f'default_password = "{MASK}"  # --set' in shown


def test_the_origin_of_every_value_is_shown() -> None:
    lines = show(load(environ={"PENSTOCK__LOG__FSYNC": "never"}), origin=True).splitlines()
    assert 'fsync = "never"  # environment variable PENSTOCK__LOG__FSYNC' in lines
    assert sum(line.endswith("# default") for line in lines) == len(OPTIONS) - 1


def test_the_schema_describes_every_option() -> None:
    sections = json.loads(schema())["properties"]
    for option in OPTIONS:
        described = sections[option.section]["properties"][option.key]
        assert described["description"] == f"{option.doc} Change it when: {option.when}."
        assert described["default"] == option.kind.plain(option.default)
    assert all(section["additionalProperties"] is False for section in sections.values())


@pytest.mark.parametrize(
    "text", ["64MiB", "1TiB", "2 GiB", "2000000", "5000kB", "1.5GB", "5K", "64XiB", "MiB", "1.x"]
)
def test_the_schema_allows_the_sizes_that_are_read(text: str) -> None:
    option = next(option for option in OPTIONS if option.name == "log.tail_cache_bytes")
    forms = json.loads(json.dumps(option.kind.schema()))["anyOf"]
    allowed = any(re.search(form["pattern"], text) for form in forms if "pattern" in form)
    try:
        option.kind.from_text(text)
    except BadValue:
        assert not allowed
    else:
        assert allowed


def test_the_reference_page_is_current() -> None:
    page = ROOT / "docs" / "reference" / "configuration.md"
    assert page.read_text() == reference(), "run `make docs`"


def test_the_reference_page_has_every_option() -> None:
    page = reference()
    for option in OPTIONS:
        assert f"`{option.key}`" in page
