"""The full kill -9 run: python -m tests.crash.soak --cycles 20 [--seed N] [--broker NAME]
[--amqp10].

Exit code 0 only for PASS.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
from pathlib import Path

from tests.crash.amqp10_stream import Amqp10Stream
from tests.crash.cycles import run_cycles
from tests.support.brokers import BROKERS


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.crash.soak", description="Kill -9 in a loop under load."
    )
    parser.add_argument("--cycles", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None, help="repeat the times of an earlier run")
    parser.add_argument("--broker", choices=sorted(BROKERS), default="penstock")
    parser.add_argument(
        "--load", type=float, default=1.5, metavar="S", help="at most this long between kills"
    )
    parser.add_argument("--amqp10", action="store_true", help="AMQP 1.0 alone")
    parser.add_argument("--data", metavar="DIR", help="where the data goes (default: the temporary folder)")
    options = parser.parse_args()
    seed = secrets.randbits(32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="penstock-soak-", dir=options.data) as folder,
        BROKERS[options.broker](Path(folder)) as broker,
    ):
        port = broker.amqp_port
        amqp10 = [Amqp10Stream("amqp10", port), Amqp10Stream("second", port, second=True)]
        streams = amqp10 if options.amqp10 else None
        report = run_cycles(
            broker, cycles=options.cycles, seed=seed, load_s=(0.1, options.load), streams=streams
        )
    print(report)
    return 0 if report.verdict.word == "PASS" and not report.sessions_lost else 1


if __name__ == "__main__":
    sys.exit(main())
