"""Traces and metrics of a real gateway at a collector that decodes OTLP."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pika
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from prometheus_client.parser import text_string_to_metric_families

from tests.support.brokers import ROOT, Gateway
from tests.support.data_plane import until
from tests.support.management import SETTINGS, Api
from tests.support.receiver import Receiver

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


class Collector(Receiver):
    """Takes OTLP over HTTP."""

    def spans(self, trace_id: str = "") -> dict[str, Span]:
        """The spans that came, by name; of one trace if it is given."""
        found = {}
        for got in self.got:
            if got.path == "/v1/traces":
                for resource in ExportTraceServiceRequest.FromString(got.body).resource_spans:
                    for scope in resource.scope_spans:
                        found |= {
                            span.name: span for span in scope.spans if trace_id in ("", span.trace_id.hex())
                        }
        return found

    def metrics(self) -> tuple[Resource, dict[str, Metric]]:
        """The newest metrics by name, and whose they are."""
        newest = [got for got in self.got if got.path == "/v1/metrics"][-1]
        (resource,) = ExportMetricsServiceRequest.FromString(newest.body).resource_metrics
        return resource.resource, {one.name: one for scope in resource.scope_metrics for one in scope.metrics}


def of(attributes: Any) -> dict[str, Any]:
    def value(one: KeyValue) -> Any:
        return getattr(one.value, one.value.WhichOneof("value") or "string_value")

    return {one.key: value(one) for one in attributes}


def telemetry(collector: Collector, **more: str) -> dict[str, str]:
    url = f"http://127.0.0.1:{collector.port}"
    settings = {"endpoint": url, "message_ratio": "1", "headers": "x-team=plant, authorization=Bearer t"}
    settings |= more
    return {f"telemetry.{key}": value for key, value in settings.items()} | SETTINGS


@contextmanager
def channel(gateway: Gateway) -> Iterator[Any]:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port)) as connection:
        yield connection.channel()


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


@pytest.fixture(scope="module")
def gateway(collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    settings = telemetry(collector, metrics_every_s="1")
    with Gateway(tmp_path_factory.mktemp("telemetry"), settings=settings) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def api(gateway: Gateway) -> Iterator[Api]:
    with closing(Api(gateway)) as api:
        yield api


def test_a_message_is_traced_from_its_publisher_to_its_acknowledgements(
    gateway: Gateway, collector: Collector
) -> None:
    with channel(gateway) as opened:
        opened.queue_declare("traced")
        properties = pika.BasicProperties(headers={"traceparent": TRACEPARENT})
        opened.basic_publish("", "traced", b"hello", properties)
        for acknowledge in (opened.basic_nack, opened.basic_ack):
            method, _, _ = next(opened.consume("traced"))
            acknowledge(method.delivery_tag)
    until(lambda: "ack traced" in collector.spans(TRACE))
    spans = collector.spans(TRACE)
    assert set(spans) == {"publish", "deliver traced", "requeue traced", "ack traced"}
    published = spans.pop("publish")
    assert published.parent_span_id.hex() == PARENT
    assert {one.parent_span_id for one in spans.values()} == {published.span_id}
    times = [published.end_time_unix_nano]
    for name in ("requeue traced", "deliver traced", "ack traced"):
        times += [spans[name].start_time_unix_nano, spans[name].end_time_unix_nano]
    assert times == sorted(times)
    assert spans["requeue traced"].end_time_unix_nano == spans["deliver traced"].start_time_unix_nano
    attributes = of(published.attributes)
    assert attributes.pop("penstock.connection").startswith("127.0.0.1:")
    message = attributes.pop("messaging.message.id")
    assert attributes == {
        "messaging.system": "penstock",
        "messaging.operation.name": "publish",
        "messaging.destination.name": "",
        "messaging.rabbitmq.destination.routing_key": "traced",
        "messaging.message.body.size": 5,
        "penstock.vhost": "/",
        "user.name": "guest",
        "network.protocol.name": "amqp",
    }
    delivered = of(spans["deliver traced"].attributes)
    assert delivered["messaging.message.id"] == message
    assert delivered["messaging.destination.name"] == "traced"
    assert delivered["penstock.redelivered"] is True


def test_the_log_keeps_no_events_for_it(api: Api) -> None:
    assert api.get("recording")["kinds"] == []


def test_requests_to_the_management_api_are_traced(api: Api, collector: Collector) -> None:
    trace_id = TRACE[::-1]
    headers = {"traceparent": f"00-{trace_id}-{PARENT}-01"}
    assert api.client.get("overview?secret=1", headers=headers).status_code == 200
    assert api.client.get("queues/%2F/absent", headers=headers).status_code == 404
    until(lambda: len(collector.spans(trace_id)) == 2)
    spans = collector.spans(trace_id)
    assert {one.parent_span_id.hex() for one in spans.values()} == {PARENT}
    assert {one.kind for one in spans.values()} == {Span.SPAN_KIND_SERVER}
    shown = of(spans["GET /api/overview"].attributes)
    assert shown["url.path"] == "/api/overview" and shown["user.name"] == "guest"
    assert shown["http.response.status_code"] == 200
    absent = spans["GET /api/queues/{vhost}/{name}"]
    assert of(absent.attributes)["error.type"] == "not_found"
    assert absent.status.code == Status.STATUS_CODE_UNSET, "the client's fault"


def test_metrics_are_those_of_the_page(gateway: Gateway, api: Api, collector: Collector) -> None:
    with channel(gateway) as opened:
        opened.basic_publish("amq.fanout", "", b"x" * 300)
    counted = "rabbitmq_global_messages_received_total"

    def received() -> int:
        if not any(got.path == "/v1/metrics" for got in collector.got):
            return 0
        points = collector.metrics()[1][counted].sum.data_points
        return next(one.as_int for one in points if of(one.attributes) == {"protocol": "amqp091"})

    before = received()
    with channel(gateway) as opened:
        opened.basic_publish("amq.fanout", "", b"x" * 300)
    until(lambda: received() > before)
    resource, metrics = collector.metrics()
    assert of(resource.attributes)["service.name"] == "penstock"
    assert metrics[counted].sum.is_monotonic
    cumulative = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    assert metrics[counted].sum.aggregation_temporality == cumulative
    (sizes,) = metrics["rabbitmq_message_size_bytes"].histogram.data_points
    assert list(sizes.explicit_bounds)[:2] == [100.0, 1000.0]
    assert sizes.count == sum(sizes.bucket_counts) and sizes.bucket_counts[1] >= 1 and sizes.sum >= 300
    assert not sizes.HasField("max"), "which nobody knows"
    page = api.client.get(f"http://127.0.0.1:{gateway.ports['metrics']}/metrics").text
    shown = {family.name.removesuffix("_total") for family in text_string_to_metric_families(page)}
    identity = {"rabbitmq_build_info", "rabbitmq_identity_info"}
    assert {name.removesuffix("_total") for name in metrics} == shown - identity
    assert all(got.headers["x-team"] == "plant" for got in collector.got)


def test_the_rest_is_sent_at_the_stop(tmp_path: Path) -> None:
    with Collector() as collector:
        settings = telemetry(collector, metrics_every_s="1h")
        with Gateway(tmp_path, settings=settings) as gateway, channel(gateway) as opened:
            opened.basic_publish("amq.topic", "last", b"")
        assert "publish amq.topic" in collector.spans()
        assert "penstock_turns_total" in collector.metrics()[1]


def test_a_collector_that_is_gone_delays_no_stop(tmp_path: Path) -> None:
    with Collector() as collector:
        settings = telemetry(collector, metrics_every_s="1h")
    with Gateway(tmp_path, settings=settings) as gateway, closing(Api(gateway)) as api:
        api.get("overview")
    assert "the last traces and metrics are lost" in gateway.log_text()


def test_without_the_packages_the_file_and_the_key_are_named(tmp_path: Path) -> None:
    config = tmp_path / "penstock.toml"
    config.write_text('[telemetry]\nendpoint = "http://127.0.0.1:4318"\n')
    program = (
        "import sys; sys.modules['opentelemetry'] = None; from penstock.cli import main; "
        f"sys.exit(main(['serve', '--config', {str(config)!r}, '--data', {str(tmp_path / 'data')!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={"PYTHONPATH": str(ROOT / "src")}
    )
    assert done.returncode == 2
    assert f"{config}: telemetry.endpoint: traces and metrics need the packages" in done.stderr
    assert "pip install 'opentelemetry-exporter-otlp-proto-http>=1.30'" in done.stderr
    assert not (tmp_path / "data").exists()
