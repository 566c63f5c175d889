"""Traces and metrics for a collector of OpenTelemetry, over OTLP; off by default.

`exporter` puts it together: read it first. `metrics` turns the metrics of the page /metrics into OTLP's.
`messages` makes spans of what the kernels traced of a sample of the messages. `requests` is around the
handlers of the management API. The packages of OpenTelemetry do the rest: encoding, batches, retries and
threads.

A gateway without `telemetry.endpoint` loads none of this.
"""
