"""The beginning and the end of a connection. Words in _lifecycle.pyi."""

from penstock.protocols.net._stream cimport Stream
from penstock.protocols.net.admitting._login_timeout cimport LoginTimes

cpdef bint is_here(str host) except -1


cdef class Life(Stream):
    cdef readonly long long id
    cdef readonly object context
    cdef readonly double opened_at
    cdef LoginTimes logins
    cdef object logger
    cdef public str peer_host
    cdef public object reason, vhost_name, nonce    # texts: a peer's words may be of a class of a codec
    cdef public object user         # or None
    cdef public int peer_port
    cdef public bint foreign, admitted, handed_over, metered
    cdef public object server_address, place, on_login, on_close
    cdef public object _pause_reasons, _linger, _rate_timer, _relay, _history
    cdef public double _stuck_since
    cdef str known_peer             # `peer`, once somebody asked

    cdef int over(self) except -1
    cdef int known_as(self, user, vhost, dict more) except -1
    cdef int ended(self) except -1
    cdef tuple counted(self)        # `message_counts`
