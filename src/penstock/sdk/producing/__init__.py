"""Sending. Read `producer`, then `send_window` and `unconfirmed`: its batches until they are confirmed."""
