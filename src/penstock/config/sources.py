"""Reads the configuration from its sources, in rising precedence.

    defaults  <  TOML file  <  environment PENSTOCK__SECTION__KEY  <  --set SECTION.KEY=VALUE  <  flags

A mistake in any source is a `ConfigError` that names the source and the key, with the nearest valid
name as the remedy, even where a later source would have overruled it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import ParamSpec, cast

from penstock.config.kinds import BadValue, Kind
from penstock.config.options import Config
from penstock.errors import ConfigError, ConfigErrors
from penstock.lazy_dataclass import dataclass

__all__ = ["DEFAULT", "Loaded", "Option", "all_options", "load", "section_type"]

DEFAULT = "default"
_PREFIX = "PENSTOCK__"
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Option:
    """One option as it was declared."""

    section: str
    key: str
    default: object
    kind: Kind
    doc: str
    when: str
    secret: bool

    @property
    def name(self) -> str:
        """SECTION.KEY"""
        return f"{self.section}.{self.key}"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration, and for every option (by SECTION.KEY) where its value came from."""

    config: Config
    origins: Mapping[str, str]

    def value(self, option: Option) -> object:
        """The value in force of `option`."""
        return getattr(getattr(self.config, option.section), option.key)


def all_options() -> Iterator[Option]:
    """Every option, in the order of declaration."""
    for section in dataclasses.fields(Config):
        for item in dataclasses.fields(section_type(section)):
            about = item.metadata
            yield Option(
                section.name,
                item.name,
                item.default,
                about["kind"],
                about["doc"],
                about["when"],
                about["secret"],
            )


def load(
    *,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    sets: Iterable[str] = (),
    flags: Mapping[str, tuple[str, str]] | None = None,
) -> Loaded:
    """Read all sources and return the configuration in force.

    Args:
        file: A TOML file; must exist when given.
        environ: The environment; names that do not begin with PENSTOCK__ are ignored.
        sets: Texts "SECTION.KEY=VALUE", in the order given; the last one of a key counts.
        flags: SECTION.KEY to (the flag as typed, the value as text).

    Raises:
        ConfigError: a mistake in any source.
        ConfigErrors: several; all of them are in it.

    """
    reader = _Reader()
    if file is not None:
        reader.read_file(file)
    for name, text in sorted((environ or {}).items()):
        if name.upper().startswith(_PREFIX):
            reader.noting(reader.read_variable, name, text)
    for text in sets:
        reader.noting(reader.read_set, text)
    for name, (flag, text) in (flags or {}).items():
        reader.noting(reader.put_text, f"flag {flag}", name, text)
    return reader.finish()


class _Reader:
    """Collects values and their origins, source by source; later ones replace earlier ones."""

    def __init__(self) -> None:
        self.options = {option.name: option for option in all_options()}
        self.sections = {option.section for option in self.options.values()}
        self.values = {name: option.default for name, option in self.options.items()}
        self.origins = dict.fromkeys(self.options, DEFAULT)
        self.errors: list[ConfigError] = []
        """The mistakes so far, in the order of the sources."""

    def noting(self, read: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Read one thing; a mistake in it is noted, so that the others are looked at, too."""
        try:
            read(*args, **kwargs)
        except ConfigError as error:
            self.errors.append(error)

    def read_file(self, path: Path) -> None:
        import tomllib  # here: many starts have no file

        source = str(path)
        try:
            tables = tomllib.loads(path.read_bytes().decode())
        except OSError as error:
            raise ConfigError(
                f"cannot read it: {error.strerror}",
                source=source,
                remedy="give a readable file with --config",
            ) from None
        except UnicodeDecodeError:
            raise ConfigError("it is not UTF-8", source=source, remedy="save it as UTF-8") from None
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"it is not TOML: {error}", source=source) from None
        for section, table in tables.items():
            self.noting(self._read_table, source, section, table)

    def _read_table(self, source: str, section: str, table: object) -> None:
        if section not in self.sections:
            raise self._unknown_section(source, section)
        if not isinstance(table, dict):
            raise ConfigError(
                "this is a section, not a value", source=source, key=section, remedy=f"write [{section}]"
            )
        for key, value in table.items():
            self.noting(self.put_value, source, f"{section}.{key}", value)

    def read_variable(self, name: str, text: str) -> None:
        source = f"environment variable {name}"
        section, separator, key = name[len(_PREFIX) :].lower().partition("__")
        if not separator or not key:
            raise ConfigError("it names no option", source=source, remedy=f"write {_PREFIX}SECTION__KEY")
        self.put_text(source, f"{section}.{key}", text)

    def read_set(self, text: str) -> None:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or "." not in name:
            raise ConfigError(
                f"{text!r} is not SECTION.KEY=VALUE",
                source="--set",
                remedy="write it as --set log.fsync=group",
            )
        self.put_text("--set", name, value)

    def put_text(self, source: str, name: str, text: str) -> None:
        option = self._option(source, name)
        try:
            value = option.kind.from_text(text)
        except BadValue as error:
            raise self._bad(source, option, error) from None
        self._put(source, name, value)

    def put_value(self, source: str, name: str, raw: object) -> None:
        option = self._option(source, name)
        try:
            value = option.kind.from_value(raw)
        except BadValue as error:
            raise self._bad(source, option, error) from None
        self._put(source, name, value)

    def finish(self) -> Loaded:
        # A check against an option that is wrong itself would report a mistake that the user did not make.
        failed = {error.key.partition(".")[0] for error in self.errors}
        for needed, check in (
            ("tls", self._check_listeners),
            ("auth", self._check_users),
            ("oauth", self._check_oauth),
        ):
            if needed not in failed:
                self.noting(check)
        if len(self.errors) > 1:
            raise ConfigErrors(self.errors)
        if self.errors:
            raise self.errors[0]
        sections: dict[str, object] = {}
        for section in dataclasses.fields(Config):
            build = section_type(section)
            keys = [item.name for item in dataclasses.fields(build)]
            sections[section.name] = build(**{key: self.values[f"{section.name}.{key}"] for key in keys})
        return Loaded(Config(**sections), self.origins)  # type: ignore[arg-type]

    def _put(self, source: str, name: str, value: object) -> None:
        self.values[name] = value
        self.origins[name] = source

    def _option(self, source: str, name: str) -> Option:
        option = self.options.get(name)
        if option is not None:
            return option
        section = name.partition(".")[0]
        if section not in self.sections:
            raise self._unknown_section(source, section, name)
        near = _nearest(name, self.options, 0.6)
        remedy = f"did you mean {near}?" if near else "`penstock config show` lists all options"
        raise ConfigError("there is no such option", source=source, key=name, remedy=remedy)

    def _unknown_section(self, source: str, section: str, name: str = "") -> ConfigError:
        known = ", ".join(sorted(self.sections))
        near = _nearest(section, self.sections, 0.5)
        remedy = f"did you mean {near}?" if near else f"the sections are {known}"
        return ConfigError(
            f"there is no section {section!r}", source=source, key=name or section, remedy=remedy
        )

    def _bad(self, source: str, option: Option, error: BadValue) -> ConfigError:
        return ConfigError(error.message, source=source, key=option.name, remedy=error.remedy)

    def _wrong(self, name: str, message: str, remedy: str) -> ConfigError:
        return ConfigError(message, source=self.origins[name], key=name, remedy=remedy)

    def _check_listeners(self) -> None:
        seen: dict[str, str] = {}
        for name in self.options:
            address = str(self.values[name])
            if not name.endswith("listen") or not address:
                continue
            if name.endswith((".tls_listen", ".wss_listen")) and not self.values["tls.cert_file"]:
                wrong = self._wrong(name, "there is no certificate", "set tls.cert_file and tls.key_file")
                self.errors.append(wrong)
            if address.endswith(":0"):
                continue
            if address in seen:
                message = f"{address} is also the address of {seen[address]}"
                self.errors.append(self._wrong(name, message, "give each its own port"))
            seen[address] = name

    def _check_users(self) -> None:
        default = self.values["auth.default_user"]
        for user in cast("tuple[object, ...]", self.values["auth.users"]):
            if default and getattr(user, "name", None) == default:
                raise self._wrong(
                    "auth.users",
                    f"the user {default!r} is also auth.default_user",
                    'set auth.default_user = "" or remove it from the list',
                )

    def _check_oauth(self) -> None:
        values = {
            name: str(self.values[f"oauth.{name}"])
            for name in (
                *("issuer", "resource_server_id", "jwks_file", "jwks_url", "ca_file"),
                *("client_id", "authorization_url", "token_url", "console_url"),
            )
        }
        if not values["issuer"]:
            for name, value in values.items():
                if value:
                    raise self._wrong(
                        f"oauth.{name}", "it has no effect without oauth.issuer", "set oauth.issuer, too"
                    )
            return
        if not values["resource_server_id"]:
            raise self._wrong(
                "oauth.resource_server_id",
                "tokens need an audience",
                "set it to the name that this gateway has at the issuer",
            )
        if bool(values["jwks_file"]) is bool(values["jwks_url"]):
            raise self._wrong(
                "oauth.jwks_file",
                "tokens are verified with keys from exactly one place",
                "set either oauth.jwks_file or oauth.jwks_url",
            )
        for name in ("jwks_url", "authorization_url", "token_url"):
            url = values[name]
            if url and not (url.startswith("https://") and url[8:9].strip("/")):
                raise self._wrong(
                    f"oauth.{name}", f"{url!r} is no https:// URL", "keys and tokens come over TLS only"
                )
            if name != "jwks_url" and bool(url) is not bool(values["client_id"]):
                raise self._wrong(
                    f"oauth.{name}",
                    "signing in at the issuer needs three options",
                    "set client_id, authorization_url and token_url, or none of them",
                )
        url = values["console_url"]
        if url and re.fullmatch(r"https?://[^/?#@\s]+/?", url) is None:
            raise self._wrong(
                "oauth.console_url",
                f"{url!r} is no http:// or https:// URL without a path",
                "set it to the scheme and host that browsers see, such as https://console.example.org",
            )


def section_type(section: dataclasses.Field[object]) -> type:
    """The dataclass of a section: every section of `Config` has its own type as default factory."""
    factory = section.default_factory
    assert isinstance(factory, type), section.name
    return factory


def _nearest(word: str, known: Iterable[str], cutoff: float) -> str:
    """The known word that is most like `word`; empty when none is like enough."""
    from difflib import get_close_matches  # here: most configurations have no mistake

    return next(iter(get_close_matches(word, list(known), 1, cutoff)), "")
