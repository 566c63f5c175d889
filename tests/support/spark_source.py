"""Messages in a gateway, and how Spark reads them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pika
from paho.mqtt import publish as mqtt
from paho.mqtt.properties import Properties

from penstock.spark.logs.log_view import LogView
from tests.support.brokers import Gateway

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def publish(gateway: Gateway, first: int, count: int) -> list[str]:
    """AMQP and MQTT messages by turns; the payloads."""
    payloads = [f"m{index}" for index in range(first, first + count)]
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port))
    channel = connection.channel()
    channel.confirm_delivery()
    for payload in payloads[::2]:
        properties = pika.BasicProperties(delivery_mode=2, message_id=payload, headers={"n": 1, "s": "x"})
        channel.basic_publish("amq.topic", "plant.1.amqp", payload, properties)
    connection.close()
    user_properties = Properties(mqtt.paho.PacketTypes.PUBLISH)
    user_properties.UserProperty = [("k", "v")]
    message = {"topic": "plant/1/mqtt", "qos": 1, "properties": user_properties}
    mqtt.multiple(
        [{**message, "payload": payload} for payload in payloads[1::2]],
        hostname="127.0.0.1",
        port=gateway.mqtt_port,
        protocol=mqtt.paho.MQTTv5,
    )
    return payloads


def wait_for_end(gateway: Gateway, at: int) -> int:
    """Wait until more than `at` is durable, and everything written is."""
    view = LogView(gateway.data_dir)
    deadline = time.monotonic() + 300
    while True:
        view.refresh()
        end = view.end()
        if at < end == view.end(written=True):
            return end
        assert time.monotonic() < deadline, "the log did not say that it is durable"
        time.sleep(0.05)


def read(spark: SparkSession, gateway: Gateway, **options: str) -> DataFrame:
    return spark.read.format("penstock").options(**options).load(str(gateway.data_dir))


def payloads(frame: DataFrame) -> list[str]:
    return [bytes(row["payload"]).decode() for row in frame.select("payload").collect()]
