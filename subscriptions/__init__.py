"""Who gets a message, and when: cursors, queues, dispatch, credit, redelivery. Knows no protocol."""
