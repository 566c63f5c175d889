"""The port to what is below the subscriptions: one log, whoever keeps it."""
