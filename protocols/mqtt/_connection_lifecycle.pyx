# cython: auto_pickle=False, nonecheck=True
"""The life of an MQTT connection, as each client has it: reads, a login that needs no wait, the end.

`MqttConnection` has the rest: logins that wait for a thread or for plugins, pressure, keep-alive.
"""

from penstock.protocols.mqtt.clients._registry cimport Registry
from penstock.protocols.mqtt.codec import reasons
from penstock.protocols.mqtt.session._lifecycle cimport SessionLifecycle
from penstock.protocols.mqtt.session.session import Session
from penstock.protocols.net._lifecycle cimport Life
from penstock.router.errors import AuthenticationRefused

cdef dict VERSIONS = {3: "3.1", 4: "3.1.1", 5: "5.0"}
cdef dict SPOKEN = {3: "mqtt310", 4: "mqtt311", 5: "mqtt50"}    # in metrics


cdef class MqttLifecycle(Life):
    def __init__(self, context not None, Registry clients not None, front_end not None):
        Life.__init__(self, context)
        self._clients = clients
        clients.sockets += 1
        self._options = front_end.options
        guard = clients.broker.authorizer.topic_guard
        if guard is not None:
            self.guarded_by(guard)
        self.session = Session(self, clients, self._options)

    # Reads

    def received(self, bytearray buffer not None, Py_ssize_t size):
        cdef SessionLifecycle session = self.session
        cdef Py_ssize_t consumed
        if session is None:
            return size
        consumed = session.take(buffer, size, self.last_read_at)
        if self.handed_over:
            return size
        if self.closing:
            return consumed
        self.want = session.want
        if session._rates:
            self.slow_down(session.spent(consumed, self.last_read_at))
        if self._backpressure:
            self._check_pressure()
        if self.metered:
            self.spent(consumed)
        self.quick = None if self._backpressure or self.metered else session.quick_reader()
        return consumed

    def answer(self):
        self.session.answer()

    def on_writable(self):
        self.session.writable()

    def on_durable(self, bint ok):
        self.session.durable(ok)

    # Called by the session

    @property
    def sink(self):
        return self

    def login(self, user_name, password):
        options = self._options
        if self._amqtt is not None or user_name is not None or (
                options.cert_login and self.certificate_user is not None):
            self.judge(user_name, password)
            return
        self.unchecked(options.allow_anonymous)

    def unchecked(self, allowed):
        users = self._clients.broker.users
        try:
            identity = self.anonymous(allowed)
        except AuthenticationRefused as error:
            users.refused("mqtt", error, self.peer_host)
            self.session.refused(reasons.NOT_AUTHORIZED, error.message)
        else:
            users.let_in("mqtt")
            self.let_in(identity)

    cpdef anonymous(self, allowed):
        if allowed is False:
            raise AuthenticationRefused("", "anonymous")
        return self._clients.broker.users.anonymous(self.local, everywhere=allowed is True)

    cdef int let_in(self, identity) except -1:
        cdef SessionLifecycle session = self.session
        self.trusted = True
        session.logged_in(identity)
        return 0

    def _let_in(self, identity not None):
        self.let_in(identity)

    def opened(self, user, client_id, int version):
        if self._amqtt is not None:
            self.admitted_as(client_id)
        self.known_as(user, self.session.vhost.name, {"client": client_id, "version": VERSIONS[version]})

    def end(self, reason):
        self.close(reason)

    # The end

    def on_lost(self):
        cdef SessionLifecycle session = self.session
        if self._login is not None:
            self._login.cancel()
        if session is not None:
            session.lose()
            self.add(self._clients.closed)

    def let_go(self):
        session, self.session = self.session, None
        Life.let_go(self)
        if session is not None:
            session.let_go()

    cdef int add(self, counts) except -1:
        cdef SessionLifecycle session = self.session
        counts.bytes_received += self.bytes_in
        counts.bytes_sent += self.bytes_out
        if session is not None:
            session.add_counts(counts)
        return 0

    def add_to(self, counts):
        self.add(counts)

    cdef tuple counted(self):
        cdef SessionLifecycle session = self.session
        if session is None:
            return 0, 0
        return session.received(), session.delivered()

    def message_counts(self):
        return self.counted()

    @property
    def spoken(self):
        return "" if self.session is None else SPOKEN.get(self.session.version, "")

    def add_totals(self, sums):
        if self.session is not None and (self.session.received() or self.session.delivered()):
            sums.add(self.totals())
