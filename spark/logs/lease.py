"""A query's lease at the gateway: what it has not read is kept, and it is listed as a reader with its lag.

The planner renews it with each micro-batch, tasks while they read; what is not renewed ends after `lease`.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

from penstock.sdk.errors import ClientError
from penstock.spark.logs.storage import log_client
from penstock.spark.options import ReadOptions

__all__ = ["Lease"]

_LOG: Final = logging.getLogger("penstock.spark")

T = TypeVar("T")


class Lease:
    """One lease; nothing happens when the options name no gateway. May be pickled."""

    def __init__(self, options: ReadOptions) -> None:
        self._endpoint = options.endpoint
        self._name = options.cursor or f"spark-{uuid.uuid4().hex[:12]}"
        self._lease_s = options.lease_s

    def renew(self, position: int) -> None:
        """Keep the log from here on.

        A gateway that is gone or refuses is a warning: with files the query can go on, and what it then
        misses it is told.
        """
        if self._endpoint is None:
            return
        for attempt in range(2):
            try:
                log_client(self._endpoint).acquire_lease(self._name, position, self._lease_s)
            except ClientError as error:
                if attempt or not error.retryable:
                    _LOG.warning("no lease for %s: %s", self._name, error)
                    return
            else:
                return

    def renewing(self, position: int, items: Iterable[T]) -> Iterator[T]:
        """The items, with the lease renewed in time between them."""
        renewed = time.monotonic()
        for item in items:
            if self._endpoint is not None and time.monotonic() - renewed > self._lease_s / 3:
                self.renew(position)
                renewed = time.monotonic()
            yield item
