"""AMQP 0-9-1 on the wire: frames, methods, property blocks and error codes. No state but that of the
scanner.

`_codec` scans a whole read and appends publishes to the log. `_channel` has the unacknowledged
deliveries of a channel, `_confirms` its publisher confirms, `_frames` encodes deliveries. `methods` is
the table of methods and `errors` maps refusals to reply codes.
"""
