"""A channel's state in C, and its consumers. The words are in _channel.pyx."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from penstock.log_core.batch._batch cimport Batch
from penstock.log_core.feeds._feed cimport Feed
from penstock.protocols.amqp.codec._confirms cimport Confirms
from penstock.protocols.net.outbuffer cimport OutBuffer
from penstock.subscriptions.cursor._cursor cimport Cursor
from penstock.subscriptions.cursor._take_result cimport Item
from penstock.subscriptions.tick._consumer_path cimport DirectConsumer
from penstock.subscriptions.tick._tick cimport Sink

cdef enum:
    IDLE = 0                    # a method frame is next
    HEADER = 1                  # basic.publish was seen, its content header is next
    BODY = 2                    # body frames are next

cdef enum:                      # how a delivery ends
    ACKED = 0
    REQUEUED = 1
    DROPPED = 2
    RETURNED = 3                # with the channel, or by basic.recover


cdef struct Unacked:
    PyObject* cursor            # owned; NULL: already settled, or delivered without acknowledgement
    PyObject* consumer          # owned, or NULL for basic.get
    uint64_t seq


cdef class Channel(Confirms):
    cdef uint32_t body_max              # largest payload of a frame we may send
    cdef readonly object owner          # the session's side of the channel
    cdef public bint closing            # channel.close was sent: everything but its answer is ignored
    cdef public Sink sink               # of the output; None: `dirty` and `Consumer.output_capacity` are called instead
    cdef object dirty                   # called after output was encoded outside of a read
    cdef public object give_back        # None, or called with (cursor, seq) of a delivery that is requeued
    cdef public object tap              # None, or called with (queue, batch, index, redelivered) of each delivery

    # content under way
    cdef int phase
    cdef uint8_t bits                   # mandatory 1, immediate 2
    cdef uint16_t key_size
    cdef uint8_t key[512]
    cdef uint8_t* props
    cdef uint32_t props_size, props_capacity
    cdef uint8_t* body
    cdef uint64_t body_size, body_have, body_capacity

    # deliveries: entry of tag = unacked[tag & unacked_mask] for first_tag <= tag < next_tag
    cdef Unacked* unacked
    cdef uint64_t unacked_mask
    cdef readonly uint64_t first_tag, next_tag
    cdef readonly uint64_t outstanding      # live entries that belong to consumers
    cdef public uint64_t limit              # shared prefetch limit of the channel, 0 = none
    cdef readonly bint transactional        # acknowledgements are planned and wait for the commit
    cdef dict planned                       # tag -> how its delivery will end; None without transactions
    cdef list starved                       # consumers whose own limit was used up when they were asked
    cdef list waiting                       # consumers that the shared limit left without credit
    cdef list granted                       # consumers that have a share of it until the end of this tick
    # totals since it was opened, for whoever asks; nothing here depends on them
    cdef readonly uint64_t published, delivered, delivered_auto, redelivered, got, got_auto, acked
    cdef public uint64_t returned, dropped, get_empty

    cdef int begin_content(self, const uint8_t* key, uint16_t key_size, uint8_t bits) except -1
    cdef int keep_header(self, const uint8_t* props, uint32_t size, uint64_t body_size) except -1
    cdef int keep_body(self, const uint8_t* p, uint64_t n) except -1
    cdef void end_content(self) noexcept
    cdef uint64_t hold(self, PyObject* cursor, PyObject* consumer, uint64_t seq) except 0
    cdef uint64_t skip_tag(self) except 0
    cdef int settle(self, uint64_t tag, bint multiple, int how) except -1
    cpdef feed_starved(self)
    cdef int plan(self, uint64_t tag, bint multiple, int how) except -1
    cdef void advance(self) noexcept
    cdef Py_ssize_t free_for(self, Consumer consumer) except -1
    cdef int grant(self) except -1
    cdef int finish(self, Unacked* entry, int how) except -1
    cdef int encode(self, OutBuffer out, uint16_t method, const uint8_t* head, Py_ssize_t head_size, Cursor cursor,
                    Item* item, const uint8_t* tail, Py_ssize_t tail_size, uint64_t tag, bytes entry) except -1


cdef class Consumer(DirectConsumer):
    cdef readonly Channel channel
    cdef readonly bytes tag
    cdef readonly bint no_ack
    cdef readonly int priority
    cdef public uint64_t limit              # prefetch, 0 = none
    cdef readonly uint64_t in_flight
    cdef bint starving                      # stands in channel.starved
    cdef bint waits                         # stands in channel.waiting
    cdef Py_ssize_t share                   # of the shared limit, while it stands in channel.granted
    cdef readonly uint64_t served           # the channel's last delivery tag when it got something; 0 = never
    cdef object output_capacity                        # callable: bytes the connection may still encode
    cdef object on_cancelled
    cdef public object named                # called for its connection's name; None: nobody said
    cdef Feed offsets                       # of a stream: entry i has offset i + offset_base; None: no stream
    cdef int64_t offset_base
    cdef object wanted                      # None, or called with (batch, index): whether it gets that record
    cdef uint8_t head[260]                  # short string of the tag
    cdef Py_ssize_t head_size

    cdef Py_ssize_t _output_capacity(self) except -1
