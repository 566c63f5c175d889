"""CRC-32C of a buffer, by the processor's instruction where it has one (see crc32c.h)."""

from libc.stdint cimport uint8_t, uint32_t


cdef extern from "crc32c.h" nogil:
    void crc32c_prepare()
    uint32_t crc32c_update(uint32_t crc, const uint8_t* p, size_t n)
    uint32_t crc32c_by_table(uint32_t crc, const uint8_t* p, size_t n)


crc32c_prepare()


cdef uint32_t crc32c_of(uint32_t crc, const uint8_t* p, size_t n) noexcept nogil:
    return crc32c_update(crc, p, n)


def crc32c(const uint8_t[::1] buffer not None, uint32_t crc=0):
    if buffer.shape[0] == 0:
        return crc
    return crc32c_update(crc, &buffer[0], <size_t>buffer.shape[0])


def crc32c_portable(const uint8_t[::1] buffer not None, uint32_t crc=0):
    if buffer.shape[0] == 0:
        return crc
    return crc32c_by_table(crc, &buffer[0], <size_t>buffer.shape[0])
