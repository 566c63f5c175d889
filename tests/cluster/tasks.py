"""The task module of the Celery worker that lives through takeovers: each task is noted in a file.

PENSTOCK_TEST_URL names the brokers, PENSTOCK_TEST_FILE the file.
"""

from __future__ import annotations

import os
from pathlib import Path

from celery import Celery

app = Celery("takeovers", broker=os.environ.get("PENSTOCK_TEST_URL", "memory://"))
app.conf.update(
    task_default_queue="takeovers",
    task_default_queue_type="classic",
    task_acks_late=True,
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options={"confirm_publish": True},
    worker_hijack_root_logger=False,
)


@app.task
def note(number: int) -> None:
    """Write the number down."""
    with Path(os.environ["PENSTOCK_TEST_FILE"]).open("a") as file:
        file.write(f"{number}\n")
