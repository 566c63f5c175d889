"""One workload against a broker that runs already: for profiling.

python -m bench.run mqtt_qos0_100B_1_to_1 --port 1883 --pid 4711 [--seconds 5]
python -m bench.run --list
"""

from __future__ import annotations

import argparse
import dataclasses
import json

from bench.load import run
from bench.workloads import WORKLOADS


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__.partition("\n")[0])
    parser.add_argument("workload", nargs="?", help="a name from --list, or an unambiguous part of one")
    parser.add_argument("--list", action="store_true", help="print the names of the workloads")
    parser.add_argument("--port", type=int, help="the broker's port on 127.0.0.1")
    parser.add_argument("--pid", type=int, help="the broker's process id, to account for its CPU")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of the measured window")
    parser.add_argument("--warm", type=float, default=1.5, help="seconds of load before the window")
    for option in ("size", "publishers", "consumers", "window", "prefetch", "queues"):
        parser.add_argument(f"--{option}", type=int, help=f"instead of the workload's {option}")
    parser.add_argument("--vhost", default="/", help="AMQP: the vhost; default: /")
    options = parser.parse_args()
    if options.list:
        print("\n".join(workload.name for workload in WORKLOADS))
        return
    found = [w for w in WORKLOADS if w.name == options.workload]
    found = found or [w for w in WORKLOADS if options.workload and options.workload in w.name]
    if len(found) != 1 or options.port is None:
        parser.error("give the name of one workload (see --list) and --port")
    changes = {
        name: getattr(options, name)
        for name in ("size", "publishers", "consumers", "window", "prefetch", "queues")
        if getattr(options, name) is not None
    }
    load = dataclasses.replace(found[0].load, **changes, vhost=options.vhost)
    result = run(load, options.port, broker_pid=options.pid, seconds=options.seconds, warm_s=options.warm)
    print(json.dumps({"workload": found[0].name, **dataclasses.asdict(result)}))


if __name__ == "__main__":
    main()
