"""The Python SDK against a gateway, and the test support for its users."""
