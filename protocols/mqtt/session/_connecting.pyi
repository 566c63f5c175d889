"""CONNECT: from a login that was right to a session. The module text is in _connecting.pyx."""

from penstock.protocols.mqtt.codec._connect import Connect

def login_of(connect: Connect) -> tuple[str | None, bytes | None]:
    """User name without vhost, and password; (None, None) for an anonymous client."""

def split_user_name(user_name: str) -> tuple[str, str]:
    """(vhost, user) of `vhost:user`, split at the last colon; the default vhost without one."""

def vhost_of(connect: Connect) -> str:
    """The name of the vhost that a client wants to use."""
