"""MQTT sessions as the router knows them: queues with topic filters instead of bindings.

`sessions` owns them, `filters` stores the filters of each, `shared_subscriptions` owns the queues of
shared subscriptions.
"""
