"""A move from Mosquitto 2: its files, and the messages and sessions of its database.

`convert` puts the files together: `conf` reads mosquitto.conf, `settings` and `listeners` say what becomes of
each line, `passwords` and `acl` read the files of those names. `database` reads mosquitto.db, `plan` orders
its content into steps, and `apply` does them.
"""
