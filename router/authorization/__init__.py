"""Authorization: what a user may do.

`identity` is the caller: a user on a connection. `permissions` answers every protocol, per vhost and per
topic. `grants` are the scopes of an OAuth 2 token, used instead of stored permissions. `topic_rules` is
the port for further rules, such as an ACL file. `patterns` compiles users' regular expressions with RE2.
"""
