/* Clients that come and go: `count` of them connect, log in as a script says, and leave; `window` of them at a time.
 *
 * A script is the bytes of each step and the answer that the next step waits for: an MQTT packet by its type, with
 * a return code of 0, or an AMQP method by class and method. With `keep` the clients stay until the last one has
 * its last answer. With `overlap`, and one at a time, each leaves when the next one has. TLS is OpenSSL, without a
 * check of the certificate, each connection with a handshake of its own.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"

enum { MQTT = 1, AMQP = 2, KEPT = 4096, EVENTS = 512, DIGITS = 8 };

struct step {
    const uint8_t *bytes;
    uint32_t size;
    uint32_t wanted;                 /* MQTT: the packet's type; AMQP: class << 16 | method */
};

struct plan {
    int protocol, port, count, window, keep, overlap, tls;
    int steps;
    const struct step *script;
    int number_at;                   /* in step 0: where 8 digits differ for each client; -1 = nowhere */
    const uint8_t *goodbye;
    uint32_t goodbye_size;
    double patience_s;
};

struct figures {
    uint64_t elapsed_ns, answered, refused, slowest_ns;
};

struct client {
    int fd, step, number, connecting;
    SSL *ssl;
    uint32_t kept;
    uint64_t since_ns;
    uint8_t rest[KEPT];
};

/* 1: the answer is there; 0: not yet; -1: a refusal. */
static int answered(const struct plan *plan, struct client *c) {
    uint32_t wanted = plan->script[c->step].wanted, at = 0;
    int found = 0;
    while (!found) {
        const uint8_t *p = c->rest + at;
        uint32_t left = c->kept - at, size;
        if (plan->protocol == MQTT) {
            if (left < 2 || left < 2u + p[1]) break;
            size = 2u + p[1];
            if (p[0] != wanted || (p[0] == 0x20 && p[3])) return -1;
            found = 1;
        } else {
            if (left < 8) break;
            size = 8 + ((uint32_t)p[3] << 24 | (uint32_t)p[4] << 16 | (uint32_t)p[5] << 8 | p[6]);
            if (left < size) break;
            if (p[0] == 1) {
                uint32_t method = (uint32_t)p[7] << 24 | (uint32_t)p[8] << 16 | (uint32_t)p[9] << 8 | p[10];
                if (method == (10u << 16 | 50u) || p[0] == 'A') return -1;
                found = method == wanted;
            }
        }
        at += size;
    }
    memmove(c->rest, c->rest + at, c->kept - at);
    c->kept -= at;
    return found;
}

static int say(struct client *c, const uint8_t *p, uint32_t n) {
    if (c->ssl) return SSL_write(c->ssl, p, (int)n) == (int)n ? 0 : -1;
    return send(c->fd, p, n, MSG_NOSIGNAL) == (ssize_t)n ? 0 : -1;
}

static int say_step(const struct plan *plan, struct client *c) {
    uint8_t bytes[KEPT];
    const struct step *step = &plan->script[c->step];
    memcpy(bytes, step->bytes, step->size);
    if (c->step == 0 && plan->number_at >= 0)
        for (int i = DIGITS - 1, n = c->number; i >= 0; i--, n /= 10) bytes[plan->number_at + i] = (uint8_t)('0' + n % 10);
    return say(c, bytes, step->size);
}

/* 1: done; 0: more is to come; -1: refused. */
static int go_on(const struct plan *plan, struct client *c) {
    if (c->connecting) {
        int error = 0;
        socklen_t size = sizeof error;
        if (c->connecting == 1) {
            if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &size) || error) return -1;
            c->connecting = 2;
        }
        if (c->ssl) {
            int done = SSL_connect(c->ssl);
            if (done != 1) {
                int why = SSL_get_error(c->ssl, done);
                return why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE ? 0 : -1;
            }
        }
        c->connecting = 0;
        if (say_step(plan, c)) return -1;
    }
    for (;;) {
        int got, found;
        if (c->ssl) {
            got = SSL_read(c->ssl, c->rest + c->kept, (int)(KEPT - c->kept));
            if (got <= 0 && SSL_get_error(c->ssl, got) == SSL_ERROR_WANT_READ) return 0;
        } else {
            got = (int)recv(c->fd, c->rest + c->kept, KEPT - c->kept, 0);
            if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
        }
        if (got <= 0) return -1;
        c->kept += (uint32_t)got;
        while ((found = answered(plan, c)) == 1) {
            if (++c->step == plan->steps) return 1;
            if (say_step(plan, c)) return -1;
        }
        if (found < 0) return -1;
    }
}

static void leave(struct client *c) {
    if (c->ssl) SSL_free(c->ssl);
    c->ssl = NULL;
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
}

static int begin(const struct plan *plan, struct client *c, SSL_CTX *context, int poll) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)plan->port)};
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = c};
    int one = 1;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    c->step = 0;
    c->kept = 0;
    c->connecting = 1;
    c->since_ns = now_ns();
    if (c->fd < 0) return -1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(c->fd, (struct sockaddr *)&to, sizeof to) && errno != EINPROGRESS) return -1;
    if (plan->tls) {
        c->ssl = SSL_new(context);
        SSL_set_fd(c->ssl, c->fd);
        SSL_set_connect_state(c->ssl);
    }
    return epoll_ctl(poll, EPOLL_CTL_ADD, c->fd, &event);
}

struct run {
    struct client before;            /* with `overlap`: the one that is to be taken over */
    const struct plan *plan;
    struct figures *figures;
    SSL_CTX *context;
    int poll, next, open;
};

/* The next client takes the place of `c`, if there is one more. */
static void follow(struct run *run, struct client *c) {
    while (run->next < run->plan->count) {
        c->number = run->next++;
        c->fd = -1;
        if (!begin(run->plan, c, run->context, run->poll)) {
            run->open++;
            return;
        }
        leave(c);
    }
}

static void look(struct run *run, int wait_ms) {
    const struct plan *plan = run->plan;
    struct epoll_event events[EVENTS];
    int n = epoll_wait(run->poll, events, EVENTS, wait_ms);
    for (int i = 0; i < n; i++) {
        struct client *c = events[i].data.ptr;
        int done = c->fd < 0 || c->step == plan->steps ? 0 : go_on(plan, c);
        if (!done) continue;
        run->open--;
        uint64_t took = now_ns() - c->since_ns;
        if (took > run->figures->slowest_ns) run->figures->slowest_ns = took;
        if (done > 0) {
            run->figures->answered++;
            if (plan->keep) continue;
            if (plan->goodbye_size) say(c, plan->goodbye, plan->goodbye_size);
        }
        if (plan->overlap) {
            epoll_ctl(run->poll, EPOLL_CTL_DEL, c->fd, NULL);
            leave(&run->before);
            run->before = *c;
            c->ssl = NULL;
        } else
            leave(c);
        follow(run, c);
    }
}

int come_and_go(const struct plan *plan, struct figures *figures) {
    struct run run = {.plan = plan, .figures = figures, .poll = epoll_create1(EPOLL_CLOEXEC)};
    struct client *clients = calloc((size_t)plan->window, sizeof *clients);
    run.before.fd = -1;
    run.context = plan->tls ? SSL_CTX_new(TLS_client_method()) : NULL;
    memset(figures, 0, sizeof *figures);
    uint64_t first = now_ns(), end = first + (uint64_t)(plan->patience_s * 1e9);
    for (int i = 0; i < plan->window; i++) {
        clients[i].fd = -1;
        follow(&run, &clients[i]);
        if (i % 64 == 63) look(&run, 0);
    }
    while (run.open && now_ns() < end) look(&run, 100);
    figures->elapsed_ns = now_ns() - first;
    figures->refused = (uint64_t)plan->count - figures->answered;
    for (int i = 0; i < plan->window; i++)
        if (clients[i].fd >= 0) {
            if (plan->goodbye_size && clients[i].step == plan->steps) say(&clients[i], plan->goodbye, plan->goodbye_size);
            leave(&clients[i]);
        }
    leave(&run.before);
    if (run.context) SSL_CTX_free(run.context);
    close(run.poll);
    free(clients);
    return 0;
}
