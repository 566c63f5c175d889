"""The gateway as a process: starts, stops, listeners, workers, logins, loads."""
