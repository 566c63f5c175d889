"""Authentication: who logs in, and with which proof.

`users` owns the users and checks passwords (`passwords`, `scram`). `tokens` owns access tokens. `oauth`
checks JSON Web Tokens with the keys of `key_set`. `login_limit` bounds failed logins.
"""
