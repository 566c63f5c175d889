"""Admission by address, before a byte is read (`admission`), and the time that a client has to log in."""
