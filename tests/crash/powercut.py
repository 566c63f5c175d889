"""The full power cut run: python -m tests.crash.powercut --cycles 50 [--seed N]. Needs root.

Each cycle: load, the gateway is stopped, its file system shut down without a flush, the process killed, the
file system mounted again, the gateway started. Exit code 0 only for PASS.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
from pathlib import Path

from tests.crash.cycles import Report, run_cycles
from tests.support.faults import LoopDisk, PoweredGateway

SETTINGS = {"log.segment_bytes": "4MiB", "log.checkpoint_bytes": "2MiB", "log.min_free_bytes": "16MiB"}
DISK_MIB = 192
"""So small that what was consumed has to give way to what comes, between the cuts."""


def run(folder: Path, *, cycles: int, seed: int, load_s: tuple[float, float], acked_min: int) -> Report:
    """Cut the power of a gateway `cycles` times. Raises OSError: there can be no such file system here."""
    with (
        LoopDisk(folder, DISK_MIB) as disk,
        PoweredGateway(folder / "gateway", disk, settings=SETTINGS) as broker,
    ):
        return run_cycles(broker, cycles=cycles, seed=seed, load_s=load_s, acked_min=acked_min)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.crash.powercut", description="Cut the power in a loop under load."
    )
    parser.add_argument("--cycles", type=int, default=50)
    parser.add_argument("--seed", type=int, default=None, help="repeat the times of an earlier run")
    options = parser.parse_args()
    seed = secrets.randbits(32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="penstock-powercut-") as folder:
        report = run(Path(folder), cycles=options.cycles, seed=seed, load_s=(0.1, 1.0), acked_min=200)
    print(report)
    return 0 if report.verdict.word == "PASS" and not report.sessions_lost else 1


if __name__ == "__main__":
    sys.exit(main())
