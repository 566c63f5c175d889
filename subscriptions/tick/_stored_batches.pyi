"""Batches taken whole. The module text is in _batches.pyx."""

from penstock.subscriptions.cursor._cursor import Cursor

class BatchConsumer:
    """A consumer that can hand on a batch as it is stored; front ends derive theirs in C."""

    def deliver_batch(self, cursor: Cursor) -> int:
        """Take and encode the next batch, whole; how many messages that are, all of them the consumer's.

        0: there is none that can be taken so, or no credit for all of it: the queue takes as always.
        Less than 0: so many are the rest of a batch. The next one is behind them, so the queue takes no more
        before it asks again.
        """
