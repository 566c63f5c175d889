"""Whether the packages of OpenTelemetry are installed that a configuration needs."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from penstock.errors import ConfigError
from penstock.extras import install

if TYPE_CHECKING:
    from penstock.config import Loaded

__all__ = ["check"]

_KEY: Final = "telemetry.endpoint"
_MODULES: Final = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


def check(loaded: Loaded) -> None:
    """Raises ConfigError: something is to be exported, and they are not there."""
    if loaded.config.telemetry.endpoint and not all(map(_is_there, _MODULES)):
        raise ConfigError(
            "traces and metrics need the packages of OpenTelemetry",
            source=loaded.origins[_KEY],
            key=_KEY,
            remedy=f"install them: {install('otel')}; or leave the option empty",
        )


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of a package that it is in
        return False
