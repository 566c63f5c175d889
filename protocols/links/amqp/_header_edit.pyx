# cython: auto_pickle=False
"""Changes the headers of messages on their way through a link, without an object per message.

    2 | channel u16 | size u32 | class u16 | weight u16 | body size u64 | flags u16 | properties | CE

Flags and properties are in the same order. The third property is a table: entries of name, type u8 and value. Entries that
an edit sets stand behind the others, and what a message had by their names is gone. An array keeps its elements behind the
new first one.

Source: AMQP 0-9-1, 4.2.5 and 4.2.6.1; RabbitMQ's rabbit_federation_util, rabbit_federation_queue_link.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from penstock.protocols.links.amqp._frames cimport END, HEAD
from penstock.protocols.links.errors import LinkError
from penstock.protocols.net.outbuffer cimport OutBuffer
from penstock.protocols.properties._tables cimport (
    load16, load32, load64, store16, store32, store64, table_size, value_size,
)

cdef enum:
    FLAGS_AT = HEAD + 2 + 2 + 8
    PLACES = 14
    HEADERS = 2                     # places
    DELIVERY_MODE = 3
    PRIORITY = 4
    TIMESTAMP = 9
    USER_ID = 11
    FIRST_FLAG = 1 << 15            # of the first place
    NO_FLAGS = 3                    # bits that are no property

cdef bytes CLUSTER = b"cluster-name"
cdef bytes VHOST = b"vhost"
cdef bytes URI = b"uri"
cdef bytes QUEUE = b"queue"
cdef bytes CC = b"CC"
cdef bytes BCC = b"BCC"
cdef bytes VISITS = b"visit-count"


cdef int find(const uint8_t* frame, Py_ssize_t size, Py_ssize_t* starts) except -1:
    """Where each property begins, and where the last one ends. One that is not there has no bytes."""
    cdef Py_ssize_t at = FLAGS_AT + 2, end = size - 1, taken
    cdef uint16_t flags
    cdef int place
    if at > end:
        raise ValueError("the header of a message is damaged")
    flags = load16(frame + FLAGS_AT)
    for place in range(PLACES):
        starts[place] = at
        if not flags & (FIRST_FLAG >> place):
            continue
        if place == HEADERS:
            taken = table_size(frame + at, end - at, 0)
        elif place == DELIVERY_MODE or place == PRIORITY:
            taken = 1
        elif place == TIMESTAMP:
            taken = 8
        else:
            taken = 1 + frame[at] if at < end else -1
        if taken < 0 or taken > end - at:
            raise ValueError("the header of a message is damaged")
        at += taken
    starts[PLACES] = at
    if at != end or flags & NO_FLAGS:
        raise ValueError("the header of a message is damaged")
    return 0


cdef inline uint8_t* put_bytes(uint8_t* p, bytes data) noexcept:
    memcpy(p, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    return p + PyBytes_GET_SIZE(data)


cdef inline uint8_t* put_name(uint8_t* p, bytes name, uint8_t kind) noexcept:
    p[0] = <uint8_t>PyBytes_GET_SIZE(name)
    p = put_bytes(p + 1, name)
    p[0] = kind
    return p + 1


cdef inline bint is_named(const uint8_t* entry, bytes name) noexcept:
    return (
        name is not None
        and entry[0] == PyBytes_GET_SIZE(name)
        and memcmp(entry + 1, PyBytes_AS_STRING(name), entry[0]) == 0
    )


cdef inline Py_ssize_t entry_size(const uint8_t* entry, const uint8_t* end) noexcept:
    """Of an entry in a table that was found to be whole."""
    cdef const uint8_t* kind = entry + 1 + entry[0]
    return 2 + entry[0] + value_size(kind[0], kind + 1, end - kind - 1, 0)


cdef const uint8_t* value_of(const uint8_t* entry, const uint8_t* end, bytes name) noexcept:
    """The type of the last entry of that name, which its value follows; NULL: there is none."""
    cdef const uint8_t* found = NULL
    while entry < end:
        if is_named(entry, name):
            found = entry + 1 + entry[0]
        entry += entry_size(entry, end)
    return found


cdef bint says(const uint8_t* element, const uint8_t* end, bytes name, bytes text) noexcept:
    """Whether a table, from its size on, has that text."""
    cdef const uint8_t* found = value_of(element + 4, end, name)
    return (
        found != NULL
        and found[0] == c'S'
        and <Py_ssize_t>load32(found + 1) == PyBytes_GET_SIZE(text)
        and memcmp(found + 5, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text)) == 0
    )


cdef bint is_of(const uint8_t* element, const uint8_t* end, bytes name, bytes other_name, tuple texts) noexcept:
    """Whether an element of an array is a table that has both texts."""
    return (
        element[0] == c'F'
        and says(element + 1, end, name, <bytes>texts[0])
        and says(element + 1, end, other_name, <bytes>texts[1])
    )


cdef int64_t visits_of(const uint8_t* element, const uint8_t* end) noexcept:
    """Of the table of a visited place: 1, if it has no number."""
    cdef const uint8_t* found = value_of(element + 5, end, VISITS)
    if found == NULL:
        return 1
    if found[0] == c'l' or found[0] == c'L':
        return <int64_t>load64(found + 1)
    if found[0] == c'I':
        return <int32_t>load32(found + 1)
    if found[0] == c'i':
        return load32(found + 1)
    if found[0] == c's':
        return <int16_t>load16(found + 1)
    if found[0] == c'u':
        return load16(found + 1)
    if found[0] == c'b':
        return <int8_t>found[1]
    return found[1] if found[0] == c'B' else 1


cdef class HeaderEdit:
    def __init__(
        self, *, Py_ssize_t frame_max, str end not None, properties=None, bint removes_user_id=False, bytes array=None,
        tuple firsts=None, tuple here=None, Py_ssize_t max_hops=0, tuple visited=None, bytes stamp=None,
        bint lowers_copies=False,
    ):
        cdef int place
        cdef bytes value
        self._frame_max = frame_max
        self._end = end
        self._properties = [None] * PLACES
        for flag, value in (properties or {}).items():
            place = 16 - int(flag).bit_length()
            if not 0 <= place < PLACES:
                raise ValueError(f"{flag} is the flag of no property")
            if place == HEADERS and (
                table_size(<const uint8_t*>PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value), 0) != PyBytes_GET_SIZE(value)
            ):
                raise ValueError("headers are no table, or one that is too deep")
            self._properties[place] = value
            self._replaced |= <uint16_t>(FIRST_FLAG >> place)
            self._added += len(value)
        if removes_user_id:
            self._removed = FIRST_FLAG >> USER_ID
        for name in (array, stamp):
            if name is not None and not 0 < len(name) < 256:
                raise ValueError("a header has a name of up to 255 bytes")
        if array is not None:
            if firsts is None or len(firsts) != 2:
                raise ValueError("an array needs its two first elements")
            if visited is not None and any(len(<bytes?>one) < 8 for one in firsts):
                raise ValueError("a first element ends with its visit-count")
            self._added += 1 + len(array) + 1 + 4 + max(len(<bytes?>one) for one in firsts)
        for texts in (here, visited):
            if texts is not None and (len(texts) != 2 or not all(isinstance(one, bytes) for one in texts)):
                raise ValueError("a place is two texts")
        if stamp is not None:
            self._added += 1 + len(stamp) + 1 + 8
        self._added += 4                # of a table that was not there
        self._array = array
        self._firsts = firsts
        self._here = here
        self._max_hops = max_hops
        self._visited = visited
        self._stamp = stamp
        self._lowers_copies = lowers_copies

    def changed(self, bytes frame not None, bint redelivered):
        cdef OutBuffer out = OutBuffer()
        cdef const uint8_t* start = <const uint8_t*>PyBytes_AS_STRING(frame)
        return out.take() if self.put(out, start, PyBytes_GET_SIZE(frame), redelivered) else None

    cdef int put(self, OutBuffer out, const uint8_t* frame, Py_ssize_t size, bint redelivered) except -1:
        """Write the frame in place of this one; 0: the message does not pass, and nothing is written."""
        cdef Py_ssize_t[PLACES + 1] starts
        cdef uint8_t* start
        cdef uint8_t* p
        cdef uint8_t* table
        cdef const uint8_t* entries
        cdef const uint8_t* end
        cdef uint16_t flags, flag
        cdef int place
        cdef bytes own
        find(frame, size, starts)
        start = out.reserve(size + self._added)
        flags = (load16(frame + FLAGS_AT) & ~self._removed) | self._replaced
        memcpy(start, frame, FLAGS_AT)
        p = start + FLAGS_AT + 2
        for place in range(PLACES):
            flag = FIRST_FLAG >> place
            if place == HEADERS and (
                self._array is not None or self._stamp is not None or (self._lowers_copies and flags & flag)
            ):
                entries, end = frame + starts[place] + 4, frame + starts[place + 1]
                if self._replaced & flag:
                    own = <bytes>self._properties[place]
                    entries = <const uint8_t*>PyBytes_AS_STRING(own) + 4
                    end = entries - 4 + PyBytes_GET_SIZE(own)
                table = p
                p = self._put_table(p + 4, entries, end, redelivered)
                if p == NULL:
                    return 0
                store32(table, <uint32_t>(p - table - 4))
                flags |= flag
            elif self._replaced & flag:
                p = put_bytes(p, <bytes>self._properties[place])
            elif flags & flag:
                memcpy(p, frame + starts[place], starts[place + 1] - starts[place])
                p += starts[place + 1] - starts[place]
        p[0] = END
        p += 1
        store16(start + FLAGS_AT, flags)
        store32(start + 3, <uint32_t>(p - start - HEAD - 1))
        if p - start > self._frame_max:
            raise LinkError(f"{self._end}: the header of a message has no room for what the link adds")
        out.commit(p - start)
        return 1

    cdef uint8_t* _put_table(
        self, uint8_t* p, const uint8_t* entries, const uint8_t* end, bint redelivered
    ) noexcept:
        """Write the entries of the headers: their end, or NULL when the message does not pass."""
        cdef const uint8_t* entry = entries
        cdef Py_ssize_t size, place
        cdef timespec now
        while entry < end:
            size = entry_size(entry, end)
            if not is_named(entry, self._array) and not is_named(entry, self._stamp):
                memcpy(p, entry, size)
                if self._lowers_copies and (is_named(entry, CC) or is_named(entry, BCC)):
                    for place in range(1, 1 + entry[0]):
                        p[place] |= 0x20
                p += size
            entry += size
        if self._array is not None:
            p = self._put_array(p, entries, end, redelivered)
            if p == NULL:
                return NULL
        if self._stamp is not None:
            clock_gettime(CLOCK_REALTIME, &now)
            p = put_name(p, self._stamp, c'l')
            store64(p, <uint64_t>now.tv_sec * 1000 + <uint64_t>now.tv_nsec // 1000000)
            p += 8
        return p

    cdef uint8_t* _put_array(
        self, uint8_t* p, const uint8_t* entries, const uint8_t* end, bint redelivered
    ) noexcept:
        """Write the entry of the array: its end, or NULL when the message does not pass."""
        cdef uint8_t* size_at
        cdef uint8_t* first_end
        cdef const uint8_t* entry = entries
        cdef const uint8_t* element
        cdef const uint8_t* elements_end
        cdef Py_ssize_t size, hops = 0
        cdef int64_t visits = 1
        size_at = put_name(p, self._array, c'A')
        p = first_end = put_bytes(size_at + 4, <bytes>self._firsts[1 if redelivered else 0])
        while entry < end:
            element = entry + 1 + entry[0]
            if is_named(entry, self._array) and element[0] == c'A':
                elements_end = element + 5 + load32(element + 1)
                element += 5
                while element < elements_end:
                    size = 1 + value_size(element[0], element + 1, elements_end - element - 1, 0)
                    hops += 1
                    if self._here is not None and (
                        hops >= self._max_hops or is_of(element, element + size, CLUSTER, VHOST, self._here)
                    ):
                        return NULL
                    if self._visited is not None and is_of(element, element + size, URI, QUEUE, self._visited):
                        visits += visits_of(element, element + size)
                    else:
                        memcpy(p, element, size)
                        p += size
                    element += size
            entry += entry_size(entry, end)
        if self._visited is not None:
            store64(first_end - 8, <uint64_t>visits)
        store32(size_at, <uint32_t>(p - size_at - 4))
        return p
