"""What every store of the log must do; see `penstock.subscriptions.log_store.port`."""
