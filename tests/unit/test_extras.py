"""The packages that errors tell to install are those of pyproject.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from penstock.extras import PACKAGES, install

PYPROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())


@pytest.mark.parametrize("extra", PACKAGES)
def test_an_extra_has_the_packages_that_errors_name(extra: str) -> None:
    assert list(PACKAGES[extra]) == PYPROJECT["project"]["optional-dependencies"][extra]


def test_the_command_quotes_what_a_shell_would_take() -> None:
    assert install("kafka") == "pip install 'confluent-kafka>=2.16'"
