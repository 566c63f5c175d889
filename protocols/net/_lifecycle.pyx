# cython: auto_pickle=False, nonecheck=True
"""The beginning and the end of a connection: what each one goes through, however short it is.

A client that comes, logs in and leaves is the ordinary case of many devices, and a storm of connects brings
thousands. So this part of `Connection` is compiled, its values are fields of C, and what most connections
never have (reasons to pause, timers, a relay) is made when it is needed.
"""

from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from penstock._log_lines cimport event
from penstock.log_core.errors import LogFailed
from penstock.protocols.net._socket cimport SocketTransport
from penstock.protocols.net._stream cimport Stream
from penstock.protocols.net.admitting._login_timeout cimport LoginTimes
from penstock.protocols.net.admitting.addresses import is_loopback
from penstock.subscriptions.cursor import _events as events

LINGER_S = 10.0
cdef frozenset NO_REASONS = frozenset()
cdef tuple NO_ADDRESS = ("", 0)
cdef tuple NO_PLACE = ("", "")
cdef str SILENT = "the client closed the socket"
cdef long long LAST_ID = 0
cdef str LAST_HOST = ""             # most peers of a moment come from one address
cdef bint LAST_IS_HERE = False


cpdef bint is_here(str host) except -1:
    global LAST_HOST, LAST_IS_HERE
    if host is not LAST_HOST:
        LAST_IS_HERE = is_loopback(host)
        LAST_HOST = host
    return LAST_IS_HERE


cdef class Life(Stream):
    def __init__(self, context not None):
        global LAST_ID
        cdef timespec now
        limits = context.limits
        Stream.__init__(self, context.loop, context.tick, min(limits.output_high_bytes, context.buffers.mark))
        LAST_ID += 1
        self.id = LAST_ID
        self.context = context
        self.logins = context.logins
        self.logger = context.logger
        clock_gettime(CLOCK_REALTIME, &now)
        self.opened_at = <double>now.tv_sec + <double>now.tv_nsec * 1e-9
        self.reason = SILENT
        self.peer_host = ""
        self.vhost_name = self.nonce = ""
        self.server_address = NO_ADDRESS
        self.place = NO_PLACE
        self._pause_reasons = NO_REASONS
        self._stuck_since = self.last_read_at
        self._history = None if context.handover is None else []

    # The peer

    def came_from(self, str host not None, int port, *, bint foreign=False):
        self.peer_host = host
        self.peer_port = port
        self.foreign = foreign
        self.known_peer = None

    @property
    def peer(self):
        if self.known_peer is None:
            host = self.peer_host
            if not host and not self.peer_port:
                return "?"
            self.known_peer = f"[{host}]:{self.peer_port}" if ":" in host else f"{host or '?'}:{self.peer_port}"
        return self.known_peer

    @property
    def local(self):
        return not self.foreign and is_here(self.peer_host)

    # The beginning

    def connection_made(self, transport not None):
        self.attach(transport)
        gathering = transport.get_extra_info("gathering")
        if gathering is not None:
            self.tick.gathering = gathering
        if not self.server_address[1]:
            found = transport.get_extra_info("sockname")
            if isinstance(found, tuple) and len(found) >= 2:
                self.server_address = str(found[0]), int(found[1])
        transport.set_write_buffer_limits(self.output_mark)
        self.logins.begin(self, "no complete first packet", self.context.limits.greeting_timeout_s)
        self.on_open()

    def on_open(self):
        pass

    def greeted(self):
        if self.user is None:
            self.logins.begin(self, "the login was not complete", self.context.limits.login_timeout_s)

    def logged_in(self, user not None, vhost not None="", **more):
        self.known_as(user, vhost, more)

    cdef int known_as(self, user, vhost, dict more) except -1:
        cdef dict known
        self.logins.end(self)
        self.trusted = True
        self.user = user
        self.vhost_name = vhost
        rates = self.context.rates
        if rates is not None and (self.metered or rates.any):
            self.rates_changed()
        known = {"connection": self.id, "peer": self.peer, "user": user}
        if vhost:
            known["vhost"] = vhost
        known.update(more)
        event(self.logger, "connection opened", known)
        if events.is_on():
            protocol, client = self.logger.name.rpartition(".")[2], more.get("client")
            detail = f"{protocol} {client}" if client and client != "-" else protocol
            events.note("connect", vhost=vhost, connection=self.name, user=user, detail=detail)
        if self.on_login is not None:
            self.on_login(self)
        return 0

    # The end

    def close(self, reason not None):
        if self.over():
            return
        if not self.closing:
            self.closing = True
            self.reason = reason
        self.send_out()
        self.transport.close()
        # A socket with nothing to send is closed in this turn; the layers above one may wait for the peer.
        if not isinstance(self.transport, SocketTransport) or (<SocketTransport>self.transport).waiting_size:
            self._linger = self.loop.call_later(LINGER_S, self.transport.abort)

    cdef int over(self) except -1:
        """There is no transport, or it closes already."""
        return self.transport is None or self.transport.is_closing()

    def eof_received(self):
        self.closing = True
        return False

    def connection_lost(self, exc):
        if exc is not None and not self.closing:
            self.reason = f"the connection broke: {exc}"
        self.closing = True
        self.logins.end(self)
        if self._linger is not None:
            self._linger.cancel()
        if self._rate_timer is not None:
            self._rate_timer.cancel()
        self.drop_input()
        if self._relay is not None:
            self._relay.client_lost()
        try:
            self.on_lost()
        except LogFailed:
            # That is said already; nobody was told that this connection's last changes hold.
            pass
        finally:
            self.ended()
            # Clients decide how many of them come and go.
            self.let_go()

    cdef int ended(self) except -1:
        """Say so: in the log, unless that says already who goes on with it, and to the listener."""
        cdef timespec now
        if not self.handed_over or self._relay is not None:
            if self.user and events.is_on():
                events.note(
                    "disconnect", vhost=self.vhost_name, connection=self.name, user=self.user, detail=self.reason)
            if self.user:
                clock_gettime(CLOCK_REALTIME, &now)
                self.context.closed.append((
                    self.name, self.user, self.vhost_name, self.spoken, self.opened_at,
                    <double>now.tv_sec + <double>now.tv_nsec * 1e-9, self.reason))
            received, sent = self.counted()
            event(
                self.logger,
                "connection closed",
                {
                    "connection": self.id,
                    "peer": self.peer,
                    "user": self.user or "-",
                    "reason": self.reason,
                    "bytes_in": self.bytes_in,
                    "bytes_out": self.bytes_out,
                    "messages_in": received,
                    "messages_out": sent,
                },
            )
        if self.on_close is not None:
            self.on_close(self)
        return 0

    cdef tuple counted(self):
        return self.message_counts()

    def let_go(self):
        self.detach()
