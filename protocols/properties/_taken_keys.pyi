"""The ordering keys of messages. Words in _taken_keys.pyx."""

from array import array

def taken_slots() -> array[int]:
    """The slots (`subscriptions.cursor._keys`) of the keys of the items of the last take."""
