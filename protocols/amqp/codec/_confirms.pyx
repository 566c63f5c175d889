"""Publisher confirms of one channel: what was published, in what order, and when it may be acknowledged.

Each publish of a confirming channel gets the next number and an entry (its LSN, and whether it needs the disk).
`confirm(written, synced)` acknowledges up to the first that is not there yet, with multiple=true: numbers are
confirmed in order, as RabbitMQ permits but does not promise. One that a queue refused is nacked in its turn.
"""

from libc.stdint cimport uint16_t, uint64_t
from libc.stdlib cimport free, malloc

from penstock.protocols.amqp.codec._frames cimport ACK, NACK, put_confirm
from penstock.protocols.net.outbuffer cimport OutBuffer

cdef extern from *:
    """
    #define REFUSAL UINT64_MAX      /* an entry: a queue refused it */
    """
    uint64_t REFUSAL


cdef class Confirms:
    def __cinit__(self, int number, OutBuffer out not None, *_):
        if number < 0 or number > 65535:
            raise ValueError("a channel number is a u16")
        self.number = <uint16_t>number
        self.out = out

    def __dealloc__(self):
        free(self.pending)

    def confirm_select(self):
        """Number publishes from now on. Idempotent."""
        self.confirming = True

    cdef int expect(self, uint64_t lsn, bint sync) except -1:
        """The next publish is confirmed when `lsn` is written, or synced."""
        cdef uint64_t seq = self.published_seq + 1, capacity, i
        cdef uint64_t* grown
        if self.pending == NULL or seq - self.confirmed_seq > self.pending_mask:
            capacity = 64 if self.pending == NULL else 2 * (self.pending_mask + 1)
            grown = <uint64_t*>malloc(capacity * sizeof(uint64_t))
            if grown == NULL:
                raise MemoryError
            for i in range(self.confirmed_seq + 1, seq):
                grown[i & (capacity - 1)] = self.pending[i & self.pending_mask]
            free(self.pending)
            self.pending = grown
            self.pending_mask = capacity - 1
        self.pending[seq & self.pending_mask] = lsn << 1 | sync
        self.published_seq = seq
        return 0

    cdef void refuse_last(self) noexcept:
        """The last publish is nacked in its turn: a queue refused it."""
        self.pending[self.published_seq & self.pending_mask] = REFUSAL

    cpdef bint confirm(self, uint64_t written, uint64_t synced) except -1:
        """Encode the ack of every publish that is there now; True when there was one."""
        cdef uint64_t seq = self.confirmed_seq, began = seq, lsn, entry
        while seq < self.published_seq:
            entry = self.pending[(seq + 1) & self.pending_mask]
            lsn = entry >> 1
            if lsn > (synced if entry & 1 else written):
                if entry != REFUSAL:
                    break
                self.acknowledge(seq)
                put_confirm(self.out, self.number, NACK, seq + 1, False)
                self.confirmed_seq = seq + 1
            seq += 1
        self.acknowledge(seq)
        return seq != began

    cdef int acknowledge(self, uint64_t seq) except -1:
        """Encode the ack of what was not confirmed yet up to `seq`."""
        if seq != self.confirmed_seq:
            put_confirm(self.out, self.number, ACK, seq, seq - self.confirmed_seq > 1)
            self.confirmed_seq = seq
        return 0

    def refuse_all(self):
        """Encode a nack for everything that is not confirmed: the log failed. True when there was something."""
        if self.confirmed_seq == self.published_seq:
            return False
        put_confirm(self.out, self.number, NACK, self.published_seq, self.published_seq - self.confirmed_seq > 1)
        self.confirmed_seq = self.published_seq
        return True

    @property
    def unconfirmed(self):
        """Publishes that were not confirmed yet."""
        return self.published_seq - self.confirmed_seq
