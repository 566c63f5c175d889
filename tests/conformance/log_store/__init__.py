"""The tests that every log store must pass; see `penstock.subscriptions.log_store.port`."""
