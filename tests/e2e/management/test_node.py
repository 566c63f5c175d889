"""The node and its cluster in the management API: name, memory, health checks, certificates."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.brokers import Gateway
from tests.support.certificates import Authority
from tests.support.management import SETTINGS, Api

pytestmark = pytest.mark.penstock_only("this is about penstock's own API")


def test_the_name_of_the_cluster_is_changed(api: Api) -> None:
    before = api.get("cluster-name")["name"]
    assert api.status("PUT", "cluster-name", {"name": "renamed"}) == 204
    assert api.get("cluster-name") == {"name": "renamed"}
    assert api.get("overview")["cluster_name"] == "renamed"
    assert api.get("global-parameters/cluster_name")["value"] == "renamed"
    assert api.status("PUT", "cluster-name", {"name": 1}) == 400
    assert api.status("PUT", "cluster-name", {"name": ""}) == 204
    assert api.get("cluster-name") == {"name": before}


def test_feature_flags_name_what_is_so_here(api: Api) -> None:
    """Tools look for them before they use what RabbitMQ 4 brought."""
    flags = {one["name"]: one["state"] for one in api.get("feature-flags")}
    for name in ("detailed_queues_endpoint", "khepri_db", "mqtt_v5", "stream_filtering"):
        assert flags[name] == "enabled"
        assert api.status("PUT", f"feature-flags/{name}/enable") == 204
    assert api.status("PUT", "feature-flags/none/enable") == 400


def test_the_parts_of_the_memory_are_told_relative_to_each_other(api: Api) -> None:
    node = api.get("nodes")[0]["name"]
    absolute = api.get(f"nodes/{node}/memory")["memory"]
    relative = api.get(f"nodes/{node}/memory/relative")["memory"]
    assert relative.keys() == absolute.keys() - {"strategy"}
    assert relative["total"] == 100
    assert 100 <= sum(relative.values()) - 100 <= 100 + len(relative)
    assert api.status("GET", "nodes/nobody/memory/relative") == 404


def test_health_checks(api: Api, gateway: Gateway) -> None:
    for path in ("alarms", "local-alarms", "virtual-hosts", "is-in-service", "ready-to-serve-clients"):
        assert api.get(f"health/checks/{path}") == {"status": "ok"}
    node = api.get("overview")["node"]
    for path in ("", "/", f"/{node}"):
        assert api.get(f"healthchecks/node{path}") == {"status": "ok"}
    assert api.status("GET", "healthchecks/node/other@host") == 404
    assert api.get(f"health/checks/port-listener/{gateway.amqp_port}")["status"] == "ok"
    assert api.get("health/checks/protocol-listener/mqtt") == {"status": "ok", "protocol": "mqtt"}
    missing = api.send("GET", "health/checks/port-listener/9")
    assert (missing.status_code, missing.json()["reason"]) == (503, "No active listener")
    assert api.get("health/checks/certificate-expiration/1/weeks") == {"status": "ok"}, "there is no TLS here"
    assert api.status("GET", "health/checks/certificate-expiration/1/moons") == 400
    assert api.get("aliveness-test/%2F") == {"status": "ok"}


def test_certificates_that_end_soon_fail_their_check(tmp_path: Path) -> None:
    pair = Authority(tmp_path / "ca").server()
    settings = {
        **SETTINGS,
        "tls.cert_file": str(pair.cert),
        "tls.key_file": str(pair.key),
        "amqp.tls_listen": "127.0.0.1:0",
    }
    with Gateway(tmp_path / "gateway", settings=settings) as gateway:
        api = Api(gateway)
        assert api.get("health/checks/certificate-expiration/1/days") == {"status": "ok"}
        failed = api.send("GET", "health/checks/certificate-expiration/2/months")
        assert (failed.status_code, failed.json()["status"]) == (503, "failed")
        (expired,) = failed.json()["expired"]
        assert (expired["path"], expired["subject"]) == (str(pair.cert), "CN=localhost")
        api.close()
