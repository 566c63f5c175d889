"""The effect of a configuration with several workers on each worker."""

from __future__ import annotations

from dataclasses import replace

from penstock.config import load
from penstock.workers.supervisor import worker_config


def test_folders_are_each_workers_own_caches_are_divided_and_a_path_is_worker_0s() -> None:
    config = load(
        sets=[
            "server.workers=4",
            "log.data_dir=/data",
            "log.folders=/more,/most",
            "log.tail_cache_bytes=64MiB",
            "mqtt.unix_listen=/run/mqtt",
        ]
    ).config
    first, third = worker_config(config, 0), worker_config(config, 2)
    assert (first.log.data_dir, first.log.folders) == ("/data", ("/more", "/most"))
    assert (third.log.data_dir, third.log.folders) == (
        "/data/worker-002",
        ("/more/worker-002", "/most/worker-002"),
    )
    assert first.log.tail_cache_bytes == third.log.tail_cache_bytes == 16 << 20
    assert (first.mqtt.unix_listen, third.mqtt.unix_listen) == ("/run/mqtt", "")
    assert replace(third, log=config.log, mqtt=config.mqtt) == config
