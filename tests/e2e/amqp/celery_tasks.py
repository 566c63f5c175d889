"""The task module of the Celery tests; a worker is started with it as a process of its own.

PENSTOCK_TEST_URL names the broker, PENSTOCK_TEST_QUEUE the queue.
"""

from __future__ import annotations

import os
import time

from celery import Celery, Task

app = Celery("tasks", broker=os.environ.get("PENSTOCK_TEST_URL", "memory://"), backend="rpc://")
app.conf.update(
    task_default_queue=os.environ.get("PENSTOCK_TEST_QUEUE", "celery-tests"),
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
    result_expires=60,
)


@app.task
def add(x: int, y: int) -> int:
    """The sum."""
    return x + y


@app.task
def now() -> float:
    """When it ran, in seconds since the epoch."""
    return time.time()


@app.task(bind=True, max_retries=3, default_retry_delay=0.1)
def fails_twice(self: Task) -> int:
    """Fails twice, and then tells how often it was tried again."""
    if self.request.retries < 2:
        raise self.retry()
    return int(self.request.retries)


@app.task
def broken() -> None:
    """Raises."""
    raise ValueError("as asked")
