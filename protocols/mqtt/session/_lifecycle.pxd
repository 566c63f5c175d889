"""The life of a session's connection. Words in _lifecycle.pyi."""

from penstock.log_core.wal._writer cimport Writer
from penstock.protocols.mqtt.clients._client cimport ClientFields
from penstock.protocols.mqtt.clients._registry cimport Registry
from penstock.protocols.mqtt.codec._connect cimport Connect
from penstock.protocols.mqtt.codec._scan cimport Scanner
from penstock.protocols.mqtt.session._connecting cimport Accepted
from penstock.protocols.mqtt.session._replies cimport Replies
from penstock.router.authorization._identity cimport Identity
from penstock.router.vhost._connections cimport Index


cdef class SessionLifecycle:
    cdef public object state, will
    cdef public int version
    cdef public Py_ssize_t want
    cdef public bint bridge
    cdef public double keep_alive_s
    cdef public ClientFields client
    cdef public object _host, _options, _authentication, _undecided, _delivery, _known_words
    cdef public Registry _clients
    cdef public Connect _connect
    cdef public dict _authenticated, _connect_properties
    cdef public Replies _replies
    cdef public Scanner _scanner
    cdef public Writer _log
    cdef public tuple _rates
    cdef public bint _units, _stops_publishes, _guarded
    cdef public double _last_input
    cdef public long long _max_packet, _refused, _packets, _published
    cdef public unsigned long long _answers_max
    cdef unsigned long long awaited_written, awaited_synced
    cdef Index members

    cdef Py_ssize_t take(self, bytearray data, Py_ssize_t size, double now) except -1
    cdef Py_ssize_t take_connect(self, bytearray data, Py_ssize_t size) except -1
    cdef Py_ssize_t connected_by(self, Connect connect, bytearray data, Py_ssize_t size, Py_ssize_t stop) except -1
    cdef bint events(self, bytearray data, Py_ssize_t size, int code) except -1
    cdef int retain(self, Scanner scanner, bytes payload) except -1
    cdef int save(self) except -1
    cdef int after_scan(self) except -1
    cdef int wait_for(self) except -1
    cdef int release(self) except -1
    cdef Scanner quick_reader(self)
    cpdef logged_in(self, Identity identity)
    cdef int open(self, Connect connect, Accepted accepted, Identity identity) except -1
    cdef int is_open(self) except -1
    cpdef _end(self, reason)
    cdef int leave(self) except -1
    cdef int lose(self) except -1
    cdef int add_counts(self, counts) except -1
    cdef unsigned long long received(self) noexcept
    cdef unsigned long long delivered(self) except? 0xFFFFFFFFFFFFFFFF
