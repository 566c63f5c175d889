"""The native protocol as a client: shovels between gateways that bring each message once."""
