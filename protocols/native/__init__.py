"""Native protocol front end: batches, subscriptions, pulls, transactions. See docs/protocols/native.md."""
