"""The sections of the configuration, one file each or for a few that belong together."""
