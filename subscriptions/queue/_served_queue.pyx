# cython: auto_pickle=False, nonecheck=True
"""When a queue is served: its consumers come and go, it is woken, and it waits at its feeds.

Clients that come and go attach and detach each time, and a queue that is woken has its turn, so this part of
`Queue` is compiled. The words are in _served_queue.pyi, the states of a queue in queue.py.
"""

from penstock.log_core.feeds._feed cimport Feed
from penstock.subscriptions.cursor._cursor cimport Cursor
from penstock.subscriptions.dispatch._consumers cimport Consumers
from penstock.subscriptions.cursor._events import attached
from penstock.subscriptions.dispatch.strategies import PUMPS, Kind, Pause
from penstock.subscriptions.errors import ConsumerRefused, QueueGone

cdef object IS_EXCLUSIVE = Kind.EXCLUSIVE
cdef object IS_SINGLE = Kind.SINGLE
cdef object IS_PREFERRED = Kind.PREFERRED
cdef object IS_MORE = Pause.MORE
cdef object IS_CAUGHT_UP = Pause.CAUGHT_UP
# Kinds that give everything to a consumer that is the only one.
cdef frozenset ONE_BY_ONE = frozenset({Kind.SHARED, Kind.RANDOM, Kind.EXCLUSIVE, Kind.SINGLE, Kind.PREFERRED})
cdef dict PUMP_OF = PUMPS


# Of queues without arguments: they are never changed, so one serves all.
cdef dict NO_ARGUMENTS = {}


cdef class ServedQueue(Served):
    def __init__(self, queues not None, uint64_t qid, str name not None, str vhost not None, *, kind not None,
                 owner=None, bint auto_delete=False, arguments=None, int priority_max=0):
        cdef Cursor cursor = Cursor(queues.log)
        self._queues = queues
        self.qid = qid
        self.name = name
        self.vhost = vhost
        self.kind = kind
        self.owner = owner
        self.auto_delete = auto_delete
        self.arguments = arguments or NO_ARGUMENTS
        self.cursor = cursor
        cursor.queue = self
        cursor.dirty_queues = queues.dirty_queues
        if priority_max:
            cursor.prioritise(priority_max)
        cursor.is_kept = qid != 0

    @property
    def durable(self):
        return self.qid != 0

    @property
    def log(self):
        return self._queues.log

    @property
    def tick(self):
        return self._queues.tick

    @property
    def active(self):
        return None if self._consumers is None else self._consumers.active

    @property
    def consumer_count(self):
        return 0 if self._consumers is None else self._consumers.count

    def attach(self, consumer not None, *, bint exclusive=False):
        if self.deleted:
            raise QueueGone(f"queue {self.name!r} in vhost {self.vhost!r} was deleted")
        if exclusive and (self.kind is IS_SINGLE or self.kind is IS_PREFERRED):
            raise ConsumerRefused(
                f"queue {self.name!r} in vhost {self.vhost!r} has a single active consumer",
                remedy="do not consume exclusively",
            )
        if self._consumers is None:
            # A single active one that is there stays so; SINGLE knows no priorities.
            self._consumers = Consumers(ranked=self.kind is not IS_SINGLE)
        elif self._sole or exclusive or self.kind is IS_EXCLUSIVE:
            raise ConsumerRefused(
                f"queue {self.name!r} in vhost {self.vhost!r} "
                + ("has an exclusive consumer" if self._sole else "has other consumers"),
                remedy="cancel the other consumer first",
            )
        self._sole = exclusive or self.kind is IS_EXCLUSIVE
        self._consumers.add(consumer)
        self.cursor.touch()
        self.find_fast_path()
        attached("subscribe", self, consumer)
        self.wake()

    def detach(self, consumer, *, bint requeue=False):
        if self._consumers is None or not self._consumers.remove(consumer):
            return
        self.cursor.touch()
        self.find_fast_path()
        attached("unsubscribe", self, consumer)
        if requeue:
            self.cursor.requeue_all()
        if self._consumers.count:
            self.wake()
            return
        self._consumers = None
        self._sole = False
        self._unwatch()
        self.cursor.idle()
        self.cursor.awaited = False
        self.used()
        if self._limits is not None:
            self.wake()
        if self.auto_delete and not self.deleted:
            self._queues.unneeded(self)

    cdef int find_fast_path(self) except -1:
        """A consumer that is the only one may have a fast path."""
        cdef Consumers found = self._consumers
        alone = found.active if found is not None and found.count == 1 else None
        way = getattr(alone, "way", None)
        self.fast_path = None if way is None or self.kind not in ONE_BY_ONE else way(alone, self)
        return 0

    cdef bint serves_somebody(self) except -1:
        return (
            (self._consumers is not None and self._consumers.count > 0) or bool(self._getters)
            or self._limits is not None
        )

    def wake(self):
        if not self.cursor.scheduled and self.serves_somebody():
            self.cursor.scheduled = True
            self._queues.tick.ready(self)

    def credit_gained(self, consumer=None):
        if self._consumers is not None:
            self._consumers.rouse(consumer)
        self.wake()

    def fed(self, feed not None):
        self.waits = False
        if self._watching is not None:
            self._watching.discard(feed)
        if not self.cursor.scheduled and self.serves_somebody():
            self.cursor.scheduled = True
            self._queues.tick.ready(self)

    def pump(self):
        self.cursor.scheduled = False
        if self._loading or self.deleted:
            return
        if self._limits is None:
            self.hand_out()
        elif self._limits.before():
            self.hand_out()
            if not (self._loading or self.deleted or self.cursor.scheduled):
                self._limits.after()

    cdef int hand_out(self) except -1:
        if self._consumers is not None and self._consumers.count and not self.serve_consumers():
            return 0
        if self._getters:
            self._serve_getters()
        return 0

    cdef bint serve_consumers(self) except -1:
        """Hand out to the consumers; False: they take more in the next turn, before any getter."""
        cdef Cursor cursor = self.cursor
        options = self._queues.options
        if cursor.outstanding >= options.outstanding_max:
            cursor.wake_below = options.outstanding_max // 2 + 1
            cursor.awaited = False
            return True
        pause = PUMP_OF[self.kind](self, options.pump_messages)
        if pause is IS_MORE:
            self.wake()
        elif pause is IS_CAUGHT_UP:
            self.caught_up()
            cursor.awaited = True
        else:
            cursor.awaited = False
        return pause is not IS_MORE and not self._loading

    def caught_up(self):
        cdef Cursor cursor = self.cursor
        if cursor.more:
            self.wake()
            return False
        if self.load():
            return False
        self.watch()
        if cursor.unwritten:
            self._await_write()
        return not cursor.unwritten

    def watch(self):
        cdef Feed feed
        cdef set watching
        if self.cursor.member_count:
            watching = self._watching
            if watching is None:
                watching = self._watching = set()
            for feed in self.cursor.feeds:
                if feed not in watching:
                    watching.add(feed)
                    feed.waiters[self] = None
        self.waits = True

    def _unwatch(self):
        cdef Feed feed
        self.waits = False
        if self._watching:
            for feed in self._watching:
                feed.waiters.pop(self, None)
        self._watching = None

    def used(self):
        if self._queues.idle.leases:
            self._queues.idle.used(self)
