"""Native protocol front end: batches, subscriptions, pulls, transactions. See docs/reference/native.md."""
