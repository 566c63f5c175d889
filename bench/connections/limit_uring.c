/* limit.c on io_uring instead of epoll: multishot accept and receive with buffers that the kernel takes from a ring, and
 * one system call for all sends of a round and the wait for the next one. For ADR 0018; raw system calls, Linux 6.1.
 *
 *     limit_uring PORT
 */
#define main epoll_main
#include "limit.c"
#undef main

#include <linux/io_uring.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { ENTRIES = 4096, BUFFERS = 4096, BUFFER = 4096, GROUP = 1 };
enum { ACCEPT = 1, RECEIVE = 2, SEND = 3 };

static struct {
    int fd;
    unsigned *sq_head, *sq_tail, *sq_array, *cq_head, *cq_tail, sq_mask, cq_mask, to_submit;
    struct io_uring_sqe *sqes;
    struct io_uring_cqe *cqes;
    struct io_uring_buf_ring *buffers;
    uint8_t *memory;
    uint16_t buffers_tail;
} ring;

static uint32_t sending[CLIENTS];                 /* bytes of `out` that the kernel has */
static int gone[CLIENTS];                         /* dropped, and freed when the kernel is done with its output */

static int enter(unsigned wait) {
    int done = (int)syscall(__NR_io_uring_enter, ring.fd, ring.to_submit, wait, IORING_ENTER_GETEVENTS, NULL, 0);
    if (done > 0) ring.to_submit -= (unsigned)done;
    return done;
}

static struct io_uring_sqe *entry(int op, int fd, int what) {
    unsigned tail = *ring.sq_tail;
    while (tail - __atomic_load_n(ring.sq_head, __ATOMIC_ACQUIRE) > ring.sq_mask) enter(0);
    struct io_uring_sqe *sqe = &ring.sqes[tail & ring.sq_mask];
    memset(sqe, 0, sizeof *sqe);
    sqe->opcode = (uint8_t)op;
    sqe->fd = fd;
    sqe->user_data = (uint64_t)what << 32 | (uint32_t)fd;
    ring.sq_array[tail & ring.sq_mask] = tail & ring.sq_mask;
    __atomic_store_n(ring.sq_tail, tail + 1, __ATOMIC_RELEASE);
    ring.to_submit++;
    return sqe;
}

static void give_buffer(int number) {
    struct io_uring_buf *buffer = &ring.buffers->bufs[ring.buffers_tail & (BUFFERS - 1)];
    buffer->addr = (uint64_t)(uintptr_t)(ring.memory + (size_t)number * BUFFER);
    buffer->len = BUFFER;
    buffer->bid = (uint16_t)number;
    __atomic_store_n(&ring.buffers->tail, ++ring.buffers_tail, __ATOMIC_RELEASE);
}

static void want_accepts(int listening) {
    struct io_uring_sqe *sqe = entry(IORING_OP_ACCEPT, listening, ACCEPT);
    sqe->ioprio = IORING_ACCEPT_MULTISHOT;
    sqe->accept_flags = SOCK_NONBLOCK;
}

static void want_input(int fd) {
    struct io_uring_sqe *sqe = entry(IORING_OP_RECV, fd, RECEIVE);
    sqe->ioprio = IORING_RECV_MULTISHOT;
    sqe->flags = IOSQE_BUFFER_SELECT;
    sqe->buf_group = GROUP;
}

static int set_up(void) {
    struct io_uring_params params = {.flags = IORING_SETUP_CQSIZE | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
                                     .cq_entries = 4 * ENTRIES};
    ring.fd = (int)syscall(__NR_io_uring_setup, ENTRIES, &params);
    if (ring.fd < 0) return perror("io_uring_setup"), 1;
    size_t sq_size = params.sq_off.array + params.sq_entries * sizeof(unsigned);
    size_t cq_size = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
    int protection = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_POPULATE;
    uint8_t *rings = mmap(NULL, sq_size > cq_size ? sq_size : cq_size, protection, flags, ring.fd, IORING_OFF_SQ_RING);
    ring.sqes = mmap(NULL, params.sq_entries * sizeof *ring.sqes, protection, flags, ring.fd, IORING_OFF_SQES);
    ring.buffers = mmap(NULL, BUFFERS * sizeof(struct io_uring_buf), protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ring.memory = mmap(NULL, (size_t)BUFFERS * BUFFER, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (rings == MAP_FAILED || ring.sqes == MAP_FAILED || !(params.features & IORING_FEAT_SINGLE_MMAP)) return 1;
    ring.sq_head = (unsigned *)(rings + params.sq_off.head);
    ring.sq_tail = (unsigned *)(rings + params.sq_off.tail);
    ring.sq_array = (unsigned *)(rings + params.sq_off.array);
    ring.sq_mask = params.sq_entries - 1;
    ring.cq_head = (unsigned *)(rings + params.cq_off.head);
    ring.cq_tail = (unsigned *)(rings + params.cq_off.tail);
    ring.cq_mask = params.cq_entries - 1;
    ring.cqes = (struct io_uring_cqe *)(rings + params.cq_off.cqes);
    struct io_uring_buf_reg given = {.ring_addr = (uint64_t)(uintptr_t)ring.buffers, .ring_entries = BUFFERS, .bgid = GROUP};
    if (syscall(__NR_io_uring_register, ring.fd, IORING_REGISTER_PBUF_RING, &given, 1)) return perror("buffers"), 1;
    for (int i = 0; i < BUFFERS; i++) give_buffer(i);
    return 0;
}

static void received(int fd, struct io_uring_cqe *cqe) {
    struct peer *peer = peers[fd];
    if (cqe->res > 0 && cqe->flags & IORING_CQE_F_BUFFER) {
        int number = (int)(cqe->flags >> IORING_CQE_BUFFER_SHIFT);
        if (peer && !gone[fd] && peer->have + (uint32_t)cqe->res <= INPUT) {
            memcpy(peer->in + peer->have, ring.memory + (size_t)number * BUFFER, (size_t)cqe->res);
            peer->have += (uint32_t)cqe->res;
            take(fd);
        }
        give_buffer(number);
    } else if (cqe->res != -ENOBUFS && peer && !gone[fd]) {
        if (sending[fd])
            gone[fd] = 1;
        else
            drop(fd);
        return;
    }
    if (!(cqe->flags & IORING_CQE_F_MORE) && peers[fd] && !gone[fd]) want_input(fd);
}

static void sent(int fd, int result) {
    struct peer *peer = peers[fd];
    sending[fd] = 0;
    if (!peer) return;
    if (gone[fd]) {
        gone[fd] = 0;
        drop(fd);
        return;
    }
    uint32_t n = result > 0 ? (uint32_t)result : 0;
    peer->waiting -= n;
    memmove(peer->out, peer->out + n, peer->waiting);
    if (peer->waiting && result > 0) {
        peer->listed = 1;
        dirty[dirty_count++] = fd;
    }
}

int main(int count, char **words) {
    int one = 1, listening = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (count != 2) return 2;
    address.sin_port = htons((uint16_t)atoi(words[1]));
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(listening, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (bind(listening, (void *)&address, sizeof address) || listen(listening, 4096)) return 1;
    if (set_up()) return 1;
    want_accepts(listening);
    for (;;) {
        if (enter(1) < 0 && errno != EINTR && errno != EAGAIN && errno != EBUSY) return perror("io_uring_enter"), 1;
        unsigned head = *ring.cq_head, tail = __atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE);
        for (; head != tail; head++) {
            struct io_uring_cqe *cqe = &ring.cqes[head & ring.cq_mask];
            int fd = (int)(uint32_t)cqe->user_data, what = (int)(cqe->user_data >> 32);
            if (what == RECEIVE) received(fd, cqe);
            if (what == SEND) sent(fd, cqe->res);
            if (what == ACCEPT) {
                if (cqe->res >= 0 && cqe->res < CLIENTS) {
                    peers[cqe->res] = calloc(1, sizeof(struct peer));
                    want_input(cqe->res);
                }
                if (!(cqe->flags & IORING_CQE_F_MORE)) want_accepts(listening);
            }
        }
        __atomic_store_n(ring.cq_head, head, __ATOMIC_RELEASE);
        int n = dirty_count;
        dirty_count = 0;
        for (int i = 0; i < n; i++) {
            struct peer *peer = peers[dirty[i]];
            if (!peer) continue;
            peer->listed = 0;
            if (gone[dirty[i]] || !peer->waiting) continue;
            if (sending[dirty[i]]) continue;          /* the rest goes when that is through */
            struct io_uring_sqe *sqe = entry(IORING_OP_SEND, dirty[i], SEND);
            sqe->addr = (uint64_t)(uintptr_t)peer->out;
            sqe->len = sending[dirty[i]] = peer->waiting;
            sqe->msg_flags = MSG_NOSIGNAL;
        }
    }
}
