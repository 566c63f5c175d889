"""Celery with a real worker process: tasks, groups, chords' ingredients, countdown, retries, remote
control.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery, group

from tests.e2e.amqp import celery_tasks
from tests.support.brokers import ROOT
from tests.support.limits import LIMIT_S

pytestmark = [
    # Its own deprecations are none of ours.
    pytest.mark.filterwarnings("default"),
]


@pytest.fixture(scope="module")
def app(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Celery]:
    """The Celery application, connected to the broker, with a worker that runs."""
    broker = request.getfixturevalue("broker")
    if not broker.amqp_port:
        pytest.skip(f"{broker.name} does not speak amqp here")
    url = f"amqp://guest:guest@127.0.0.1:{broker.amqp_port}//"
    log = tmp_path_factory.mktemp("celery") / "worker.log"
    celery_tasks.app.conf.update(broker_url=url, task_default_queue="celery-tests")
    environment = {**os.environ, "PENSTOCK_TEST_URL": url, "PENSTOCK_TEST_QUEUE": "celery-tests"}
    words = [sys.executable, "-m", "celery", "-A", "tests.e2e.amqp.celery_tasks", "worker"]
    words += ["--pool=solo", "--loglevel=INFO", "-n", "tests@localhost"]
    with log.open("wb") as out:
        worker = subprocess.Popen(words, cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT)
    try:
        _wait_until_ready(worker, log)
        yield celery_tasks.app
    finally:
        worker.terminate()
        try:
            worker.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()
        celery_tasks.app.close()


def _wait_until_ready(worker: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + LIMIT_S
    while " ready." not in log.read_text():
        assert worker.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def test_a_task_returns_its_result(app: Celery) -> None:
    assert celery_tasks.add.delay(2, 3).get(timeout=LIMIT_S) == 5


def test_a_group_of_tasks(app: Celery) -> None:
    results = group(celery_tasks.add.s(i, i) for i in range(50))().get(timeout=LIMIT_S)
    assert results == [2 * i for i in range(50)]


def test_a_countdown_is_kept(app: Celery) -> None:
    asked = time.time()
    ran = celery_tasks.now.apply_async(countdown=1).get(timeout=LIMIT_S)
    assert 1.0 <= ran - asked < LIMIT_S


def test_retries(app: Celery) -> None:
    assert celery_tasks.fails_twice.delay().get(timeout=LIMIT_S) == 2


def test_a_failure_is_reported(app: Celery) -> None:
    with pytest.raises(ValueError, match="as asked"):
        celery_tasks.broken.delay().get(timeout=LIMIT_S)


def test_remote_control(app: Celery) -> None:
    """Commands go through a fanout exchange, answers through one of the caller's."""
    assert app.control.ping(timeout=LIMIT_S, limit=1) == [{"tests@localhost": {"ok": "pong"}}]
    active = app.control.inspect(timeout=LIMIT_S, destination=["tests@localhost"], limit=1).active_queues()
    assert [queue["name"] for queue in active["tests@localhost"]] == ["celery-tests"]
