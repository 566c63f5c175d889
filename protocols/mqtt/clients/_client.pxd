"""The fields of a client session. Words in _client.pyi."""

from libc.stdint cimport uint32_t

from penstock.protocols.mqtt.codec._packet_ids cimport Inflight, Received

cdef uint32_t numbered(bytes vhost, bytes client_id) except 0


cdef class PacketIds:
    cdef readonly Inflight inflight
    cdef readonly Received received
    cdef public dict tokens
    cdef public long long next_token
    cdef bint is_settled(self) noexcept


cdef class ClientFields:
    cdef public object vhost, own_queue, grants, loaded, connection, will, will_at, ends_at, shares
    cdef public str client_id, username
    cdef public frozenset tags
    cdef public uint32_t number
    cdef public bint persistent, asked, promised, ended, dirty, has_id_rows, ends_late
    cdef public int most_qos
    cdef public long long expiry_s, next_tag, no_local, row_expiry_s, slot
    cdef public unsigned long long row_lsn
    cdef public PacketIds loaded_ids

    cdef PacketIds packet_ids(self)         # `ids`
    cdef int subscribed_qos(self) except -1
    cpdef belong(self, identity)
    cpdef rest(self)
