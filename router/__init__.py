"""The router: vhosts, exchanges, bindings, routes and permissions. It decides where a message goes."""
