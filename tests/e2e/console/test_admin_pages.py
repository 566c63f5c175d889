"""Pages for administrators: limits, tokens, definitions, certificates, feature flags."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.brokers import Gateway
from tests.support.browser import obstacles, watched_page
from tests.support.certificates import Authority
from tests.support.console import HOSTILE, leave, sign_in
from tests.support.limits import LIMIT_S
from tests.support.management import SETTINGS, Api

pytestmark = pytest.mark.penstock_only("RabbitMQ has a page of its own")


def _noted(api: Api, action: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [one for one in api.get("audit") if one["action"] == action]
    return found


def test_limits_are_set_changed_and_cleared(page: Page, api: Api, unique: str) -> None:
    assert api.status("PUT", f"vhosts/{unique}") == 201
    sign_in(page, at=f"#/limits?vhost={unique}")
    page.get_by_role("button", name="Limit a virtual host").click()
    dialog = page.get_by_role("dialog")
    dialog.locator("select[name=limit]").select_option("max-queues")
    dialog.get_by_label("At most").fill("7")
    dialog.get_by_text("As a command").click()
    expect(dialog.locator("pre").nth(1)).to_contain_text(f"vhosts limit --url=http://127.0.0.1:{api.port}")
    expect(dialog.locator("pre").nth(1)).to_contain_text(f"{unique} max-queues 7")
    dialog.get_by_role("button", name="Limit a virtual host").click()
    row = page.get_by_role("region", name="Limits").get_by_role("row").filter(has_text=unique)
    expect(row).to_contain_text("max-queues: 7")
    assert api.get(f"vhost-limits/{unique}") == [{"vhost": unique, "value": {"max-queues": 7}}]
    row.get_by_role("button", name="Change").click()
    page.get_by_role("dialog").get_by_label("At most").fill("9")
    page.get_by_role("dialog").get_by_role("button", name="Change").click()
    expect(row).to_contain_text("max-queues: 9")
    row.get_by_role("button", name="Clear").click()
    page.get_by_role("dialog").get_by_role("button", name="Clear").click()
    expect(row).to_have_count(0)
    assert api.get(f"vhost-limits/{unique}") == []
    assert len(_noted(api, "vhost-limit.set")) >= 2 and _noted(api, "vhost-limit.clear")
    page.goto("/#/limits/users")
    page.get_by_role("button", name="Limit a user").click()
    dialog.get_by_label("User").fill("nobody")
    dialog.get_by_label("At most").fill("3")
    assert obstacles(page) == []
    leave(page)
    assert api.status("DELETE", f"vhosts/{unique}") == 204


def test_a_token_is_shown_once_and_logs_in_until_it_is_revoked(
    gateway: Gateway, page: Page, api: Api, unique: str
) -> None:
    name = f"{HOSTILE}{unique}"
    sign_in(page, at="#/tokens")
    page.get_by_role("button", name="Make a token").click()
    page.get_by_role("dialog").get_by_label("Name").fill(name)
    page.get_by_role("dialog").get_by_role("button", name="Make a token").click()
    text = page.get_by_label("Token", exact=True).inner_text()
    assert text.startswith("pst_")
    row = page.get_by_role("region", name="Tokens").get_by_role("row").filter(has_text=unique)
    expect(row).to_contain_text(name)
    assert page.locator("main img").count() == 0
    whoami = f"http://127.0.0.1:{api.port}/api/whoami"
    bearer = {"authorization": f"Bearer {text}"}
    assert httpx.get(whoami, headers=bearer, timeout=LIMIT_S).json()["name"] == "guest"
    page.get_by_role("button", name="Hide").click()
    stored = page.evaluate("JSON.stringify([localStorage, sessionStorage, location.href])")
    assert text not in page.content() and text not in stored
    page.reload()
    expect(row).to_contain_text(name)
    assert text not in page.content()
    row.get_by_role("button", name="Revoke").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(row).to_have_count(0)
    assert httpx.get(whoami, headers=bearer, timeout=LIMIT_S).status_code == 401
    assert _noted(api, "token.issue") and _noted(api, "token.revoke")
    assert text not in json.dumps(api.get("audit"))
    leave(page)


def test_an_administrator_makes_tokens_of_others(page: Page, api: Api, unique: str) -> None:
    assert api.status("PUT", f"users/{unique}", {"password": "p", "tags": "management"}) == 201
    sign_in(page, at="#/tokens")
    page.get_by_label("User", exact=True).fill(unique)
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("heading", name=f"Tokens of {unique}")).to_be_visible()
    page.get_by_role("button", name="Make a token").click()
    page.get_by_role("dialog").get_by_label("Name").fill("ci")
    page.get_by_role("dialog").get_by_role("button", name="Make a token").click()
    text = page.get_by_label("Token", exact=True).inner_text()
    whoami = f"http://127.0.0.1:{api.port}/api/whoami"
    assert (
        httpx.get(whoami, headers={"authorization": f"Bearer {text}"}, timeout=LIMIT_S).json()["name"]
        == unique
    )
    leave(page)
    assert api.status("DELETE", f"users/{unique}") == 204


def test_definitions_are_looked_at_before_they_are_imported(
    page: Page, api: Api, unique: str, tmp_path: Path
) -> None:
    assert api.status("PUT", f"queues/%2F/{unique}", {"durable": True}) == 201
    sign_in(page, at="#/definitions")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download definitions").click()
    assert download.value.suggested_filename == "definitions.json"
    file = tmp_path / "definitions.json"
    download.value.save_as(file)
    whole = json.loads(file.read_text())
    (queue,) = [one for one in whole["queues"] if one["name"] == unique]
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("button", name="Show what would change").click()
    expect(page.get_by_text("Nothing: all of it is here already.")).to_be_visible()
    expect(page.get_by_role("button", name="Import definitions")).to_have_count(0)
    # Something that cannot change: it would be refused, so nothing is offered.
    other = {**queue, "arguments": {"x-max-length": 5}}
    file.write_text(json.dumps({"queues": [other]}))
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("button", name="Show what would change").click()
    row = page.get_by_role("region", name="Changes").get_by_role("row").filter(has_text=unique)
    expect(row).to_contain_text("the import would be refused")
    expect(row).to_contain_text("arguments")
    expect(page.get_by_role("button", name="Import definitions")).to_have_count(0)
    name = f"{HOSTILE}{unique}"
    file.write_text(json.dumps({"queues": [{**queue, "name": name}]}))
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("button", name="Show what would change").click()
    expect(page.get_by_role("region", name="Changes").get_by_role("row").nth(1)).to_contain_text(
        "would be made"
    )
    assert page.locator("main img").count() == 0 and obstacles(page) == []
    assert len(api.get("queues/%2F")) == 1  # it was only looked at
    page.get_by_role("button", name="Import definitions").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("As a command").click()
    expect(dialog.locator("pre").nth(1)).to_contain_text("penstock definitions import")
    dialog.get_by_role("button", name="Import definitions").click()
    expect(page.get_by_text("definitions.json was imported.")).to_be_visible()
    assert {one["name"] for one in api.get("queues/%2F")} == {unique, name}
    assert _noted(api, "definitions.import")
    file.write_text("{")
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("button", name="Show what would change").click()
    expect(page.get_by_role("alert")).to_contain_text("This is not JSON")
    leave(page)
    for queue_name in (unique, name):
        assert api.status("DELETE", f"queues/%2F/{quote(queue_name, safe='')}") == 204


def test_definitions_of_one_vhost(page: Page, api: Api, unique: str, tmp_path: Path) -> None:
    assert api.status("PUT", f"vhosts/{unique}") == 201
    file = tmp_path / "part.json"
    file.write_text(
        json.dumps({"queues": [{"name": "q", "durable": True, "auto_delete": False, "arguments": {}}]})
    )
    sign_in(page, at="#/definitions")
    page.get_by_label("File").set_input_files(file)
    page.get_by_label("Into").select_option(unique)
    page.get_by_role("button", name="Show what would change").click()
    page.get_by_role("button", name="Import definitions").click()
    page.get_by_role("dialog").get_by_role("button", name="Import definitions").click()
    expect(page.get_by_text("part.json was imported.")).to_be_visible()
    assert [one["name"] for one in api.get(f"queues/{unique}")] == ["q"]
    page.get_by_label("Contents").select_option(unique)
    with page.expect_download() as download:
        page.get_by_role("link", name="Download definitions").click()
    download.value.save_as(file)
    assert [one["name"] for one in json.loads(file.read_text())["queues"]] == ["q"]
    leave(page)
    assert api.status("DELETE", f"vhosts/{unique}") == 204


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_certificates_are_shown_and_read_again(browser: Browser, tmp_path: Path, scheme: str) -> None:
    """One that ends soon is warned of; a file that is no good is told, and the old one holds."""
    authority = Authority(tmp_path / "ca")
    pair = authority.server("server", "one.example.org")
    settings = {
        **SETTINGS,
        "tls.cert_file": str(pair.cert),
        "tls.key_file": str(pair.key),
        "amqp.tls_listen": "127.0.0.1:0",
    }
    with Gateway(tmp_path / "gateway", settings=settings) as gateway, closing(Api(gateway)) as api:
        base = f"http://127.0.0.1:{gateway.ports['management']}"
        with watched_page(browser, base, scheme=scheme, refusals=True) as page:
            sign_in(page, at="#/certificates")
            row = page.get_by_role("region", name="Certificates").get_by_role("row").nth(1)
            expect(row).to_contain_text("CN=one.example.org")
            expect(page.get_by_text("CN=one.example.org ends in")).to_be_visible()
            expect(page.get_by_role("region", name="Listeners with TLS")).to_contain_text("amqp/ssl")
            assert obstacles(page) == []
            other = authority.server("other", "two.example.org")
            pair.cert.write_text("no certificate")
            page.get_by_role("button", name="Reload").click()
            page.get_by_role("dialog").get_by_role("button", name="Reload").click()
            expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("holds no certificate")
            page.keyboard.press("Escape")
            pair.key.write_bytes(other.key.read_bytes())
            pair.cert.write_bytes(other.cert.read_bytes())
            page.get_by_role("button", name="Reload").click()
            page.get_by_role("dialog").get_by_role("button", name="Reload").click()
            expect(row).to_contain_text("CN=two.example.org")
            assert _noted(api, "certificates.reload")
            leave(page)


def test_feature_flags(page: Page, api: Api) -> None:
    sign_in(page, at="#/feature-flags")
    rows = page.get_by_role("region", name="Feature flags").get_by_role("row")
    expect(rows).to_have_count(len(api.get("feature-flags")) + 1)
    leave(page)
