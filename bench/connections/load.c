/* The clients of `python -m bench.connections`: one thread with one epoll that moves messages over open connections.
 *
 * A publisher sends its frame again and again; the time of sending stands in the first 8 bytes of the payload. Open load:
 * so many messages per second over all publishers, in turn. Closed load: a publisher has `window` frames under way, and
 * sends the next one when one is acknowledged. A consumer takes apart what comes, notes how long each message was under
 * way, and acknowledges where that is asked for. Logins and subscriptions are the caller's, in Python. TLS is OpenSSL's,
 * without a check of the certificate. WebSocket frames are masked with zeros, which leaves their bytes as they are.
 */
#define _GNU_SOURCE
#include <endian.h>
#include <errno.h>
#include <openssl/ssl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"

enum { MQTT = 1, AMQP = 2, AMQP10 = 3 };
enum { READ_AT_ONCE = 1 << 18, KEPT = 1 << 12, EVENTS = 256, FRAME_HEAD = 10 };

struct plan {
    int protocol, size;              /* size: bytes of a payload, at least 8 */
    int publishers, consumers;
    const int *publisher_fds, *consumer_fds;
    uint8_t *frames;                 /* of all publishers, one after the other */
    const uint32_t *frame_at;        /* where each begins; publishers + 1 numbers */
    int closed, window;
    int acknowledgement_bytes;       /* of one, as a publisher gets it; 0 = none comes */
    int acknowledges;                /* AMQP: consumers acknowledge what a read brought; MQTT: QoS 1 always is */
    double rate, seconds;
    uint64_t *latencies_ns;          /* of the first `room` messages */
    uint64_t room;
    uint64_t stop_after;             /* so many messages in all, and then only deliveries; 0 = by time */
    uint64_t copies;                 /* deliveries of each message */
    SSL **tls;                       /* of publishers, then of consumers; NULL = plain */
    int frames_ws;                   /* bytes come and go in WebSocket frames */
    int id_at;                       /* AMQP 1.0: where a frame has its delivery-id, four bytes; its tag stands 6 behind */
    uint32_t *ids;                   /* AMQP 1.0: the next one of each publisher */
};

struct figures {
    uint64_t sent, answered, delivered, elapsed_ns, slowest_gap_ns;
};

struct client {
    int fd, publisher;               /* publisher: its number, -1 = a consumer */
    SSL *ssl;
    int ws;
    uint32_t head_size;              /* bytes of the head of a WebSocket frame that is not complete */
    uint64_t frame_left;             /* bytes of the payload of the frame that is being read */
    uint8_t head[FRAME_HEAD];
    uint32_t kept;                   /* bytes of an incomplete packet; of a publisher, of an acknowledgement */
    int32_t owed;                    /* frames that it may send */
    uint64_t last_ns;
    uint64_t tag;
    uint8_t rest[KEPT];
};

SSL *tls_open(int fd) {
    static SSL_CTX *context;
    if (!context) context = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(context);
    SSL_set_fd(ssl, fd);
    if (SSL_connect(ssl) == 1) return ssl;
    SSL_free(ssl);
    return NULL;
}

int tls_send(SSL *ssl, const void *p, int n) { return SSL_write(ssl, p, n); }

int tls_receive(SSL *ssl, void *p, int n) { return SSL_read(ssl, p, n); }

void tls_close(SSL *ssl) { SSL_free(ssl); }

/* Bytes of payloads in p[0, n), moved to the front of it. */
static size_t unframed(struct client *client, uint8_t *p, size_t n) {
    size_t at = 0, kept = 0;
    while (at < n) {
        if (client->frame_left) {
            size_t size = client->frame_left < n - at ? (size_t)client->frame_left : n - at;
            memmove(p + kept, p + at, size);
            kept += size;
            at += size;
            client->frame_left -= size;
            continue;
        }
        client->head[client->head_size++] = p[at++];
        uint32_t size = client->head_size, kind = size > 1 ? client->head[1] & 127 : 0;
        uint32_t whole = kind == 127 ? 10 : kind == 126 ? 4 : 2;
        if (size < whole) continue;
        client->frame_left = whole == 2 ? kind : 0;
        for (uint32_t i = 2; i < whole; i++) client->frame_left = client->frame_left << 8 | client->head[i];
        client->head_size = 0;
    }
    return kept;
}

/* As recv: 0 = the end, -1 = nothing now or a fault, by errno. */
static ssize_t get(struct client *client, uint8_t *p, size_t room) {
    ssize_t got = 0;
    if (client->ssl) {
        while ((size_t)got < room) {
            int n = SSL_read(client->ssl, p + got, (int)(room - (size_t)got));
            if (n > 0) {
                got += n;
                continue;
            }
            if (SSL_get_error(client->ssl, n) != SSL_ERROR_WANT_READ) return got;
            break;
        }
    } else {
        got = recv(client->fd, p, room, MSG_DONTWAIT);
        if (got <= 0) return got;
    }
    if (client->ws) got = (ssize_t)unframed(client, p, (size_t)got);
    if (got) return got;
    errno = EAGAIN;
    return -1;
}

static int put(struct client *client, const uint8_t *p, size_t n) {
    while (n) {
        if (client->ssl) {
            int done = SSL_write(client->ssl, p, (int)n);
            if (done > 0) return 0;
            int why = SSL_get_error(client->ssl, done);
            if (why == SSL_ERROR_WANT_WRITE || why == SSL_ERROR_WANT_READ) continue;
            return -1;
        }
        ssize_t sent = send(client->fd, p, n, MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno == EINTR || errno == EAGAIN) continue;
            return -1;
        }
        p += sent;
        n -= (size_t)sent;
    }
    return 0;
}

static int publish(const struct plan *plan, struct client *client, struct figures *figures) {
    uint32_t begin = plan->frame_at[client->publisher], end = plan->frame_at[client->publisher + 1];
    uint64_t now = now_ns();
    memcpy(plan->frames + end - plan->size - (plan->protocol == AMQP), &now, 8);
    if (plan->protocol == AMQP10) {
        uint32_t number = htobe32(plan->ids[client->publisher]++);
        memcpy(plan->frames + begin + plan->id_at, &number, 4);
        memcpy(plan->frames + begin + plan->id_at + 6, &number, 4);
    }
    figures->sent++;
    return put(client, plan->frames + begin, end - begin);
}

static void arrived(const struct plan *plan, struct figures *figures, const uint8_t *payload, uint64_t now) {
    uint64_t then;
    memcpy(&then, payload, 8);
    if (figures->delivered < plan->room) plan->latencies_ns[figures->delivered] = now - then;
    figures->delivered++;
}

/* Bytes of whole packets in p[0, n); what they acknowledge goes to `answer`. */
static size_t take_mqtt(const struct plan *plan, struct figures *figures, const uint8_t *p, size_t n, uint64_t now,
                        uint8_t *answer, size_t *answer_size) {
    size_t at = 0;
    for (;;) {
        size_t size = 0, width = 0;
        if (n - at < 2) return at;
        do {
            if (at + 1 + width >= n || width == 4) return at;
            size |= (size_t)(p[at + 1 + width] & 127) << (7 * width);
        } while (p[at + 1 + width++] & 128);
        if (n - at < 1 + width + size) return at;
        if (p[at] >> 4 == 3) {
            const uint8_t *payload = p + at + 1 + width + size - plan->size;
            arrived(plan, figures, payload, now);
            if (p[at] >> 1 & 3) {
                memcpy(answer + *answer_size, "\x40\x02", 2);
                memcpy(answer + *answer_size + 2, payload - 2, 2);
                *answer_size += 4;
            }
        }
        at += 1 + width + size;
    }
}

static size_t take_amqp(const struct plan *plan, struct figures *figures, struct client *client, const uint8_t *p, size_t n,
                        uint64_t now) {
    size_t at = 0;
    for (;;) {
        if (n - at < 8) return at;
        size_t size = (size_t)p[at + 3] << 24 | (size_t)p[at + 4] << 16 | (size_t)p[at + 5] << 8 | p[at + 6];
        if (n - at < 8 + size) return at;
        if (p[at] == 3) arrived(plan, figures, p + at + 7, now);
        if (p[at] == 1 && size > 12 && p[at + 8] == 60 && p[at + 10] == 60) {
            const uint8_t *tag = p + at + 12 + p[at + 11];
            client->tag = 0;
            for (int i = 0; i < 8; i++) client->tag = client->tag << 8 | tag[i];
        }
        at += 8 + size;
    }
}

static int take(const struct plan *plan, struct figures *figures, struct client *client, uint8_t *buffer) {
    uint8_t room[8 + READ_AT_ONCE / 16], *answer = room + 8;
    size_t answer_size = 0, done, n;
    uint64_t now;
    memcpy(buffer, client->rest, client->kept);
    ssize_t got = get(client, buffer + client->kept, READ_AT_ONCE);
    if (got == 0) return -3;
    if (got < 0) return errno == EAGAIN || errno == EINTR ? 0 : -4;
    now = now_ns();
    n = client->kept + (size_t)got;
    uint64_t before = figures->delivered;
    if (plan->protocol == MQTT)
        done = take_mqtt(plan, figures, buffer, n, now, answer, &answer_size);
    else
        done = take_amqp(plan, figures, client, buffer, n, now);
    if (n - done > KEPT) return -5;
    client->kept = (uint32_t)(n - done);
    memcpy(client->rest, buffer + done, client->kept);
    if (plan->protocol == AMQP && plan->acknowledges && figures->delivered > before) {
        static const uint8_t head[] = {1, 0, 1, 0, 0, 0, 13, 0, 60, 0, 80};
        memcpy(answer, head, sizeof head);
        for (int i = 0; i < 8; i++) answer[11 + i] = (uint8_t)(client->tag >> (56 - 8 * i));
        answer[19] = 1;                                   /* all up to this one */
        answer[20] = 0xCE;
        answer_size = 21;
    }
    if (answer_size && client->ws) {
        /* One frame with a mask of zeros in front of all. */
        size_t head = answer_size < 126 ? 6 : 8;
        answer -= head;
        memset(answer, 0, head);
        answer[0] = 0x82;
        if (head == 6)
            answer[1] = (uint8_t)(0x80 | answer_size);
        else {
            answer[1] = 0xFE;
            answer[2] = (uint8_t)(answer_size >> 8);
            answer[3] = (uint8_t)answer_size;
        }
        answer_size += head;
    }
    return answer_size ? put(client, answer, answer_size) : 0;
}

/* Bytes of whole frames in p[0, n); the dispositions among them are counted. */
static size_t take_dispositions(const uint8_t *p, size_t n, int *count) {
    size_t at = 0;
    for (;;) {
        if (n - at < 11) return at;
        size_t size = (size_t)p[at] << 24 | (size_t)p[at + 1] << 16 | (size_t)p[at + 2] << 8 | p[at + 3];
        if (n - at < size) return at;
        *count += p[at + 8] == 0 && p[at + 9] == 0x53 && p[at + 10] == 0x15;
        at += size;
    }
}

static int acknowledged(const struct plan *plan, struct figures *figures, struct client *client, uint8_t *buffer,
                        int more) {
    int whole = 0;
    if (plan->protocol == AMQP10) memcpy(buffer, client->rest, client->kept);
    ssize_t got = get(client, plan->protocol == AMQP10 ? buffer + client->kept : buffer, READ_AT_ONCE);
    if (got == 0) return -3;
    if (got < 0) return errno == EAGAIN || errno == EINTR ? 0 : -4;
    if (!plan->closed || !plan->acknowledgement_bytes) return 0;
    client->kept += (uint32_t)got;
    if (plan->protocol == AMQP10) {
        size_t done = take_dispositions(buffer, client->kept, &whole);
        if (client->kept - done > KEPT) return -5;
        client->kept -= (uint32_t)done;
        memcpy(client->rest, buffer + done, client->kept);
    } else {
        whole = (int)(client->kept / (uint32_t)plan->acknowledgement_bytes);
        client->kept %= (uint32_t)plan->acknowledgement_bytes;
    }
    if (!whole) return 0;
    uint64_t now = now_ns();
    if (client->last_ns && now - client->last_ns > figures->slowest_gap_ns) figures->slowest_gap_ns = now - client->last_ns;
    client->last_ns = now;
    /* One acknowledgement of AMQP may be for several. */
    if (plan->protocol != MQTT) whole = plan->window;
    figures->answered += (uint64_t)whole;
    while (more && whole-- > 0)
        if (publish(plan, client, figures)) return -2;
    return 0;
}

int drive(const struct plan *plan, struct figures *figures) {
    int poll = epoll_create1(EPOLL_CLOEXEC), all = plan->publishers + plan->consumers, failed = 0, next = 0;
    struct client *clients = calloc((size_t)all, sizeof *clients);
    struct epoll_event event, events[EVENTS];
    uint8_t *buffer = malloc(READ_AT_ONCE + KEPT);
    memset(figures, 0, sizeof *figures);
    for (int i = 0; i < all; i++) {
        clients[i].publisher = i < plan->publishers ? i : -1;
        clients[i].ssl = plan->tls ? plan->tls[i] : NULL;
        clients[i].ws = plan->frames_ws;
        clients[i].fd = i < plan->publishers ? plan->publisher_fds[i] : plan->consumer_fds[i - plan->publishers];
        event.events = EPOLLIN;
        event.data.ptr = &clients[i];
        if (epoll_ctl(poll, EPOLL_CTL_ADD, clients[i].fd, &event)) failed = -1;
    }
    uint64_t begin = now_ns(), end = begin + (uint64_t)(plan->seconds * 1e9), now = begin;
    uint64_t patience = end + 20000000000u;
    for (int k = 0; plan->closed && k < plan->window; k++)
        for (int i = 0; i < plan->publishers && !failed; i++) failed = publish(plan, &clients[i], figures);
    uint64_t quiet_since = 0;
    while (!failed) {
        now = now_ns();
        int more = plan->stop_after ? figures->sent < plan->stop_after : now < end;
        if (!more) {
            /* Over when nothing came for 0.2 s: what a broker drops never comes. By number, nothing is dropped,
             * and a broker that has to share a slow machine gets a minute for each. */
            if (!quiet_since) quiet_since = now, end = plan->stop_after ? now : end;
            int missing = plan->stop_after && figures->delivered < figures->sent * plan->copies;
            int unanswered = plan->closed && plan->acknowledgement_bytes && figures->answered < figures->sent;
            if (!plan->copies && unanswered && now < patience) goto wait;
            if (!plan->copies || now - quiet_since > (missing ? 60000000000u : 200000000u)) break;
            if (!plan->stop_after && now > patience) break;
        }
        if (!plan->closed && more) {
            uint64_t due = (uint64_t)((double)(now - begin) * 1e-9 * plan->rate);
            for (int burst = 0; figures->sent < due && burst < 128 && !failed; burst++) {
                failed = publish(plan, &clients[next], figures);
                next = (next + 1) % plan->publishers;
            }
        }
    wait:;
        struct timespec wait = {0, !plan->closed && more ? 50000 : 1000000};
        int n = epoll_pwait2(poll, events, EVENTS, &wait, NULL);
        for (int i = 0; i < n && !failed; i++) {
            struct client *client = events[i].data.ptr;
            if (client->publisher >= 0)
                failed = acknowledged(plan, figures, client, buffer, more);
            else {
                uint64_t before = figures->delivered;
                failed = take(plan, figures, client, buffer);
                if (!more && figures->delivered != before) quiet_since = now;
            }
        }
    }
    figures->elapsed_ns = (now < end ? now : end) - begin;
    close(poll);
    free(clients);
    free(buffer);
    return failed;
}
