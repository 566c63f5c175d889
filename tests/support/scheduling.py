"""The tests of a module run in one process of pytest-xdist, and the longest modules run first.

A plug-in of pytest, named by `tests/conftest.py`; it acts where the option is `--dist loadfile`. The tests of
a module share brokers, gateways, browsers and JVMs, which each further process would start again. Folders of
`TOGETHER` share them over several modules; a folder that would keep one process busy to the end is divided.
A long module that begins last would leave the other cores idle.
"""

from __future__ import annotations

import signal
from typing import Any, Final
from zlib import crc32

import pytest
from xdist.scheduler.loadscope import LoadScopeScheduling

__all__ = ["LONG", "TOGETHER"]

TOGETHER: Final = {"tests/e2e/console/": 2, "tests/e2e/rabbitmq/": 1}
"""Folders with a costly fixture of the scope `package`, and how many processes share their modules."""

LONG: Final = (
    "tests/e2e/spark/test_spark.py",
    "tests/cluster/test_cluster.py",
    "tests/e2e/console/test_controls.py",
    "tests/e2e/console/",
    "tests/unit/subscriptions/test_scaling.py",
    "tests/e2e/native/test_native_go.py",  # compiles Go's library on a new machine
    "tests/e2e/rabbitmq/",
    "tests/crash/test_log_faults.py",
    "tests/crash/test_log_failpoints.py",
    "tests/crash/test_torn_files.py",
    "tests/e2e/amqp10/test_amqp10_java.py",
    "tests/e2e/http/test_openapi.py",
    "tests/e2e/management/test_management_openapi.py",
    "tests/property/test_mqtt_shares.py",
    "tests/property/test_replication_fence.py",
    "tests/property/test_amqp_codec.py",
    "tests/e2e/spark/test_spark_remote.py",
    "tests/unit/test_wheel.py",
)
"""Modules and folders that take longest, the longest one first."""


_PLACES: Final = {name: place for place, name in enumerate(LONG)}


def _unit(nodeid: str) -> tuple[str, int]:
    """The module, or its folder of `TOGETHER` and which part of it. A module of `LONG` is its own unit."""
    module = nodeid.partition("::")[0]
    if module not in _PLACES:
        for folder, parts in TOGETHER.items():
            if module.startswith(folder):
                return folder, crc32(module.encode()) % parts
    return module, 0


def _place(nodeid: str) -> int:
    """Of the test's unit in the order of the run."""
    return _PLACES.get(_unit(nodeid)[0], len(_PLACES))


_PART: Final = " "
"""Between the name and the part of a unit."""


def pytest_configure() -> None:
    """A process that is terminated ends its fixtures first, as by Ctrl-C, and so the brokers it started.

    timeout(1) sends SIGTERM to the whole group.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)


class LongestFirst(LoadScopeScheduling):
    """Hands out units in the order of the collection."""

    def _split_scope(self, nodeid: str) -> str:
        name, part = _unit(nodeid)
        return f"{name}{_PART}{part}"

    def _assign_work_unit(self, node: Any) -> None:
        # A process gets its next test before it runs one. Behind a single long test that is one of the last.
        units = self.assigned_work[node].items()
        if any(unit.partition(_PART)[0] in _PLACES for unit, done in units if not all(done.values())):
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LongestFirst | None:
    """The scheduler of `--dist loadfile`."""
    if config.getoption("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False
    return LongestFirst(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long ones first; the order of the others stays."""
    items.sort(key=lambda item: _place(item.nodeid))
