"""Message headers that AMQP clients use: delays, producer numbers, half messages, dead letters, firehose."""
