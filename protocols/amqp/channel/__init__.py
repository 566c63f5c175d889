"""One AMQP channel, sans-IO.

Read `channel` first. `methods_*` answer the methods of each class. `publish` handles publishes that the
kernel leaves to Python. `reply_order` keeps replies in order while some wait for the disk. `transaction`
is class tx, `timeouts` the consumer timeout, `retry` delayed redelivery; `stream` and `replay` are
special consumers, `direct_reply` is the requester's side of direct reply-to.
"""
