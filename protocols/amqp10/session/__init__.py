"""A connection of AMQP 1.0, sans-IO: headers, SASL, open, sessions, close. Read `session` first."""
