"""The manifests of Kubernetes and the Compose file: whole, of one name, with the ports of the image."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import penstock

DEPLOY = Path(__file__).parents[2] / "deploy"
PARTS: dict[tuple[str, str], dict[str, Any]] = {
    (one["kind"], one["metadata"]["name"]): one
    for one in yaml.safe_load_all((DEPLOY / "kubernetes/penstock.yaml").read_text())
}
SET = PARTS["StatefulSet", "penstock"]["spec"]
(CONTAINER,) = SET["template"]["spec"]["containers"]
LISTENERS = {
    section: int(options["listen"].rpartition(":")[2])
    for section, options in tomllib.loads((DEPLOY / "container/penstock.toml").read_text()).items()
}


def test_every_part_is_there() -> None:
    assert sorted(PARTS) == [
        ("NetworkPolicy", "penstock"),
        ("PodDisruptionBudget", "penstock"),
        ("Service", "penstock"),
        ("Service", "penstock-headless"),
        ("ServiceMonitor", "penstock"),
        ("StatefulSet", "penstock"),
    ]
    assert SET["serviceName"] == "penstock-headless"
    assert PARTS["Service", "penstock-headless"]["spec"]["clusterIP"] == "None"
    assert SET["volumeClaimTemplates"][0]["metadata"]["name"] == CONTAINER["volumeMounts"][0]["name"]


def test_the_pod_is_selected_by_its_labels() -> None:
    labels = SET["template"]["metadata"]["labels"]
    selectors = [
        SET["selector"]["matchLabels"],
        PARTS["Service", "penstock"]["spec"]["selector"],
        PARTS["Service", "penstock-headless"]["spec"]["selector"],
        PARTS["PodDisruptionBudget", "penstock"]["spec"]["selector"]["matchLabels"],
        PARTS["NetworkPolicy", "penstock"]["spec"]["podSelector"]["matchLabels"],
        PARTS["ServiceMonitor", "penstock"]["spec"]["selector"]["matchLabels"],
    ]
    for selector in selectors:
        assert selector and selector.items() <= labels.items()


def test_the_ports_are_those_of_the_image() -> None:
    assert {one["name"]: one["containerPort"] for one in CONTAINER["ports"]} == LISTENERS
    assert {one["name"]: one["port"] for one in PARTS["Service", "penstock"]["spec"]["ports"]} == LISTENERS
    allowed = PARTS["NetworkPolicy", "penstock"]["spec"]["ingress"]
    assert {port["port"] for rule in allowed for port in rule["ports"]} == LISTENERS.keys()
    compose = yaml.safe_load((DEPLOY / "container/compose.yaml").read_text())["services"]["penstock"]
    assert {int(port.rpartition(":")[2]) for port in compose["ports"]} == set(LISTENERS.values())
    build = (DEPLOY / "container/build").read_text()
    assert {int(port) for port in re.findall(r"--port ([0-9]+)", build)} == set(LISTENERS.values())


def test_the_process_has_no_rights() -> None:
    assert SET["template"]["spec"]["securityContext"]["runAsNonRoot"] is True
    context = CONTAINER["securityContext"]
    assert context["readOnlyRootFilesystem"] is True and context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("probe", ["startupProbe", "readinessProbe", "livenessProbe"])
def test_each_probe_asks_a_page_of_health(probe: str) -> None:
    asked = CONTAINER[probe]["httpGet"]
    assert asked["path"] in ("/readyz", "/healthz") and asked["port"] in LISTENERS


def test_the_versions_are_that_of_penstock() -> None:
    chart = yaml.safe_load((DEPLOY / "helm/penstock/Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == penstock.__version__
    assert CONTAINER["image"] == f"penstock:{penstock.__version__}"
    assert f"${{PENSTOCK_VERSION:-{penstock.__version__}}}" in (DEPLOY / "container/compose.yaml").read_text()


def test_the_values_that_templates_name_are_there() -> None:
    values = yaml.safe_load((DEPLOY / "helm/penstock/values.yaml").read_text())
    for template in sorted((DEPLOY / "helm/penstock/templates").iterdir()):
        for name in re.findall(r"\.Values((?:\.[A-Za-z]+)+)", template.read_text()):
            found: Any = values
            for part in name[1:].split("."):
                assert part in found, f"{template.name}: .Values{name}"
                found = found[part]
