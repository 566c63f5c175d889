"""The output side of a connection, as each has it. Words in _lifecycle.pyi."""

from penstock.log_core.wal._writer cimport Writer
from penstock.protocols.mqtt.clients._client cimport ClientFields
from penstock.protocols.mqtt.clients._registry cimport Registry
from penstock.protocols.mqtt.codec._deliver cimport Deliverer, SessionFastPath
from penstock.protocols.mqtt.codec._packet_ids cimport Inflight


cdef class DeliveryLifecycle:
    cdef public object _host, _send_pubrels, _cancelled, _held, _shared_again, _retained, _replays
    cdef public dict _members
    cdef public Registry _clients
    cdef public ClientFields _client
    cdef public Writer _log
    cdef public Deliverer _deliverer
    cdef public SessionFastPath _way
    cdef public Inflight _inflight
    cdef public list released
    cdef public int _version
    cdef public bint _qos_above_0, _open, _loading, _is_filtered

    cpdef Py_ssize_t credit_at(self, int qos) except -1
    cdef int after_delivery(self) except -1
