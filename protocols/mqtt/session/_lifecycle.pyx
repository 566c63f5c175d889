# cython: auto_pickle=False, nonecheck=True
"""The life of a session's connection: CONNECT, reads, DISCONNECT or the loss, as each client has them.

Most clients connect, say little and leave, and a storm brings thousands at once. So the way through a session
is compiled, its values are fields of C, and what most of them never need (words for reason strings, the output
side, rates) is made by `Session` when it is needed. `Session` has everything that is not ordinary, too.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint64_t

from penstock.log_core.wal._writer cimport Writer
from penstock.protocols.mqtt.clients._client cimport ClientFields, PacketIds
from penstock.protocols.mqtt.clients._registry cimport Registry
from penstock.protocols.mqtt.codec import packets, reasons
from penstock.protocols.mqtt.codec._connect cimport Connect, ordinary
from penstock.protocols.mqtt.codec._scan cimport _FAULT, _MORE, _PACKET, _RETAIN, _UNIT, Scanner
from penstock.protocols.mqtt.codec.properties import NO_PROPERTIES
from penstock.protocols.mqtt.codec.reason_strings import refusal
from penstock.protocols.mqtt.codec.reasons import ConnectRefused, MqttError
from penstock.protocols.mqtt.delivery.delivery import Delivery
from penstock.protocols.mqtt.options import TOPIC_LEVELS_MAX
from penstock.protocols.mqtt.publishing._retaining cimport store_retained
from penstock.protocols.mqtt.session._connecting cimport Accepted, accept, vhost_of, wanted_login
from penstock.protocols.mqtt.session._replies cimport Replies
from penstock.protocols.mqtt.session.state import State
from penstock.router.authorization._identity cimport Identity
from penstock.router.errors import LimitReached
from penstock.router.limits.token_buckets import Bucket

cdef object IS_NEW = State.NEW
cdef object IS_IN_LOGIN = State.LOGIN
cdef object IS_OPENING = State.OPENING
cdef object IS_OPEN = State.OPEN
cdef object IS_CLOSED = State.CLOSED
cdef dict NOTHING = NO_PROPERTIES

cdef enum:
    MQTT_5 = 5
    DISCONNECT = 14
    SESSION_TAKEN_OVER = 0x8E
    ADMINISTRATIVE_ACTION = 0x98
    TAKES_ANY = 268435455           # the largest packet there is
    ANSWERS_MAX = 65536             # answers that wait for the disk; above it the connection is not read


cdef int scan(Scanner scanner, bytearray data, Py_ssize_t at, Py_ssize_t size) except -1:
    if at < 0 or at > size or size > len(data):
        raise ValueError("[at, size) is not inside the data")
    return scanner.run(<const uint8_t*>PyByteArray_AS_STRING(data), at, size)


cdef int begin(Scanner scanner, bytearray data, Py_ssize_t at, Py_ssize_t size) except -1:
    """The same, of a read that the quick reader may have begun to scan."""
    cdef int found = scanner.found
    scanner.found = -1
    return found if found >= 0 else scan(scanner, data, at, size)


cdef class SessionLifecycle:
    def __init__(self, host not None, Registry clients not None, options not None):
        broker = clients.broker
        guard = broker.authorizer.topic_guard
        self._host = host
        self._clients = clients
        self._options = options
        self._log = clients.log
        self._replies = Replies(host, self._log)
        self._guarded = guard is not None and guard.slow
        self.members = broker.connections
        self.state = IS_NEW
        self._authenticated = self._connect_properties = NOTHING
        self._max_packet = TAKES_ANY
        self._packets = 1
        self._rates = ()
        self._answers_max = ANSWERS_MAX

    # Bytes

    def receive(self, bytearray data not None, Py_ssize_t size, double now):
        return self.take(data, size, now)

    cdef Py_ssize_t take(self, bytearray data, Py_ssize_t size, double now) except -1:
        cdef Py_ssize_t at = 0
        cdef Scanner scanner
        cdef bint done
        cdef int code
        self._last_input = now
        self.want = 0
        if self._undecided is not None:
            return 0
        if self.state is not IS_OPEN and self.state is not IS_OPENING:
            at = self.take_connect(data, size)
            if self.state is not IS_OPEN and self.state is not IS_OPENING:
                return at
        scanner = self._scanner
        while True:
            if self._units:
                with self._log.unit():
                    done = self.events(data, size, scan(scanner, data, at, size))
                    self.save()
            else:
                code = begin(scanner, data, at, size)
                if code == _MORE and scanner.head == scanner.tail and scanner.is_quiet():
                    self.want = scanner.want
                    return scanner.at
                done = self.events(data, size, code)
                self.save()
            at = scanner.at
            if done or self.state is IS_CLOSED:
                break
            self._units = scanner.unit = True  # the first QoS 2 message of a session that is durable
        if self.state is IS_CLOSED:
            return size
        self.after_scan()
        return at

    cdef bint events(self, bytearray data, Py_ssize_t size, int code) except -1:
        """Handle what the scanner stopped at, `code`, and scan on to the end.

        False when the rest must be scanned inside an atomic unit.
        """
        cdef Scanner scanner = self._scanner
        cdef bytes part
        while True:
            if code == _MORE:
                self.want = scanner.want
                return True
            if code == _UNIT:
                return False
            if code == _PACKET and scanner.kind == DISCONNECT and not scanner.flags and scanner.start == scanner.stop:
                self._packets += 1
                self.will = None
                self._end("the client disconnected")
                return True
            try:
                if code == _FAULT:
                    raise MqttError(scanner.complaint, scanner.fault)
                part = PyBytes_FromStringAndSize(
                    PyByteArray_AS_STRING(data) + scanner.start, scanner.stop - scanner.start)
                if code == _PACKET:
                    self._on_packet(scanner.kind, scanner.flags, part)
                elif code == _RETAIN:
                    self.retain(scanner, part)
                else:
                    self._on_publish(scanner, part)
            except MqttError as error:
                self._fail(error)
            if self.state is IS_CLOSED or self._undecided is not None:
                return True
            code = scan(scanner, data, scanner.at, size)

    cdef int retain(self, Scanner scanner, bytes payload) except -1:
        """Keep a message that is in the log already as its topic's retained one."""
        cdef uint64_t lsn = store_retained(
            self.client.vhost, scanner.topic, scanner.block, payload, scanner.qos, scanner.ttl_ms)
        if lsn:
            scanner.raise_last(lsn)
        return 0

    @property
    def quick(self):
        return self.quick_reader()

    cdef Scanner quick_reader(self):
        if self.state is not IS_OPEN or self._units or self._guarded or self._rates:
            return None
        return self._scanner

    def answer(self):
        if self._scanner is not None and self.state is not IS_CLOSED:
            self.after_scan()

    cdef int save(self) except -1:
        """Put what the scan changed of the packet ids, and say what its answers wait for."""
        cdef ClientFields client = self.client
        cdef Scanner scanner = self._scanner
        cdef PacketIds ids
        if client is None or scanner is None or not client.persistent:
            return 0
        ids = client.packet_ids()
        if ids.received.changed:
            self._clients.save_received(client)
        if ids.inflight.exact_changed:
            self._clients.save_out(client)
        elif ids.inflight.changed:
            self._clients.mark_dirty(client)
        if scanner.unstamped:
            scanner.stamp(client.row_lsn)
        return 0

    def _save(self):
        self.save()

    cdef int after_scan(self) except -1:
        """Send the answers that wait for nothing, register for what the others wait for, use freed credit."""
        cdef Scanner scanner = self._scanner
        cdef ClientFields client = self.client
        cdef PacketIds ids
        if scanner is None or client is None:
            return 0
        self.release()
        if scanner.head != scanner.tail:
            self.wait_for()
        ids = client.packet_ids()
        if ids.inflight.take_freed():
            for token in ids.inflight.take_done_tokens():
                ids.tokens.pop(token, None)
            if self._delivery is not None:
                self._delivery.credit_gained()
        if scanner.tail - scanner.head > self._answers_max:
            self._host.pause_reading("answers")
        self._host.dirty()
        return 0

    def _after_scan(self):
        self.after_scan()

    cdef int wait_for(self) except -1:
        cdef Scanner scanner = self._scanner
        if scanner is None:
            return 0
        if scanner.await_synced > self.awaited_synced:
            self.awaited_synced = scanner.await_synced
            self._host.await_synced(scanner.await_synced)
        if scanner.await_written > self.awaited_written:
            self.awaited_written = scanner.await_written
            self._host.await_written(scanner.await_written)
        return 0

    def _await(self):
        self.wait_for()

    cdef int release(self) except -1:
        """Send the answers whose turn has come; none before CONNACK."""
        cdef Scanner scanner = self._scanner
        if scanner is not None and self.state is IS_OPEN and scanner.head != scanner.tail:
            scanner.release(self._log.written_lsn, self._log.synced_lsn, self._host.out)
            if scanner.tail - scanner.head < self._answers_max // 2:
                self._host.resume_reading("answers")
        return 0

    def _release(self):
        self.release()

    # CONNECT

    cdef Py_ssize_t take_connect(self, bytearray data, Py_ssize_t size) except -1:
        cdef Py_ssize_t stop = 0
        cdef Connect connect
        if self.state is IS_NEW:
            connect = ordinary(data, size, &stop)
            if connect is not None:
                self.version = connect.version
                return self.connected_by(connect, data, size, stop)
        return self._receive_connect(data, size)

    def _connected_by(self, Connect connect not None, bytearray data not None, Py_ssize_t size, Py_ssize_t stop):
        return self.connected_by(connect, data, size, stop)

    cdef Py_ssize_t connected_by(self, Connect connect, bytearray data, Py_ssize_t size, Py_ssize_t stop) except -1:
        """Have the login of a CONNECT judged, which is data[0:stop]."""
        cdef Registry clients = self._clients
        self._connect = connect
        worker = clients.broker.elsewhere(vhost_of(connect))
        if worker is not None:
            self.state = IS_CLOSED
            self._host.hand_over(worker, [bytes(data[:size])])
            return size
        self.state = IS_IN_LOGIN
        if clients._connect_rate and not clients.may_connect(self._last_input):
            self.refused(reasons.CONNECTION_RATE_EXCEEDED, "more CONNECTs than mqtt.max_connect_rate")
            return size
        if connect.properties and "authentication_method" in connect.properties:
            self._begin_authentication(connect)
        else:
            self._host.login(*wanted_login(connect))
        return size if self.state is IS_CLOSED else stop

    cpdef logged_in(self, Identity identity):
        cdef Connect connect = self._connect
        cdef Accepted accepted
        if self.state is not IS_IN_LOGIN or connect is None:
            return
        self._connect = None
        try:
            accepted = accept(self._clients, self._options, connect, identity, self._authenticated)
        except ConnectRefused as refused:
            self._host.out.write(refused.connack)
            self._end(f"CONNECT refused: {refused.message}")
            return
        self.open(connect, accepted, identity)

    cdef int open(self, Connect connect, Accepted accepted, Identity identity) except -1:
        """CONNECT was accepted."""
        cdef ClientFields client = accepted.client
        cdef PacketIds ids
        cdef Scanner scanner
        self.client = client
        try:
            self.members.enter(self)
        except LimitReached as error:
            if not accepted.session_present:
                self._clients.end(client)
            self.client = None
            self._host.out.write(refusal(connect, reasons.QUOTA_EXCEEDED, error.message))
            self._end(f"CONNECT refused: {error.message}")
            return 0
        self.will = connect.will
        self.keep_alive_s = accepted.keep_alive_s
        self._connect_properties = connect.properties
        ids = client.packet_ids()
        options = self._options
        self._scanner = scanner = Scanner(self._log.appender, accepted.table, ids.inflight, ids.received, connect.version)
        scanner.max_packet = options.max_packet_bytes
        scanner.max_levels = TOPIC_LEVELS_MAX
        scanner.persistent = client.persistent
        scanner.stop_publishes = self._stops_publishes
        scanner.origin = client.number
        if connect.version == MQTT_5:
            self._max_packet = connect.properties.get("maximum_packet_size", TAKES_ANY)
            scanner.receive_maximum = options.receive_maximum
            scanner.alias_maximum = options.topic_alias_maximum
            scanner.texts = self._words.acknowledgements()
        else:
            # 3.x has no word for a receive maximum, so its clients cannot be held to one.
            scanner.receive_maximum = 65535
        if options.max_message_rate:
            self._rates = ((Bucket(options.max_message_rate, self._last_input), True),)
        if options.max_byte_rate:
            self._rates += ((Bucket(options.max_byte_rate, self._last_input), False),)
        client.connection = self
        self._clients.connected(client, identity, accepted.expiry_s)
        # Messages of QoS 0 that came while the client was away are not kept for it, unless that is asked for.
        if client.own_queue is not None:
            away = accepted.session_present and not options.queue_qos0_messages
            self._deliver_to(client, connect.properties, self._log.appender.next_lsn if away else 0)
        self.state = IS_OPENING
        self._host.opened(client.username, client.client_id, connect.version)
        self._replies.send(accepted.connack, client.row_lsn, self._opened)
        return 0

    def _deliver_to(self, ClientFields client not None, dict properties not None, unsigned long long skip_qos0_before):
        window = properties.get("receive_maximum", 65535)
        if not self._host.is_link:
            window = min(window, self._options.max_inflight)
        client.own_queue.cursor.skip_transient_until = skip_qos0_before
        self._delivery = delivery = Delivery(
            self._host, self._clients, client, self.version, properties, window, skip_qos0_before, self._send_pubrels,
            self._cancelled,
        )
        if delivery.released:
            self._scanner.push_pubrels(delivery.released)
        if self._scanner.unstamped:
            self._scanner.stamp(client.row_lsn)
        return delivery

    def _opened(self):
        self.is_open()

    cdef int is_open(self) except -1:
        """CONNACK has left: deliveries and answers may follow."""
        if self.state is not IS_OPENING or self.client is None:
            return 0
        self.state = IS_OPEN
        self.client.promised = True
        if self._scanner.head != self._scanner.tail:
            self.wait_for()
            self.release()
        if self._delivery is not None:
            self._delivery.start()
        return 0

    # The end

    cpdef _end(self, reason):
        if self.state is IS_CLOSED:
            return
        self.state = IS_CLOSED
        self.leave()
        self._host.end(reason)

    def force_close(self, reason not None, int code=ADMINISTRATIVE_ACTION):
        if self.version == MQTT_5:
            self._say_goodbye(code, reason)
        self._end(reason)

    def taken_over(self):
        self.force_close("another connection took over the session", SESSION_TAKEN_OVER)

    def lost(self):
        self.lose()

    cdef int lose(self) except -1:
        if self.state is not IS_CLOSED:
            self.state = IS_CLOSED
            self.leave()
        return 0

    def let_go(self):
        self._undecided = None
        if self._delivery is not None:
            self._delivery.let_go()
            self._delivery = None

    cdef int leave(self) except -1:
        """Leave the session to whoever comes next."""
        cdef ClientFields client = self.client
        self._replies.clear()
        self.client = None
        if client is None or client.connection is not self:
            return 0
        self.members.leave(self)
        if self._delivery is not None:
            self._delivery.stop()
            if not self._options.queue_qos0_messages:
                # nor does it keep the log meanwhile
                client.own_queue.cursor.skip_transient_until = 0xFFFFFFFFFFFFFFFF
        client.packet_ids().inflight.suspend()
        will = self.will
        self.will = None
        self._clients.disconnected(client, will)
        return 0

    # As a member of the vhost

    @property
    def identity(self):
        return self.client.identity

    @property
    def vhost(self):
        if self.client is None:
            raise AttributeError("no client is connected")
        return self.client.vhost

    # Counts

    def add_to(self, counts):
        self.add_counts(counts)

    cdef int add_counts(self, counts) except -1:
        cdef Scanner scanner = self._scanner
        delivery = self._delivery
        if scanner is not None:
            counts.packets_received += scanner.published + scanner.acknowledged + <uint64_t>self._packets
            counts.packets_sent += scanner.head + self._replies.sent
            if scanner.published:
                counts.published += scanner.published
                counts.published_bytes += scanner.published_bytes
        if delivery is not None:
            counts.packets_sent += delivery.delivered
            counts.delivered += delivery.delivered
            counts.delivered_bytes += delivery.delivered_bytes
            counts.dropped += delivery.skipped
        return 0

    cdef unsigned long long received(self) noexcept:
        return 0 if self._scanner is None else self._scanner.published

    cdef unsigned long long delivered(self) except? 0xFFFFFFFFFFFFFFFF:
        return 0 if self._delivery is None else self._delivery.delivered

    def counts(self):
        return self.received(), self.delivered()

    @property
    def completed(self):
        return 0 if self._scanner is None else self._scanner.completed
