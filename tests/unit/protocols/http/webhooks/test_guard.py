"""Where webhooks may go."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from penstock.protocols.http.webhooks.address_rules import Forbidden, Guard, Target

PUBLIC = Target("https", "example.org", 443, "/")


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0", "10.1.2.3", "100.64.0.1", "127.0.0.1", "127.255.255.254", "169.254.169.254", "172.16.0.1",
        "172.31.255.255", "192.0.0.1", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1",
        "198.51.100.1",
        "203.0.113.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
        "::", "::1", "::7f00:1", "fc00::1", "fd12::1", "fe80::1", "fec0::1", "ff02::1", "100::1",
        "2001::1", "2001:0:7f00:1::", "2001:db8::1", "3fff::1", "5f00::1", "64:ff9b:1::a00:1",
        # IPv4 inside IPv6: mapped, NAT64, 6to4.
        "::ffff:127.0.0.1", "::ffff:a00:1", "64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::",
        "2002:c0a8:101::1",
    ],
)  # fmt: skip
def test_addresses_that_are_not_public_are_refused(address: str) -> None:
    with pytest.raises(Forbidden, match="allow_networks"):
        Guard().permit(PUBLIC, [address])


@pytest.mark.parametrize(
    "address",
    [
        "8.8.8.8",
        "1.1.1.1",
        "172.32.0.1",
        "100.128.0.1",
        "2606:4700::1",
        "64:ff9b::808:808",
        "2002:808:808::1",
    ],
)
def test_public_addresses_are_permitted(address: str) -> None:
    Guard().permit(PUBLIC, [address])


def test_one_bad_address_refuses_a_name_that_also_has_good_ones() -> None:
    with pytest.raises(Forbidden):
        Guard().permit(PUBLIC, ["8.8.8.8", "10.0.0.1"])
    with pytest.raises(Forbidden, match="no address"):
        Guard().permit(PUBLIC, [])


def test_an_allowed_network_may_be_reached_at_any_port_and_in_whatever_form() -> None:
    guard = Guard(allow=(ip_network("127.0.0.0/8"),))
    guard.permit(Target("http", "localhost", 8080, "/"), ["127.0.0.1", "::ffff:127.0.0.1"])
    with pytest.raises(Forbidden):
        guard.permit(Target("http", "localhost", 8080, "/"), ["127.0.0.1", "::1"])


def test_a_refused_network_is_refused_though_public_and_though_allowed() -> None:
    guard = Guard(allow=(ip_network("8.0.0.0/8"),), refuse=(ip_network("8.8.0.0/16"),))
    with pytest.raises(Forbidden, match="refuse_networks"):
        guard.permit(PUBLIC, ["8.8.8.8"])
    guard.permit(PUBLIC, ["8.9.8.8"])


def test_a_url_taken_apart() -> None:
    target = Guard(allow_http=True).target("http://Example.org/a/b?c=d")
    assert (target.scheme, target.host, target.port, target.path) == ("http", "example.org", 80, "/a/b?c=d")
    assert target.authority == "example.org"
    assert Guard().target("https://h:8443").authority == "h:8443"
    assert Guard().target("https://[2606:4700::1]/").authority == "[2606:4700::1]"


@pytest.mark.parametrize(
    "url",
    [
        "", "example.org", "ftp://example.org", "file:///etc/passwd", "https://", "https:///path",
        "https://user@example.org/", "https://:pw@example.org/", "https://example.org/#x",
        "https://example.org:0/", "https://example.org:99999/", "https://example.org/a b",
        "https://example.org/\r\nx: y", "https://exämple.org/", "https://[fe80::1%25eth0]/", "https://[::1/",
        "https://127.0.0.1/", "https://[::1]/", "https://[::ffff:127.0.0.1]/", "https://10.0.0.1/",
        "https://example.org/" + "x" * 3000, "gopher://127.0.0.1:6379/_",
    ],
)  # fmt: skip
def test_urls_that_no_webhook_can_have(url: str) -> None:
    with pytest.raises(Forbidden):
        Guard().target(url)


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "0177.0.0.1", "127.1"])
def test_other_spellings_of_an_address_are_names_that_are_checked_when_they_are_resolved(host: str) -> None:
    guard = Guard()
    target = guard.target(f"https://{host}/")
    with pytest.raises(Forbidden):
        guard.permit(target, ["127.0.0.1"])  # what the system's resolver makes of them
