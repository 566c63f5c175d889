"""Passwords that are not in the URL."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.sdk.connection.url import parse_url
from penstock.spark.credentials import with_password, without_password
from penstock.spark.errors import SparkError, SparkOptionError
from penstock.spark.sink import WriteOptions


def test_a_url_without_a_password_takes_it_from_the_environment_or_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_PASSWORD_FILE", raising=False)
    monkeypatch.delenv("PENSTOCK_PASSWORD", raising=False)
    assert with_password("penstock://spark@gw:1") == "penstock://spark@gw:1"
    monkeypatch.setenv("PENSTOCK_PASSWORD", "p@ss:/w")
    target = parse_url(with_password("penstock://spark@[::1]:7/v"))
    assert (target.user, target.password, target.host, target.port, target.vhost) == (
        "spark",
        "p@ss:/w",
        "::1",
        7,
        "v",
    )
    assert with_password("amqp://gw/%2F") == "amqp://guest:p%40ss%3A%2Fw@gw/%2F"
    assert with_password("amqp://a:b@gw") == "amqp://a:b@gw", "what the URL says counts"
    secret = tmp_path / "secret"
    monkeypatch.setenv("PENSTOCK_PASSWORD_FILE", str(secret))
    with pytest.raises(SparkError, match="PENSTOCK_PASSWORD_FILE"):
        with_password("amqp://gw")
    secret.write_text("from the file\n")
    assert parse_url(with_password("penstock://u@gw")).password == "from the file"


def test_a_refused_url_is_shown_without_its_password() -> None:
    with pytest.raises(SparkOptionError) as caught:
        WriteOptions.parse({"url": "http://user:hidden@gw"})
    assert "hidden" not in str(caught.value)
    assert without_password("amqp://u:p@x@gw:1/v") == "amqp://gw:1/v"
