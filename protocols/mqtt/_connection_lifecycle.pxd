"""The life of an MQTT connection. Words in _connection_lifecycle.pyi."""

from penstock.protocols.mqtt.clients._registry cimport Registry
from penstock.protocols.mqtt.session._lifecycle cimport SessionLifecycle
from penstock.protocols.net._lifecycle cimport Life


cdef class MqttLifecycle(Life):
    cdef public SessionLifecycle session
    cdef public Registry _clients
    cdef public object _options, _login, _amqtt, _amqtt_client
    cdef public bint _is_open, _backpressure

    cpdef anonymous(self, allowed)
    cdef int let_in(self, identity) except -1
    cdef int add(self, counts) except -1
