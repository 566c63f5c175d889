# cython: auto_pickle=False, nonecheck=True
"""The output side of a connection, as each has it: it begins, is asked for credit, delivers, and ends.

Most sessions that come back have nothing under way, and no shared subscription, replay or retained message
to go on with. So that way is compiled, and what the others need is made by `Delivery` when it is needed.
"""

from collections import deque

from penstock.log_core.wal._writer cimport Writer
from penstock.protocols.mqtt.clients._client cimport ClientFields
from penstock.protocols.mqtt.clients._registry cimport Registry
from penstock.protocols.mqtt.codec._deliver cimport Deliverer, SessionFastPath
from penstock.protocols.mqtt.codec._packet_ids cimport Inflight
from penstock.protocols.net.outbuffer cimport OutBuffer
from penstock.subscriptions.cursor._cursor cimport Cursor

from penstock.protocols.properties.translate import mqtt5_from_amqp091

cdef enum:
    DELIVER_MAX = 1024              # messages one delivery takes when no packet id limits it
    TAKES_ANY = 268435455           # the largest packet there is


cdef class DeliveryLifecycle:
    priority = 0

    def __init__(self, host not None, Registry clients not None, ClientFields client not None, int version,
                 dict properties not None, Py_ssize_t window, unsigned long long skip_qos0_before,
                 send_pubrels not None, cancelled not None):
        cdef Deliverer deliverer
        cdef Inflight inflight = client.packet_ids().inflight
        self._host = host
        self._clients = clients
        self._client = client
        self._version = version
        self._log = clients.log
        self._send_pubrels = send_pubrels
        self._cancelled = cancelled
        self._inflight = inflight
        self._deliverer = deliverer = Deliverer(inflight, host.out, version, self._choose, mqtt5_from_amqp091)
        if properties:
            deliverer.max_packet = properties.get("maximum_packet_size", TAKES_ANY)
            deliverer.alias_maximum = properties.get("topic_alias_maximum", 0)
        deliverer.origin = client.number
        deliverer.persistent = client.persistent
        deliverer.skip_qos0_before = skip_qos0_before
        self.released, again, shared = inflight.resume(window)
        client.own_queue.cursor.sent_until = inflight.resume_last
        if shared:
            self._shared_again = deque(shared)
        if again:
            self._retained = self.retained_again(again)
        if clients.broker.authorizer.topic_guard is not None:
            self.subscribed()
        self._qos_above_0 = client.subscribed_qos() > 0

    @property
    def delivered(self):
        return self._deliverer.delivered

    @property
    def delivered_bytes(self):
        return self._deliverer.delivered_bytes

    @property
    def skipped(self):
        return self._deliverer.skipped

    def start(self):
        queue = self._client.own_queue
        self._open = True
        queue.attach(self)
        self._way = SessionFastPath(self._deliverer, queue, self._host.sink, self._after_delivery)
        self._way.needs_ids = self._qos_above_0
        queue.fast_path = self._way
        if self._client.shares:
            self._join_shares()
        if self._shared_again is not None:
            self.pump_shared()
        if self._retained is not None:
            self.pump_retained()

    def stop(self):
        queue = self._client.own_queue
        self._open = False
        self._held = None
        if queue.fast_path is self._way:
            queue.fast_path = None
        queue.detach(self)
        if self._replays is not None:
            self._replays.stop()
        if self._members is not None:
            for member in self._members.values():
                member.share.detach(member)
            self._members = None

    def let_go(self):
        self._way = None
        self._deliverer = None
        self._retained = None

    def credit_gained(self):
        if not self._open:
            return
        self._client.own_queue.credit_gained()
        if self._members is not None:
            for member in self._members.values():
                member.share.queue.credit_gained(member)
        if self._replays is not None:
            self._replays.credit_gained()
        if self._retained is not None:
            self.pump_retained()
        if self._shared_again is not None:
            self.pump_shared()

    def release(self):
        cdef unsigned long long synced = self._log.synced_lsn
        held = self._held
        while held and <unsigned long long>held[0][0] <= synced:
            (<OutBuffer>self._host.out).write(held.popleft()[1])

    # The consumer

    def peer(self):
        return self._host.name

    def credit(self):
        return self.credit_at(self._qos_above_0)

    cpdef Py_ssize_t credit_at(self, int qos) except -1:
        if not self._open or self._host.output_capacity() <= 0:
            return 0
        if not qos:
            return DELIVER_MAX
        return min(self._inflight.send_quota(), <Py_ssize_t>DELIVER_MAX)

    def deliver(self, Cursor cursor not None, Py_ssize_t first, Py_ssize_t step):
        cdef Py_ssize_t capacity = self._host.output_capacity(), took
        if capacity <= 0:
            return 0
        took = self._deliverer.deliver(cursor, first, step, capacity, self._log.now_ms())
        self.after_delivery()
        return took

    cdef int after_delivery(self) except -1:
        cdef Deliverer deliverer = self._deliverer
        cdef bint persistent = self._client.persistent
        released = deliverer.take_pubrels()
        if persistent and self._inflight.changed:
            if self._inflight.exact_changed:
                lsn = self._clients.save_out(self._client)
                if deliverer.held.size:
                    if self._held is None:
                        self._held = deque()
                    self._held.append((lsn, deliverer.held.take()))
                    self._host.await_synced(lsn)
            else:
                self._clients.mark_dirty(self._client)
        if released:
            self._send_pubrels(released)
        self._host.dirty()
        return 0

    def _after_delivery(self):
        self.after_delivery()

    def cancelled(self, reason):
        self._cancelled(reason)
