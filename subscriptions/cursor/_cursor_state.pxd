# Where a queue stands in its feeds: the fields of a cursor. The words are in _cursor.pyi.

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from penstock.log_core.feeds._feed cimport Feed
from penstock.subscriptions.cursor._memberships cimport Member, Members, TagSets
from penstock.subscriptions.cursor._rules cimport CursorRules
from penstock.subscriptions.cursor._ranges cimport Runs
from penstock.subscriptions.cursor._take_result cimport TakeResult
from penstock.subscriptions.cursor._window cimport Window


cdef class CursorState(TakeResult):
    # Only what an idle queue needs too: there are very many. The rest is allocated when it is first needed.
    cdef public object queue                # its queue: has wake() and mark_dirty()
    cdef public list dirty_queues           # their states are to be put; None: the queue's `mark_dirty` is called
    cdef object _log
    cdef object _feeds                      # of the only membership; or a tuple, one per membership
    cdef CursorRules _rules                 # None: it has none
    cdef TagSets _sets                      # None: it met none
    cdef Window _window
    cdef Members _members
    cdef Runs* _runs                        # NULL: nothing above the frontier is known
    cdef dict _notes                        # bytes by position, of what is not done; None: there are none
    cdef readonly uint64_t frontier         # the highest position looked at
    cdef readonly Py_ssize_t outstanding    # taken and neither settled nor given back
    cdef readonly uint64_t settled, requeued
    cdef readonly uint64_t expired          # records dropped because their time was over
    cdef readonly uint64_t lost             # records that could not be read any more
    cdef public uint64_t skip_transient_until, unclean_until, sent_until
    cdef public uint32_t wake_below         # > 0: the queue is woken once fewer are out
    cdef public uint32_t place              # of its queue in the registry, from 1 on; 0: it is in none
    cdef uint64_t _seen                     # what `has_moved` found last; 0: it was never asked
    cdef readonly bint dirty                # state() changed since it was last persisted
    cdef public bint scheduled              # its queue is on the tick's ready list
    cdef public bint is_kept                # its state is persisted: the queue is told when it becomes dirty
    cdef public uint8_t awaited             # all was handed out, and a consumer with credit waits for more
    cdef uint8_t _gathers                   # what is ready stands in the window, to be sorted or counted

    cpdef uint64_t ready_count(self) except? 0xFFFFFFFFFFFFFFFF
    cpdef uint64_t low(self) noexcept
    cpdef bint is_counted(self) noexcept
    cpdef void touch(self) noexcept

    cdef bint has_moved(self, uint64_t handed_out) noexcept

    cdef Member* _add(self, Feed feed, uint32_t tag, uint64_t index) except NULL
    cdef void _close(self, Member* member, uint64_t to_pos, uint64_t to) noexcept
    cdef uint64_t _undone(self) noexcept
    cdef uint64_t _floor(self) noexcept
    cdef void _mark_dirty(self) noexcept
    cpdef bytes note_of(self, uint64_t pos)
    cdef void _forget(self, uint64_t pos) noexcept
