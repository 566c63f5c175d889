"""The bytes of AMQP 1.0: values, performatives, frames. It knows no state.

Read `values` first, then `_decoding` and its twin `encoding`, `performatives`, `frames`.
"""
