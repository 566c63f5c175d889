"""The lists and objects of the management API: vhosts, users, exchanges, queues, connections."""
