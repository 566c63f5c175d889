# cython: auto_pickle=False, nonecheck=True
"""Timers of wills and session ends: exact near the time, and cheap for the many that are far off.

Timers of the slot of time that has begun stand in a heap, (when, client). Everything else waits in the
list of its slot, where a session costs a pointer; when a slot begins, its list goes into the heap. Nothing is
taken out: a client that came back, or has another time by now, is passed over by whoever is told. A client
that leaves again and again within a slot stands in its list once (`ClientFields.slot`).

Times are seconds since the epoch.
"""

from heapq import heappop, heappush

from penstock.protocols.mqtt.clients._client cimport ClientFields

cdef enum:
    SLOT_S = 64


cdef inline long long slot_of(double at) noexcept:
    return <long long>at // SLOT_S


cdef class Timers:
    def __init__(self):
        self.near = []
        self.far = {}
        self.slots = []

    cpdef bint arm(self, double at, ClientFields client, double now) except -1:
        cdef long long slot = slot_of(at)
        if slot <= slot_of(now):
            heappush(self.near, (at, client))
            return (<tuple>self.near[0])[1] is client
        if slot == client.slot:
            return False
        client.slot = slot
        waiting = self.far.get(slot)
        if waiting is not None:
            (<list>waiting).append(client)
            return False
        self.far[slot] = [client]
        heappush(self.slots, slot)
        return self.slots[0] == slot

    cpdef next(self):
        times = [(<tuple>self.near[0])[0]] if self.near else []
        if self.slots:
            times.append(float(self.slots[0] * SLOT_S))
        return min(times, default=None)

    def due(self, double now):
        cdef ClientFields client
        cdef long long slot
        while self.slots and self.slots[0] * SLOT_S <= now:
            slot = heappop(self.slots)
            for client in self.far.pop(slot):
                if client.slot == slot:
                    client.slot = 0
                for at in (client.will_at, client.ends_at):
                    if at is not None and slot_of(at) == slot:
                        heappush(self.near, (at, client))
        while self.near and (<tuple>self.near[0])[0] <= now:
            yield heappop(self.near)[1]
