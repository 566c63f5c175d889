"""HTTP as the management API speaks it: logins, versions, compression, entity tags."""

from __future__ import annotations

import httpx
import pytest

from tests.support.brokers import Gateway
from tests.support.limits import LIMIT_S
from tests.support.management import Api

pytestmark = pytest.mark.penstock_only("this is about penstock's own API")


@pytest.mark.parametrize("auth", [None, ("guest", "wrong"), ("nobody", "guest")])
def test_a_login_is_needed(gateway: Gateway, auth: tuple[str, str] | None) -> None:
    answer = httpx.get(
        f"http://127.0.0.1:{gateway.ports['management']}/api/overview", auth=auth, timeout=LIMIT_S
    )
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Basic realm="RabbitMQ Management"'
    assert answer.json()["error"] == "not_authorized"


def test_a_page_learns_the_version_and_the_ways_to_log_in_before_the_login(gateway: Gateway) -> None:
    url = f"http://127.0.0.1:{gateway.ports['management']}/api"
    assert httpx.get(f"{url}/version", timeout=LIMIT_S).json() == "4.2.0"
    assert httpx.get(f"{url}/auth", timeout=LIMIT_S).json()["enable_uaa"] is False
    for path in ("auth/attempts/penstock@localhost", "version/x", "overview", "feature-flags"):
        assert httpx.get(f"{url}/{path}", timeout=LIMIT_S).status_code in (401, 404), path
    assert httpx.put(f"{url}/version", timeout=LIMIT_S).status_code in (401, 405)


@pytest.mark.parametrize("http2", [False, True])
def test_both_versions_of_http_serve_the_same(api: Api, gateway: Gateway, http2: bool) -> None:
    url = f"http://127.0.0.1:{gateway.ports['management']}/api/exchanges/%2F"
    with httpx.Client(auth=("guest", "guest"), http1=not http2, http2=http2, timeout=LIMIT_S) as client:
        answers = [client.get(url) for _ in range(3)]
    assert {answer.http_version for answer in answers} == {"HTTP/2" if http2 else "HTTP/1.1"}
    assert [e["name"] for e in answers[0].json()] == [e["name"] for e in api.get("exchanges/%2F")]


@pytest.mark.parametrize("http2", [False, True])
def test_lists_travel_compressed_and_not_at_all_to_whom_has_them(gateway: Gateway, http2: bool) -> None:
    url = f"http://127.0.0.1:{gateway.ports['management']}/api/exchanges"
    with httpx.Client(auth=("guest", "guest"), http1=not http2, http2=http2, timeout=LIMIT_S) as client:
        plain = client.get(url, headers={"accept-encoding": "identity"})
        packed = client.get(url, headers={"accept-encoding": "br;q=1, gzip;q=0.5"})
        assert "content-encoding" not in plain.headers
        assert packed.headers["content-encoding"] == "gzip"
        assert packed.json() == plain.json()
        assert packed.num_bytes_downloaded < plain.num_bytes_downloaded / 3
        tag = plain.headers["etag"]
        assert packed.headers["etag"] == tag
        for known in (tag, f'"other", {tag}', tag.removeprefix("W/"), "*"):
            again = client.get(url, headers={"if-none-match": known})
            assert (again.status_code, again.content) == (304, b"")
        assert client.get(url, headers={"if-none-match": '"other"'}).status_code == 200
        assert "content-encoding" not in client.get(url, headers={"accept-encoding": "gzip;q=0"}).headers
        changed = client.put(f"{url}/%2F/tagged", json={"type": "direct"})
        assert changed.status_code == 201
        assert client.get(url, headers={"if-none-match": tag}).status_code == 200
        client.delete(f"{url}/%2F/tagged")
