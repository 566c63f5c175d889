"""Headers that both versions of AMQP share: producer numbers (`producer`), half messages (`half`), and those
of the firehose's copies (`firehose`). In AMQP 1.0 a header is a message annotation of the same name.
"""
