"""The state of a connection's sessions and links in C. The words are in _core.pyx."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t

from penstock.log_core.batch._batch cimport Batch
from penstock.log_core.feeds._feed cimport Feed
from penstock.protocols.amqp10.codec._frames cimport Piece
from penstock.protocols.amqp10.filters._program cimport Program
from penstock.protocols.net._stream cimport QuickReader
from penstock.protocols.net.outbuffer cimport OutBuffer
from penstock.subscriptions.cursor._cursor cimport Cursor
from penstock.subscriptions.cursor._take_result cimport Item
from penstock.subscriptions.tick._consumer_path cimport DirectConsumer
from penstock.subscriptions.tick._tick cimport Sink

cdef enum:
    HANDLES = 256                   # of a session, from 0 on

cdef enum:                          # how a delivery ends
    ACCEPTED = 0
    REJECTED = 1
    RELEASED = 2                    # it was not processed
    FAILED = 3                      # it was, in vain, and comes again
    DEFAULT = 4                     # as its link says


cdef bytes ACCEPTED_STATE           # the outcome accepted, encoded


cdef struct Unsettled:
    uint64_t number                 # of the delivery; the peer knows its last 32 bits
    PyObject* link                  # owned; NULL: already settled
    PyObject* cursor                # owned
    uint64_t seq


cdef struct Due:                    # deliveries of the client that have one outcome
    uint32_t first, last            # their numbers
    uint64_t lsn                    # it is said when that is written, or synced
    bint synced
    bint second                     # the peer settles it, after us
    uint64_t read                   # in which they came
    PyObject* state                 # owned: the outcome's bytes


cdef class ChannelCore
cdef class IncomingCore


cdef class ConnectionCore(QuickReader):
    cdef readonly OutBuffer out
    cdef public Sink sink               # of the output; None: `dirty` and `output_capacity` are called instead
    cdef public object dirty, output_capacity
    cdef public uint32_t frame_max      # of frames to the peer
    cdef public uint64_t message_max
    cdef public uint64_t gathered       # bytes of messages that are not whole, and of transactions
    cdef public uint64_t published, delivered, confirmed, acknowledged
    cdef uint64_t reads
    cdef uint64_t written_wanted, synced_wanted
    cdef ChannelCore awaiting           # the first channel that has outcomes which wait

    cdef int has_output(self) except -1
    cdef Py_ssize_t capacity(self) except -1
    cdef void await_lsn(self, uint64_t lsn, bint synced) noexcept
    cdef bint say(self, uint64_t written, uint64_t synced) except -1


cdef class ChannelCore:
    cdef readonly ConnectionCore connection
    cdef readonly uint16_t number
    cdef public bint ending             # we ended it: everything but the answer is ignored
    cdef public bint holding            # frames wait for the peer's window: nothing may pass them
    cdef public uint32_t next_incoming, next_outgoing
    cdef public int64_t window, window_most, remote_window
    cdef public object tap              # called with each delivery: queue, batch, index, redelivered; None: nobody wants to know
    cdef list cores                     # links by handle
    cdef IncomingCore newest            # the one that sent last: a lone message looks for no other; None: look in `cores`
    cdef list starved                   # receivers' links that had no credit when they were asked
    # deliveries to the peer, by their numbers: ring[i & mask] for first <= i < last
    cdef Unsettled* ring
    cdef uint64_t mask, first, last
    cdef Py_ssize_t live                # of these entries, are not settled
    cdef uint64_t next_number           # of the next delivery
    # outcomes for the peer, in the order of its deliveries
    cdef Due* due
    cdef Py_ssize_t due_count, due_capacity
    cdef bint awaits
    cdef ChannelCore next_awaiting
    cdef public list suspended      # of links that are detached: what holds their deliveries; None: nothing does
    cdef public int seconds         # receivers' links whose deliveries we settle when their outcome is on disk

    cdef uint64_t hold(self, OutgoingCore link, Cursor cursor, uint64_t seq) except? 0
    cdef int make_room(self) except -1
    cdef uint64_t find(self, uint64_t number) noexcept
    cdef Py_ssize_t settle_range(self, uint32_t first, uint32_t last, int how) except -1
    cdef Py_ssize_t settle_part(self, uint64_t low, uint64_t high, int how) except -1
    cdef int choose(self, uint64_t low, uint64_t high, list found) except -1
    cdef void drop(self, Unsettled* entry) noexcept
    cdef void advance(self) noexcept
    cdef int add_due(self, uint32_t number, bytes state, uint64_t lsn, bint synced, bint second) except -1
    cdef void await_turn(self) noexcept
    cdef bint say(self, uint64_t written, uint64_t synced) except -1
    cdef int say_one(self, uint32_t first, uint32_t last, bint second, bytes state) except -1
    cdef int took_frame(self) except -1
    cdef int put_message(self, OutgoingCore link, uint32_t number, Piece* pieces, Py_ssize_t size) except -1
    cdef int feed_starved(self) except -1


cdef class IncomingCore:
    cdef readonly ChannelCore channel
    cdef readonly uint32_t handle
    cdef public int64_t credit, most, pending
    cdef public uint32_t delivery_count
    cdef public bint gathering          # a message is not whole yet: of it,
    cdef public bytearray gathered      # the parts that came; they count in ConnectionCore.gathered, too
    cdef public uint32_t first_id       # the number
    cdef public bint second             # the peer settles its messages, after we said their outcome
    cdef public bint part_settled       # whether one of its transfers said that it is settled
    cdef public object first_state      # the state of its first transfer
    cdef public bytes key               # the key block of all messages; None: each has its own
    cdef public dict places             # key blocks of addresses that messages named, when each has its own
    cdef public bint to_topic           # nobody has to listen: what goes nowhere is accepted, too

    cdef int used(self) except -1
    cdef int drop_gathered(self) except -1
    cdef int put_credit(self) except -1


cdef class OutgoingCore(DirectConsumer):
    cdef readonly ChannelCore channel
    cdef readonly uint32_t handle
    cdef public bint settled            # deliveries are
    cdef public bint draining
    cdef public bint resuming           # deliveries of an earlier link are told of first
    cdef public int default_how         # how a delivery ends that is settled without an outcome
    cdef public bint has_default        # the peer chose that
    cdef public uint32_t series         # in front of the numbers in its tags; 0: none
    cdef public bint filtered           # each message is looked at
    cdef public Program program         # by this; None, or where it cannot tell: by `passes`
    cdef public uint32_t delivery_count
    cdef public int64_t link_credit
    cdef bint starving                  # stands in channel.starved
    cdef Feed offsets                   # of a stream: entry i has offset i + offset_base; None: no stream
    cdef int64_t offset_base

    cdef int wake_now(self) except -1
    cdef int send(self, Cursor cursor, Item* item, int64_t* now) except -1
    cdef bint lets_pass(self, Piece* pieces) except -1
