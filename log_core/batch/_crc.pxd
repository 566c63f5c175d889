from libc.stdint cimport uint8_t, uint32_t

# The CRC-32C of what `crc` covers followed by p[0, n); crc = 0 for a start.
cdef uint32_t crc32c_of(uint32_t crc, const uint8_t* p, size_t n) noexcept nogil
