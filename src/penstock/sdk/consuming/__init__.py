"""Receiving. Read `consumer`; `receiving` and `settling` are its methods that users call most."""
