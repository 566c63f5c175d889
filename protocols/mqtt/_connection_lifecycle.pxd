"""The life of an MQTT connection. Words in _connection_life.pyi."""

from penstock.protocols.mqtt.clients._registry cimport Registry
from penstock.protocols.mqtt.session._life cimport SessionLife
from penstock.protocols.net._life cimport Life


cdef class MqttLife(Life):
    cdef public SessionLife session
    cdef public Registry _clients
    cdef public object _options, _login, _amqtt, _amqtt_client
    cdef public bint _is_open, _backpressure

    cpdef anonymous(self, allowed)
    cdef int let_in(self, identity) except -1
    cdef int add(self, counts) except -1
