/* The least that an MQTT 3.1.1 broker does on this kernel: one epoll, one recv for each read, one send for each receiver
 * of a round. It checks nothing, keeps nothing and is no broker: a yardstick for `python -m bench.connections`.
 *
 *     limit PORT      on 127.0.0.1; topics end in five digits, filters in five digits or in #
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CLIENTS = 65536, NUMBERS = 100000, INPUT = 1 << 16, OUTPUT = 1 << 19, EVENTS = 256 };

struct peer {
    uint32_t have, waiting;
    int listed;
    uint8_t in[INPUT], out[OUTPUT];
};

static struct peer *peers[CLIENTS];
static int receiver[NUMBERS];                     /* of a number: descriptor, 0 = nobody */
static int everything[4096], everything_count;    /* who subscribed to # */
static int dirty[CLIENTS], dirty_count;

static void say(int fd, const void *p, uint32_t n) {
    struct peer *peer = peers[fd];
    if (!peer || peer->waiting + n > OUTPUT) return;
    memcpy(peer->out + peer->waiting, p, n);
    peer->waiting += n;
    if (!peer->listed) {
        peer->listed = 1;
        dirty[dirty_count++] = fd;
    }
}

static int number(const uint8_t *end) {
    int n = 0;
    for (int i = 5; i; i--) n = 10 * n + (end[-i] - '0');
    return n;
}

static void publish(int fd, const uint8_t *packet, const uint8_t *body, uint32_t size) {
    uint8_t message[8192], answer[4] = {0x40, 2};
    uint32_t topic = (uint32_t)body[0] << 8 | body[1], head = 1, left, skip = packet[0] & 6 ? 2 : 0, rest;
    if (skip) {
        memcpy(answer + 2, body + 2 + topic, 2);
        say(fd, answer, 4);
    }
    if (size > sizeof message - 8) return;
    left = rest = size - skip;
    message[0] = 0x30;
    do {
        message[head++] = (uint8_t)((left & 127) | (left > 127 ? 128 : 0));
        left >>= 7;
    } while (left);
    memcpy(message + head, body, 2 + topic);
    memcpy(message + head + 2 + topic, body + 2 + topic + skip, rest - 2 - topic);
    int to = receiver[number(body + 2 + topic)];
    if (to) say(to, message, head + rest);
    for (int i = 0; i < everything_count; i++) say(everything[i], message, head + rest);
}

static void take(int fd) {
    struct peer *peer = peers[fd];
    const uint8_t *p = peer->in, *end = p + peer->have;
    for (;;) {
        const uint8_t *body = p + 1;
        uint32_t size = 0, shift = 0;
        if (end - p < 2) break;
        while (body < end && shift < 28) {
            size |= (uint32_t)(*body & 127) << shift;
            shift += 7;
            if (!(*body++ & 128)) break;
        }
        if (size > (uint32_t)(end - body)) break;
        int kind = *p >> 4;
        if (kind == 1) say(fd, "\x20\x02\0\0", 4);
        if (kind == 3) publish(fd, p, body, size);
        if (kind == 8) {
            uint8_t answer[5] = {0x90, 3, body[0], body[1], body[size - 1]};
            const uint8_t *filter_end = body + size - 1;
            if (filter_end[-1] == '#')
                everything[everything_count++ % 4096] = fd;
            else
                receiver[number(filter_end)] = fd;
            say(fd, answer, 5);
        }
        p = body + size;
    }
    peer->have = (uint32_t)(end - p);
    memmove(peer->in, p, peer->have);
}

static void drop(int fd) {
    close(fd);
    for (int i = 0; i < everything_count; i++)
        if (everything[i] == fd) everything[i--] = everything[--everything_count];
    for (int i = 0; i < NUMBERS; i++)
        if (receiver[i] == fd) receiver[i] = 0;
    free(peers[fd]);
    peers[fd] = NULL;
}

int main(int count, char **words) {
    int one = 1, listening = socket(AF_INET, SOCK_STREAM, 0), poll = epoll_create1(0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listening}, events[EVENTS];
    if (count != 2) return 2;
    address.sin_port = htons((uint16_t)atoi(words[1]));
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listening, (void *)&address, sizeof address) || listen(listening, 4096)) return 1;
    epoll_ctl(poll, EPOLL_CTL_ADD, listening, &event);
    for (;;) {
        int n = epoll_wait(poll, events, EVENTS, -1), left = 0;
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd == listening) {
                int accepted = accept4(fd, NULL, NULL, SOCK_NONBLOCK);
                if (accepted < 0 || accepted >= CLIENTS) continue;
                setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                peers[accepted] = calloc(1, sizeof(struct peer));
                event.data.fd = accepted;
                epoll_ctl(poll, EPOLL_CTL_ADD, accepted, &event);
                continue;
            }
            struct peer *peer = peers[fd];
            ssize_t got = recv(fd, peer->in + peer->have, INPUT - peer->have, 0);
            if (got > 0) {
                peer->have += (uint32_t)got;
                take(fd);
            } else if (got == 0 || errno != EAGAIN)
                drop(fd);
        }
        for (int i = 0; i < dirty_count; i++) {
            struct peer *peer = peers[dirty[i]];
            if (!peer) continue;
            ssize_t sent = send(dirty[i], peer->out, peer->waiting, MSG_NOSIGNAL);
            if (sent < 0) sent = 0;
            peer->waiting -= (uint32_t)sent;
            memmove(peer->out, peer->out + sent, peer->waiting);
            peer->listed = peer->waiting > 0;
            if (peer->listed) dirty[left++] = dirty[i];
        }
        dirty_count = left;
    }
}
