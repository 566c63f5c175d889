# cython: auto_pickle=False
"""Batches to and from files: one gathered write per tick, one positioned read per cold read. And names.

Nothing here decides where in a file something goes. Both directions work on the batches' own memory: what
is written is what the tail cache keeps, and what is read is checked in place and kept.
"""

from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.errno cimport EINTR, EINVAL, ENOENT, ENOSYS, errno
from libc.stdint cimport int64_t, uint8_t, uint64_t

from penstock.log_core.batch._batch cimport (
    BATCH_HEADER, KIND_BLOCK, KIND_DELAYED, KIND_RECORDS, Batch, BatchHeader, Found, Slab, check_batch, new_slab,
    view_batch,
)
from penstock.log_core.batch._blocks cimport take_contents

import os

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len
    ssize_t pwritev(int fd, const iovec* vector, int count, int64_t offset)

cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int fd, void* buffer, size_t count, int64_t offset)
    long syscall(long number, int at, const char* source, int to, const char* target, unsigned int flags)

cdef extern from "<sys/syscall.h>":
    const long SYS_renameat2

cdef extern from "<fcntl.h>":
    const int AT_FDCWD

cdef enum:
    VECTOR_MAX = 1024                # IOV_MAX of Linux
    RENAME_EXCHANGE = 2              # the C library may be older than the call
    NOGIL_BYTES = 32768              # a smaller write is over sooner than the interpreter lock is handed back


def exchange(bytes one not None, bytes other not None):
    cdef const char* first = one
    cdef const char* second = other
    cdef long failed
    cdef int code
    with nogil:
        failed = syscall(SYS_renameat2, AT_FDCWD, first, AT_FDCWD, second, RENAME_EXCHANGE)
        code = errno
    if failed and code not in (ENOENT, EINVAL, ENOSYS):
        raise OSError(code, os.strerror(code), os.fsdecode(one), None, os.fsdecode(other))
    return not failed


def write_batches(int fd, list batches not None, uint64_t offset, uint64_t skip=0):
    return write_gathered(fd, batches, offset, skip)


cdef uint64_t write_gathered(int fd, list batches, uint64_t offset, uint64_t skip) except? 0:
    cdef iovec vector[VECTOR_MAX]
    cdef Py_ssize_t k = 0, n = PyList_GET_SIZE(batches)
    cdef int count
    cdef size_t size, length
    cdef ssize_t wrote
    cdef uint64_t done = 0
    cdef Batch batch
    cdef uint8_t* at
    cdef int part
    while k < n:
        count = 0
        size = 0
        while k < n and count + 2 <= VECTOR_MAX:
            batch = <Batch>PyList_GET_ITEM(batches, k)
            k += 1
            for part in range(2):
                at = <uint8_t*>batch.header if part == 0 else <uint8_t*>batch.blob
                length = batch.head_size if part == 0 else batch.nbytes - batch.head_size
                if skip >= length:
                    skip -= length
                    continue
                vector[count].iov_base = at + skip
                vector[count].iov_len = length - skip
                size += length - skip
                skip = 0
                count += 1
        if size == 0:
            continue
        while True:
            if size < NOGIL_BYTES:
                wrote = pwritev(fd, vector, count, <int64_t>(offset + done))
            else:
                with nogil:
                    wrote = pwritev(fd, vector, count, <int64_t>(offset + done))
            if wrote >= 0 or errno != EINTR:
                break
        if wrote < 0:
            if done:
                return done
            raise OSError(errno, os.strerror(errno))
        done += <uint64_t>wrote
        if <size_t>wrote < size:
            return done
    return done


cdef ssize_t pread_all(int fd, uint8_t* buffer, size_t size, uint64_t offset) noexcept nogil:
    cdef size_t done = 0
    cdef ssize_t got
    while done < size:
        got = pread(fd, buffer + done, size - done, <int64_t>(offset + done))
        if got < 0:
            if errno == EINTR:
                continue
            return -1
        if got == 0:
            break
        done += <size_t>got
    return <ssize_t>done


def read_batches(int fd, uint64_t offset, uint64_t end, uint64_t want, uint64_t from_lsn):
    cdef Slab slab
    cdef ssize_t got
    cdef size_t at = 0, need, decoded = 0
    cdef int verdict
    cdef Found found
    cdef BatchHeader* header
    cdef list batches = []
    cdef Batch batch
    want = min(want, end - offset) if offset < end else 0
    while True:
        if want < BATCH_HEADER:
            return batches, None
        slab = new_slab(want)
        with nogil:
            got = pread_all(fd, slab.data, want, offset)
        if got < 0:
            raise OSError(errno, os.strerror(errno))
        at = 0
        need = 0
        while True:
            if <size_t>got - at < BATCH_HEADER:
                break
            header = <BatchHeader*>(slab.data + at)
            if header.len > <size_t>got - at and offset + at + header.len <= end:
                need = header.len            # goes on behind what was read
                break
            with nogil:
                verdict = check_batch(slab.data + at, <size_t>got - at, &found)
            if verdict == 0:
                return batches, (offset + at, "zeros where a batch was written", 0, 0)
            if verdict < 0:
                return batches, (offset + at, found.reason.decode(), found.crc_expected, found.crc_found)
            if ((header.kind == KIND_RECORDS or header.kind == KIND_DELAYED)
                    and header.base_lsn + header.count > from_lsn):
                batch = view_batch(slab.data + at, slab)
                batches.append(batch)
            elif header.kind == KIND_BLOCK and header.base_pos > from_lsn:
                if decoded >= want:
                    return batches, None     # enough: blocks grow when they are decoded
                try:
                    take_contents(header, batches, from_lsn)
                except ValueError as error:
                    return batches, (offset + at, str(error), 0, 0)
                decoded += header.raw
            at += found.length
        if batches or offset + at >= end:
            return batches, None
        # Nothing wanted yet: go on behind what was read; one batch may be larger than `want`.
        if <size_t>got < want:
            return batches, (offset + at, "the file ends here", 0, 0)
        offset += at
        want = min(max(want, <uint64_t>need), end - offset)
