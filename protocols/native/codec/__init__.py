"""The native protocol on the wire: frames, record batches and their kernels, for the gateway and the SDK.

`_codec`, `_producer`, `_consumer` and `_in_flight` are the gateway's kernels; `_records`, `_inbox` and
`_gathering` are the SDK's. `frames` has the frames, `kinds` their numbers, `packing` the encoding of
requests.
"""
