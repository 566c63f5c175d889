"""The options of each layer, made from the configuration; no layer imports it."""

from __future__ import annotations

import os
import socket
from dataclasses import fields as option_fields
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.config import Config
from penstock.log_core.log import Log
from penstock.log_core.options import LogOptions
from penstock.memory import available_bytes
from penstock.protocols.http import serve as http
from penstock.protocols.http.webhooks.options import WebhookOptions
from penstock.router.limits.limits import BACKLOG_BYTES, BACKLOG_EVICT, BACKLOG_REJECT

if TYPE_CHECKING:
    from penstock.cluster.replica import Replica
    from penstock.config.findings import Finding
    from penstock.protocols.login.code_flow import CodeFlow
    from penstock.router.authentication.oauth import OAuth

__all__ = [
    "backlog_quotas",
    "file_system_bytes",
    "gateway_name",
    "http_options",
    "layer_options",
    "log_options",
    "memory_limit",
    "memory_share",
    "oauth_verifier",
    "spare_bytes",
]


def layer_options(kind: type[Any], section: object) -> Any:
    """The options class of a layer, filled from the section of the configuration with the same keys."""
    named = [option.name for option in option_fields(kind) if "fixed" not in option.metadata]
    return kind(**{name: getattr(section, name) for name in named})


def log_options(config: Config) -> LogOptions:
    """Of the log; the bytes that must stay free are those of its file system."""
    options: LogOptions = layer_options(LogOptions, config.log)
    if config.log.min_free_bytes == "auto":
        options = replace(options, min_free_bytes=spare_bytes(file_system_bytes(Path(config.log.data_dir))))
    return options


def file_system_bytes(folder: Path) -> int:
    """Size of the file system that `folder` is in, or will be in when it is made."""
    folder = folder.absolute()
    while not folder.exists():
        folder = folder.parent
    found = os.statvfs(folder)
    return found.f_blocks * found.f_frsize


def spare_bytes(total: int) -> int:
    """The bytes that must stay free in a file system of this size, for log.min_free_bytes = "auto"."""
    return min(max(total // 20, 2 * 10**9), 50 * 10**9, total // 10)


def memory_share(value: int | float) -> int:
    """Bytes of an option that is a part of the memory there is, or a size."""
    return int(value * available_bytes()) if isinstance(value, float) else value


def memory_limit(config: Config) -> int:
    """Bytes of this process above which publishers wait."""
    return memory_share(config.server.memory_high_watermark) // config.server.workers


def backlog_quotas(config: Config) -> dict[str, int]:
    """The limits of the backlog that vhosts have unless they have their own, in bytes."""
    quotas = {
        BACKLOG_BYTES: config.log.max_backlog_bytes,
        BACKLOG_REJECT: config.log.max_backlog_bytes_reject,
        BACKLOG_EVICT: config.log.max_backlog_bytes_evict,
    }
    return {name: nbytes for name, nbytes in quotas.items() if nbytes}


def oauth_verifier(config: Config) -> OAuth | None:
    """The verifier of tokens, if any log in. Raises ConfigError: a file cannot be used."""
    oauth = config.oauth
    if not oauth.issuer:
        return None
    # Here, since they load PyJWT, and few gateways have tokens.
    from penstock.protocols.login.key_source import key_source
    from penstock.router.authentication.oauth import OAuth, OAuthOptions

    read = key_source(oauth.jwks_file, oauth.jwks_url, oauth.ca_file)
    return OAuth(layer_options(OAuthOptions, oauth), read)


def gateway_name(config: Config, replica: Replica | None) -> str:
    """The name of this gateway, in the API, in metrics and in headers."""
    return config.server.name or (socket.gethostname() if replica is None else config.cluster.name)


def http_options(
    config: Config, log: Log, replica: Replica | None, telemetry: http.Telemetry | None = None
) -> http.HttpOptions:
    """Of the HTTP front end with all its listeners, pages and webhooks."""
    return http.HttpOptions(
        http=config.http.address,
        http_tls=config.http.tls_address,
        management=config.management.address,
        management_tls=config.management.tls_address,
        metrics=config.metrics.address,
        cluster=gateway_name(config, replica),
        data_dir=Path(config.log.data_dir),
        disk_free_limit=log.options.min_free_bytes,
        history_bytes=config.management.history_bytes,
        webhooks=layer_options(WebhookOptions, config.webhooks),
        replication=replica,
        code_flow=_code_flow(config),
        telemetry=telemetry,
        settings_findings=partial(_settings_findings, config),
    )


def _settings_findings(config: Config) -> list[Finding]:
    """Find what is unsafe in the configuration, when somebody asks."""
    from penstock.config.findings import unsafe_settings

    return list(unsafe_settings(config))


def _code_flow(config: Config) -> CodeFlow | None:
    """How pages log in at the issuer of tokens, if they do. Raises ConfigError: a file cannot be used."""
    if not config.oauth.client_id:
        return None
    from penstock.protocols.login.code_flow import CodeFlow, CodeFlowOptions

    return CodeFlow(layer_options(CodeFlowOptions, config.oauth))
