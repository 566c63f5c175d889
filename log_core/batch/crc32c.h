/* CRC-32C (Castagnoli, reflected polynomial 0x82F63B78), as iSCSI, ext4 and Kafka's batches use it.
 *
 * Two ways, chosen once at run time: the SSE4.2 instruction over three interleaved streams (the
 * instruction has a latency of 3 cycles and a throughput of 1, so one stream leaves two thirds of it
 * idle), or slicing by 8 tables. The CRC of a concatenation is the CRC of the first part advanced over
 * as many zero bytes as the second part has, xor the CRC of the second; "advance over 8192 (256) zeros"
 * is a linear map kept as 4 tables of 256 words.
 *
 * Source: M. Adler, "crc32c.c" (the method); RFC 3720 B.4 (test vectors).
 */
#ifndef PENSTOCK_CRC32C_H
#define PENSTOCK_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CRC32C_POLY 0x82F63B78u
#define CRC32C_LONG 8192
#define CRC32C_SHORT 256

static uint32_t crc32c_slice[8][256];
static uint32_t crc32c_zeros_long[4][256];
static uint32_t crc32c_zeros_short[4][256];
static int crc32c_has_instruction;

static uint32_t crc32c_times(const uint32_t *matrix, uint32_t vector)
{
    uint32_t sum = 0;
    for (; vector; vector >>= 1, matrix++)
        if (vector & 1)
            sum ^= *matrix;
    return sum;
}

static void crc32c_square(uint32_t *square, const uint32_t *matrix)
{
    for (int n = 0; n < 32; n++)
        square[n] = crc32c_times(matrix, matrix[n]);
}

/* The tables of the map "advance over `length` zero bytes"; `length` is a power of two. */
static void crc32c_make_zeros(uint32_t zeros[4][256], size_t length)
{
    uint32_t even[32], odd[32], *have = odd, *next = even, row = 1;
    odd[0] = CRC32C_POLY; /* one zero bit */
    for (int n = 1; n < 32; n++, row <<= 1)
        odd[n] = row;
    for (size_t bits = 1; bits < length * 8; bits <<= 1) {
        uint32_t *swap = have;
        crc32c_square(next, have);
        have = next;
        next = swap;
    }
    for (uint32_t n = 0; n < 256; n++)
        for (int byte = 0; byte < 4; byte++)
            zeros[byte][n] = crc32c_times(have, n << (8 * byte));
}

static inline uint32_t crc32c_advance(uint32_t zeros[4][256], uint32_t crc)
{
    return zeros[0][crc & 0xff] ^ zeros[1][(crc >> 8) & 0xff] ^ zeros[2][(crc >> 16) & 0xff] ^
           zeros[3][crc >> 24];
}

/* Call once before crc32c_update. */
static void crc32c_prepare(void)
{
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t crc = n;
        for (int k = 0; k < 8; k++)
            crc = crc & 1 ? (crc >> 1) ^ CRC32C_POLY : crc >> 1;
        crc32c_slice[0][n] = crc;
    }
    for (uint32_t n = 0; n < 256; n++)
        for (int k = 1; k < 8; k++)
            crc32c_slice[k][n] =
                (crc32c_slice[k - 1][n] >> 8) ^ crc32c_slice[0][crc32c_slice[k - 1][n] & 0xff];
    crc32c_make_zeros(crc32c_zeros_long, CRC32C_LONG);
    crc32c_make_zeros(crc32c_zeros_short, CRC32C_SHORT);
#if defined(__x86_64__)
    __builtin_cpu_init();
    crc32c_has_instruction = __builtin_cpu_supports("sse4.2");
#endif
}

static uint32_t crc32c_by_table(uint32_t crc, const uint8_t *p, size_t n)
{
    crc = ~crc;
    for (; n >= 8; n -= 8, p += 8) {
        uint32_t low = crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        crc = crc32c_slice[7][low & 0xff] ^ crc32c_slice[6][(low >> 8) & 0xff] ^
              crc32c_slice[5][(low >> 16) & 0xff] ^ crc32c_slice[4][low >> 24] ^ crc32c_slice[3][p[4]] ^
              crc32c_slice[2][p[5]] ^ crc32c_slice[1][p[6]] ^ crc32c_slice[0][p[7]];
    }
    while (n--)
        crc = (crc >> 8) ^ crc32c_slice[0][(crc ^ *p++) & 0xff];
    return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_by_instruction(uint32_t start, const uint8_t *p,
                                                                        size_t n)
{
    uint64_t a = (uint32_t)~start, b, c, word;
#define CRC32C_THREE(block, zeros)                                                   \
    while (n >= 3 * (block)) {                                                       \
        b = c = 0;                                                                   \
        for (size_t k = 0; k < (block); k += 8) {                                    \
            memcpy(&word, p + k, 8);                                                 \
            a = __builtin_ia32_crc32di(a, word);                                     \
            memcpy(&word, p + (block) + k, 8);                                       \
            b = __builtin_ia32_crc32di(b, word);                                     \
            memcpy(&word, p + 2 * (block) + k, 8);                                   \
            c = __builtin_ia32_crc32di(c, word);                                     \
        }                                                                            \
        a = crc32c_advance(zeros, (uint32_t)a) ^ b;                                  \
        a = crc32c_advance(zeros, (uint32_t)a) ^ c;                                  \
        p += 3 * (block);                                                            \
        n -= 3 * (block);                                                            \
    }
    CRC32C_THREE(CRC32C_LONG, crc32c_zeros_long)
    CRC32C_THREE(CRC32C_SHORT, crc32c_zeros_short)
#undef CRC32C_THREE
    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&word, p, 8);
        a = __builtin_ia32_crc32di(a, word);
    }
    while (n--)
        a = __builtin_ia32_crc32qi((uint32_t)a, *p++);
    return ~(uint32_t)a;
}
#endif

/* The CRC of what `crc` covers followed by p[0..n); crc = 0 for a start. */
static inline uint32_t crc32c_update(uint32_t crc, const uint8_t *p, size_t n)
{
#if defined(__x86_64__)
    if (crc32c_has_instruction)
        return crc32c_by_instruction(crc, p, n);
#endif
    return crc32c_by_table(crc, p, n);
}

#endif
