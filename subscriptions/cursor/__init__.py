"""Cursors: the position of one queue in its feeds, and the state of each message above it.

All modules are kernels. They are one object, divided by inheritance for compile time:

    _cursor          Cursor: takes messages for delivery and settles them; read it first
    _cursor_limits   its base: length, bytes and age limits, and drops
    _cursor_state    its base: memberships, window, state record, what of the log it still needs

They stand on small parts: `_memberships` merges the feeds of a queue by position; `_window` holds the
messages in flight and those settled out of order; `_ranges` holds settled positions that have left the
window; `_take_result` is the result of one take; `_rules` are limits as numbers; `_state_record` encodes
the state record; `_backlog_count` counts what is ready; `_keys` assigns keys to consumers; `_events`
notes what becomes of messages.
"""
