"""The packages of each extra, for errors that say how they come.

Errors name the packages themselves: on the public index the name `penstock` belongs to another project.
A leaf, as `penstock.errors` is.
"""

from __future__ import annotations

from typing import Final

__all__ = ["PACKAGES", "install"]

PACKAGES: Final = {
    "amqtt": ("amqtt>=0.12",),
    "iceberg": ("pyiceberg[sql-sqlite]>=0.12",),
    "kafka": ("confluent-kafka>=2.16",),
    "migrate": ("paho-mqtt>=2.1",),
    "otel": ("opentelemetry-exporter-otlp-proto-http>=1.30", "opentelemetry-sdk>=1.30"),
    "s3": ("s3fs>=2025.7", "universal-pathlib>=0.3"),
    "spark": ("deltalake>=1.2", "pandas>=2.2", "pyarrow>=19", "pyspark>=4.2,<5"),
}
"""As in pyproject.toml."""


def install(extra: str) -> str:
    """The command that installs the packages of an extra of penstock."""
    return " ".join(["pip install", *(f"'{one}'" for one in PACKAGES[extra])])
