# cython: auto_pickle=False, nonecheck=True
"""The connections in a vhost: each enters after its login and leaves when it is lost. Words in _connections.pyi."""

from penstock.router.errors import LimitReached
from penstock.router.limits.limits import over


cdef class Index:
    def __init__(self, user_limits not None):
        self.user_limits = user_limits
        self._members = {}
        self._of_user = {}
        self._of_vhost = {}
        self._ends = {}

    def __len__(self):
        return len(self._members)

    def __iter__(self):
        return iter(list(self._members))

    cpdef enter(self, member):
        cdef dict of_user, of_vhost
        identity, vhost = member.identity, member.vhost
        user, name = identity.username, vhost.name
        of_user, of_vhost = self._of_user.get(user), self._of_vhost.get(name)
        if vhost.limits:
            most = over(vhost.limits, "max-connections", 0 if of_vhost is None else len(of_vhost))
            if most is not None:
                raise LimitReached("vhost-connections", most, vhost=name, user=user)
        limits = self.user_limits(user)
        if limits:
            most = over(limits, "max-connections", 0 if of_user is None else len(of_user))
            if most is not None:
                raise LimitReached("user-connections", most, vhost=name, user=user)
        self._members[member] = user, name
        if of_user is None:
            of_user = self._of_user[user] = {}
        of_user[member] = None
        if of_vhost is None:
            of_vhost = self._of_vhost[name] = {}
        of_vhost[member] = None
        if identity.grants is not None:
            self.watch(member)

    cpdef leave(self, member):
        cdef dict there
        place = self._members.pop(member, None)
        if place is None:
            return
        user, name = place
        if self._ends:
            timer = self._ends.pop(member, None)
            if timer is not None:
                timer.cancel()
        there = self._of_user[user]
        del there[member]
        if not there:
            del self._of_user[user]
        there = self._of_vhost[name]
        del there[member]
        if not there:
            del self._of_vhost[name]
