"""Bridges, shovels, federation and migrations, with real brokers on the other side."""
