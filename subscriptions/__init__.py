"""Subscriptions: cursors, queues, dispatch, credit, redelivery. They decide who gets a message, and when."""
