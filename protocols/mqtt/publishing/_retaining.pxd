"""Keeping retained messages. Words in _retaining.pyi."""

cpdef unsigned long long store_retained(vhost, bytes topic, bytes block, bytes payload, int qos,
                                        long long ttl_ms) except? 0
