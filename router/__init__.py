"""Where a message goes: vhosts, exchanges, bindings, topic tries, routes, who may."""
