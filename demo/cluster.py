"""Three brokers of Kafka and two nodes on this machine: `make cluster`. Ctrl-C ends all of it.

The brokers come from Maven Central, and are kept in build/kafka. Everything else is in a folder that is
removed at the end.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from bench.kafka import jars
from tests.support.cluster import make_nodes, start_brokers, wait_for_owner


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jars", type=Path, default=Path("build/kafka"))
    options = parser.parse_args()
    with ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="penstock-cluster-")))
        print(
            "starting three brokers of Kafka; the first time they are fetched from Maven Central", flush=True
        )
        brokers = start_brokers(ends, folder, jars(options.jars.absolute()), 3)
        nodes = make_nodes(folder, brokers, "ab")
        for node in nodes:
            ends.callback(node.close)
            node.start()
        owner = wait_for_owner(nodes)
        for name, node in zip("ab", nodes, strict=True):
            role = "owner" if node is owner else "standby"
            serving = ", ".join(map(str, node.children()))
            print(f"node {name} ({role}): amqp 127.0.0.1:{node.amqp_port}, mqtt 127.0.0.1:{node.mqtt_port}")
            print(f"    its process: {serving}, its supervisor: {node.pid}, its log: {node.log_path}")
        print("Connect to either node. Kill the owner's process and see the other one take over:")
        print(f"    kill -9 {' '.join(map(str, owner.children()))}")
        config = folder / "node.toml"
        servers = ", ".join(f'"127.0.0.1:{broker.port}"' for broker in brokers)
        config.write_text(f'[log]\nengine = "kafka"\n\n[kafka]\nbootstrap_servers = [{servers}]\n')
        print("Look at the nodes, have the other one take over, make a standby's folder anew:")
        for words in ("status", "handover", "rebuild NODE"):
            print(f"    penstock cluster {words} --config {config}", flush=True)
        try:
            while True:
                time.sleep(1)
        except KeyboardInterrupt:
            print("stopping")


if __name__ == "__main__":
    main()
