# cython: auto_pickle=False, nonecheck=True
"""The login timeout: how long a client may take until it is known. A loop that stood still does not count.

Timers come before sockets in a turn of the loop, so one that fires late says nothing of the clients: what
they sent meanwhile is read first. Nor is it a client's time while its bytes wait to be read, as in a storm of
connects, or while its login is being judged, up to a minute.

One timer serves all connections of a front end, since nearly all of them are known long before their time is
over. It fires when the first of those that wait is due, or later: a client has up to 50 ms more.
"""

from libc.math cimport INFINITY

LATE_S = 0.1
cdef double MAY_BE_LATE_S = LATE_S
cdef double JUDGED_S = 60.0         # how long the gateway may take to judge a login, beyond the client's time for it
cdef double LOOK_S = 0.5
cdef double TOGETHER_S = 0.05


cdef class LoginTimes:
    def __init__(self, loop not None, *, double judged_s=JUDGED_S):
        self.loop = loop
        self.judged_s = judged_s
        self.waiting = {}
        self.timer = None
        self.at = INFINITY

    def __len__(self):
        return len(self.waiting)

    cpdef begin(self, stranger, str what, double within_s):
        cdef double due = <double>self.loop.time() + within_s
        self.waiting[stranger] = what, due
        if due < self.at:
            self.arm(due, due)

    cpdef end(self, stranger):
        self.waiting.pop(stranger, None)

    cdef int arm(self, double at, double due) except -1:
        if self.timer is not None:
            self.timer.cancel()
        self.at = at
        self.timer = self.loop.call_at(at, self._look, due)
        return 0

    def _look(self, double due):
        """End those whose time is over; `due`: when this was to happen. Infinite: it was late once."""
        cdef double now = self.loop.time(), following = INFINITY, at
        self.timer = None
        self.at = INFINITY
        if not self.waiting:
            return
        if now - due > MAY_BE_LATE_S:
            # Bytes that clients sent meanwhile are read before they are judged, once.
            self.arm(now + MAY_BE_LATE_S, INFINITY)
            return
        for stranger, (what, until) in list(self.waiting.items()):
            at = until
            if at > now:
                following = min(following, at)
            elif at + self.judged_s > now and (stranger.judging or stranger.unread):
                # A hash that takes its time is no fault of the client's, and neither is a storm of others.
                following = min(following, now + LOOK_S, at + self.judged_s)
            else:
                del self.waiting[stranger]
                stranger.abort(f"{what} in time")
        if following < INFINITY:
            at = max(following, now + TOGETHER_S)
            self.arm(at, at)
