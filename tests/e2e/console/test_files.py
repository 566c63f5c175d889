"""The files of the console: served without a login, small, strict, and of fitting types."""

from __future__ import annotations

import re
import subprocess

import httpx
import pytest

from tests.support.brokers import ROOT, Gateway
from tests.support.limits import LIMIT_S

pytestmark = pytest.mark.penstock_only("RabbitMQ has a page of its own")


def test_the_files_need_no_login_and_are_kept_by_the_browser(gateway: Gateway) -> None:
    base = f"http://127.0.0.1:{gateway.ports['management']}"
    with httpx.Client(base_url=base, timeout=LIMIT_S) as http:
        index = http.get("/")
        assert index.status_code == 200 and index.headers["content-type"].startswith("text/html")
        names = sorted(set(re.findall(r'(?:href|src)="(console/[^"]+)"', index.text)))
        assert len(names) > 5
        first = [index, *(http.get(f"/{name}") for name in names)]
        for answer in first:
            assert answer.status_code == 200
            policy = dict(
                part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";")
            )
            assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
            assert policy["script-src"] == policy["connect-src"] == "'self'"
            assert policy["require-trusted-types-for"] == "'script'"
            assert "unsafe" not in str(policy)
            assert answer.headers["x-content-type-options"] == "nosniff"
            again = http.get(answer.url, headers={"if-none-match": answer.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
        assert sum(int(answer.headers["content-length"]) for answer in first) < 100_000
        plain = http.get("/console/app.js", headers={"accept-encoding": "identity"})
        assert (
            "content-encoding" not in plain.headers and plain.content == http.get("/console/app.js").content
        )
        assert http.head("/").status_code == 200
        for path in (
            "/console/vendor/SHA256SUMS",
            "/console/files.py",
            "/console/..%2Ffiles.py",
            "/console/",
        ):
            assert http.get(path).status_code == 404, path
        assert http.post("/").status_code in (401, 405)


def test_the_types_that_the_modules_say_fit() -> None:
    node = ROOT / "tests/e2e/node"
    said = subprocess.run(
        [node / "node_modules/.bin/tsc", "--pretty", "false", "--project", node],
        capture_output=True,
        text=True,
    )
    # The files of others are read for what they export, and are checked, too.
    wrong = [line for line in said.stdout.splitlines() if "/www/" in line and "/www/vendor/" not in line]
    assert wrong == [] and "error TS18003" not in said.stdout, said.stdout[:2000]
