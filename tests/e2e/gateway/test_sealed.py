"""A gateway whose log is small: a queue that nobody consumes keeps its messages and no others."""

from __future__ import annotations

import time
from pathlib import Path

import pika
import pytest

from penstock.log_core.files.layout import Folder
from tests.support.brokers import Gateway
from tests.support.limits import LIMIT_S

MIB = 1 << 20


@pytest.mark.penstock_only("it is about the gateway's own files")
def test_a_stuck_queue_does_not_keep_what_others_wrote(tmp_path: Path, unique: str) -> None:
    settings = {
        "log.segment_bytes": "1MiB",
        "log.checkpoint_bytes": "1MiB",
        "log.traffic_retention_bytes": "0",
        "log.tail_cache_bytes": "1MiB",
    }
    with Gateway(tmp_path, settings=settings) as gateway:
        stuck, busy = unique + "stuck", unique + "busy"
        persistent = pika.BasicProperties(delivery_mode=2)

        def connect() -> pika.BlockingConnection:
            return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", gateway.amqp_port))

        with connect() as connection:
            channel = connection.channel()
            for name in (stuck, busy):
                channel.queue_declare(name, durable=True)
            channel.basic_consume(busy, lambda *_: None, auto_ack=True)
            sent = []
            for i in range(20):
                sent.append(str(i).encode() * 100)
                channel.basic_publish("", stuck, sent[-1], persistent)
                for _ in range(20):
                    channel.basic_publish("", busy, bytes(64 * 1024), persistent)
                connection.process_data_events(0)
            wal = gateway.data_dir / "shard-000" / "wal"

            def size() -> int:
                return sum(path.stat().st_size for path in wal.glob("*.wal"))

            assert Folder(gateway.data_dir).segment_numbers()[-1] > 10, "there is something to drop, or was"
            deadline = time.monotonic() + LIMIT_S
            before = 0
            while (left := size()) > 6 * MIB:  # the segment being written, the next, what no checkpoint has
                assert time.monotonic() < deadline, f"{left} bytes are still there"
                if left == before:  # nothing goes by itself, and no more comes than a slow disk lets go of
                    channel.basic_publish("", busy, bytes(64 * 1024), persistent)
                before = left
                connection.process_data_events(0.05)
        gateway.kill9()
        gateway.start()
        with connect() as connection:
            channel = connection.channel()
            assert [channel.basic_get(stuck, auto_ack=True)[2] for _ in sent] == sent
