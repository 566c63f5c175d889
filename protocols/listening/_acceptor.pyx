# cython: auto_pickle=False, nonecheck=True
"""The acceptor of a listener: from an accepted socket to a counted connection, and to its end.

Each connection comes through here, so it is compiled. `Listener` has the rest: limits that are reached, proxies,
layers above the socket, looking after, stopping.
"""

import os
from collections import deque

from penstock.protocols.net._lifecycle cimport Life, is_here
from penstock.protocols.net._socket cimport SocketTransport
from penstock.protocols.net.connection_info import Totals

TAKEN_PER_TURN = 256                # with so many something is begun before the loop does something else


cdef class Acceptor:
    def __init__(self, loop not None, admission not None, factory not None, tuple place not None, reached_at, layered):
        self.connections = set()
        self.gone = {}
        self.loop = loop
        self._admission = admission
        self.factory = factory
        self.place = place
        self.reached_at = reached_at
        self.layered = layered
        self._came = deque()
        self._full = frozenset()
        self._is_open = True
        self.lost = self._lost
        self.known = self._logged_in

    # The way in

    def take_some(self):
        cdef Py_ssize_t i, some
        came = self._came
        some = min(<Py_ssize_t>len(came), <Py_ssize_t>TAKEN_PER_TURN)
        fresh = self.fresh = []
        try:
            for i in range(some):
                fd, host, port = came.popleft()
                if self._max or self._admission.has_proxies:
                    self.take(fd, host, port)
                else:
                    self.begin(fd, host, port, False)
        finally:
            self.fresh = None
            if came:
                self.loop.call_soon(self.take_some)
            self.read_fresh(fresh)

    cdef int read_fresh(self, list fresh) except -1:
        """Read what they have said meanwhile, as most have: it spares a round of the poller."""
        cdef SocketTransport first
        if fresh:
            first = fresh[0]
            first.poller.read_new(fresh)
        return 0

    def let_in(self, int accepted, str host not None, int port, *, bint proxied=False):
        self.begin(accepted, host, port, proxied)

    cdef int begin(self, int fd, str host, int port, bint proxied) except -1:
        cdef Life connection
        cdef bint counts = proxied or not is_here(host)
        if not self._is_open:
            os.close(fd)            # we stop
            return 0
        if counts:
            why = self._admission.enter(host, proxied=proxied)
            if why is not None:
                self.refuse(fd, why)
                return 0
        connection = self.made(host, port, proxied and not host)
        connection.admitted = counts
        transport = SocketTransport(self.loop, fd, connection if self.layered is None else self.layered(connection))
        if self.fresh is not None:
            self.fresh.append(transport)
        return 0

    cdef object made(self, str host, int port, bint foreign):
        """A connection of this peer, which is counted."""
        cdef Life connection = self.factory()
        connection.came_from(host, port, foreign=foreign)
        connection.on_close = self.lost
        connection.on_login = self.known
        connection.place = self.place
        if self.reached_at is not None:
            connection.server_address = self.reached_at
        self.connections.add(connection)
        self.opened += 1
        if len(self.connections) == 1:
            self._empty.clear()
        if self._backpressure:
            connection.on_backpressure(True)
        return connection

    def meet(self, str host not None, int port, *, bint foreign):
        return self.made(host, port, foreign)

    def _logged_in(self, Life connection not None):
        if self._full and connection.vhost_name in self._full:
            connection.on_backpressure(True)

    # The way out

    def _lost(self, Life connection not None):
        if connection in self.connections:
            self.connections.remove(connection)
            if connection.admitted:
                self._admission.leave(connection.peer_host)
            self.closed += 1
            spoken = connection.spoken
            sums = self.gone.get(spoken)
            if sums is None:
                sums = self.gone[spoken] = Totals()
            connection.add_totals(sums)
            self.gone_bytes_in += connection.bytes_in
            self.gone_bytes_out += connection.bytes_out
        if not self.connections:
            self._empty.set()
