# cython: auto_pickle=False, nonecheck=True
"""Keeping retained messages: a client that publishes very many has no other Python function run for each."""

from libc.stdint cimport int64_t

from penstock.log_core.batch._batch cimport ENC_MQTT5, F_EXACTLY_ONCE, F_PERSISTENT
from penstock.log_core.wal._writer cimport Writer
from penstock.router.messages._retained cimport RetainedLevels


cpdef unsigned long long store_retained(vhost, bytes topic, bytes block, bytes payload, int qos,
                                        long long ttl_ms) except? 0:
    cdef Writer log = vhost.broker.log
    cdef RetainedLevels kept = vhost.retained
    cdef int64_t now_ms = log.appender.now()
    cdef int flags = (F_PERSISTENT if qos else 0) | (F_EXACTLY_ONCE if qos == 2 else 0)
    return kept.keep(topic, ENC_MQTT5, block, payload, flags, 0, now_ms, now_ms + ttl_ms if ttl_ms else 0)
