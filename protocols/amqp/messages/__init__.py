"""Message headers that AMQP clients use: delays, dead letters."""
