# cython: auto_pickle=False
"""Segments' files that are open to be read on the loop: without a wait, or not at all.

Bytes in the page cache are read by a read that does not wait (RWF_NOWAIT), or go from there to a socket without
passing through our memory (`Stretch`, by sendfile). sendfile would wait for the disk, so the system is asked before
what it has: `cachestat` counts the pages (Linux 6.5; a look at each large page, not at each 4 KiB), `mincore` shows
them in a mapping that nothing else is done with. Both may be a moment ahead: pages that are just being read count,
so the last one must be there to be read, too. A thread reads pages that left the page cache between the promise and
the sending.

A file stays open as long as a stretch of it waits to be sent: who is not done with a segment finds it whole, for what
is deleted is only shortened when nobody has it open (`releaser`).
"""

from libc.errno cimport EAGAIN, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

import os

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len
    ssize_t preadv2(int fd, const iovec* vector, int count, int64_t offset, int flags)
    enum:
        RWF_NOWAIT

cdef extern from "<unistd.h>" nogil:
    int c_close "close"(int fd)

cdef extern from "<sys/mman.h>" nogil:
    void* mmap(void* address, size_t size, int protection, int flags, int fd, int64_t offset)
    int munmap(void* address, size_t size)
    int mincore(void* address, size_t size, unsigned char* found)
    void* MAP_FAILED
    enum:
        PROT_READ
        MAP_SHARED

cdef extern from "<sys/sendfile.h>" nogil:
    ssize_t sendfile(int to, int fd, int64_t* offset, size_t size)

cdef extern from *:
    """
    #include <stdint.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    #ifndef SYS_cachestat
    #define SYS_cachestat 451       /* the same on all architectures; headers before Linux 6.5 lack it */
    #endif
    struct penstock_cached { uint64_t cached, dirty, writeback, evicted, recently_evicted; };
    static int penstock_cachestat(int fd, uint64_t offset, uint64_t size, struct penstock_cached* found) {
        uint64_t range[2] = {offset, size};
        return (int)syscall(SYS_cachestat, fd, range, found, 0);
    }
    """
    struct penstock_cached:
        uint64_t cached
    int penstock_cachestat(int fd, uint64_t offset, uint64_t size, penstock_cached* found) nogil

cdef enum:
    PAGE = 4096                     # or a multiple of it, where pages are larger: then they never suffice
    PAGES_MAX = 256                 # that mincore is asked for at once

cdef bint counts = True             # `cachestat` is there, and allowed


def count_pages(bint wanted):
    """Ask `cachestat` again, or no more; whether it was asked. For tests."""
    global counts
    was, counts = counts, wanted
    return was


cdef class SegmentFile:
    def __cinit__(self, uint64_t number, int fd, uint64_t base_lsn, uint64_t next_lsn, uint64_t end, uint32_t epoch,
                  object marks not None, object submit not None):
        self.fd = fd
        self.number = number
        self.base_lsn = base_lsn
        self.next_lsn = next_lsn
        self.end = end
        self.epoch = epoch
        self.marks = marks
        self.submit = submit
        self.used = True
        self.whole = True

    def __dealloc__(self):
        self.stretches = 0
        self.close()

    def close(self):
        self.ended = True
        if self.fd >= 0 and self.stretches == 0:
            if self.pages != NULL:
                munmap(self.pages, self.end)
                self.pages = NULL
            c_close(self.fd)
            self.fd = -1

    cdef bint is_open(self) noexcept:
        return self.fd >= 0 and not self.ended

    cdef Py_ssize_t read(self, uint8_t* p, size_t size, uint64_t offset) noexcept:
        cdef iovec vector
        cdef ssize_t got
        if self.fd < 0:
            return 0
        vector.iov_base = p
        vector.iov_len = size
        got = preadv2(self.fd, &vector, 1, <int64_t>offset, RWF_NOWAIT)
        if got < 0 and errno != EAGAIN:
            self.close()            # a file system that cannot say what it has at once, or a disk that fails
        return max(got, 0)

    cdef bint has_pages(self, uint64_t offset, size_t size) noexcept:
        global counts
        cdef penstock_cached found
        cdef uint8_t last
        if counts:
            if penstock_cachestat(self.fd, offset, size, &found) == 0:
                if found.cached < (offset + size - 1) // PAGE - offset // PAGE + 1:
                    return False
            else:
                counts = False      # an older system, or one that keeps it from us
        if not counts and not self.maps_pages(offset, size):
            return False
        return self.read(&last, 1, offset + size - 1) == 1

    cdef bint maps_pages(self, uint64_t offset, size_t size) noexcept:
        """`has_pages` by `mincore`."""
        cdef unsigned char[PAGES_MAX] found
        cdef uint64_t at = offset & ~<uint64_t>(PAGE - 1)
        cdef uint64_t behind = offset + size
        cdef size_t n, k
        cdef unsigned char every
        cdef void* pages
        if self.pages == NULL:
            pages = mmap(NULL, self.end, PROT_READ, MAP_SHARED, self.fd, 0)
            if pages == MAP_FAILED:
                return False
            self.pages = <uint8_t*>pages
        if behind > self.end:
            return False
        while at < behind:
            n = min((behind - at + PAGE - 1) // PAGE, <size_t>PAGES_MAX)
            if mincore(self.pages + at, min(n * PAGE, self.end - at), found) != 0:
                return False
            every = 1
            for k in range(n):
                every &= found[k]
            if not every & 1:
                return False
            at += n * PAGE
        return True

    def stretch(self, uint64_t offset, size_t size):
        return stretch_of(self, offset, size, False)


def read_whole(int fd, uint64_t offset, size_t size):
    """Bytes [offset, offset + size) of a file; blocks. Raises OSError."""
    parts = []
    while size:
        part = os.pread(fd, size, offset)
        if not part:
            raise OSError(f"a segment ends {size} bytes too early")
        parts.append(part)
        offset += len(part)
        size -= len(part)
    return b"".join(parts)


cdef Stretch stretch_of(SegmentFile file, uint64_t offset, size_t size, bint there):
    cdef Stretch stretch = Stretch.__new__(Stretch)
    stretch.file = file
    stretch.offset = offset
    stretch.size = size
    stretch.there = there
    file.stretches += 1
    return stretch


cdef class Stretch:
    def __dealloc__(self):
        if self.file is not None:
            self.file.stretches -= 1
            if self.file.ended:
                self.file.close()

    cdef ssize_t send(self, int socket, bint* cold) noexcept:
        cdef int64_t offset = <int64_t>self.offset
        cdef size_t size = min(self.size, <size_t>STRETCH_MOST)
        cdef int fd = self.file.fd
        cdef ssize_t sent
        cold[0] = not self.there and not self.file.has_pages(self.offset, size)
        self.there = False          # if not all of it goes now, there is time for it to leave
        if cold[0]:
            errno = EAGAIN
            return -1
        # Takes as long as a whole turn of messages: threads that read wait for the interpreter's lock meanwhile, and
        # would be woken, in vain, by each callback of the loop.
        with nogil:
            sent = sendfile(socket, fd, &offset, size)
        if sent > 0:
            self.offset += <uint64_t>sent
            self.size -= <size_t>sent
        return sent

    def bring(self):
        cdef int fd = self.file.fd
        cdef uint64_t offset = self.offset
        cdef size_t size = self.size

        def ask():
            self            # so that the file stays open
            os.posix_fadvise(fd, offset, size, os.POSIX_FADV_WILLNEED)

        self.file.submit(ask, bool)

    def load(self, done not None):
        cdef int fd = self.file.fd
        cdef uint64_t offset = self.offset
        cdef size_t size = self.size
        self.loads = True

        def read():
            self            # so that the file stays open
            try:
                return read_whole(fd, offset, size)
            except OSError as error:
                return error

        self.file.submit(read, done)
