"""Delivery of webhooks: one worker per webhook feeds, filters, formats, sends and records the result."""
