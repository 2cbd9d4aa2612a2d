/* The agent of bench_sessions_per_core.py: hears when the user's speech has ended, and answers with two seconds of noise.

   agent PORT LOG [ANSWER_MS] [DELAY_MS]: a WebSocket server of raw PCM16 at 16 kHz, for hundreds of sessions on one core.
   It listens on loopback only. LOG gets the lines of mock-server's truth log, so that measured latencies can be held
   against it; SIGTERM writes what is left of it and prints how late the agent's own packets were.

   Built with -DTLS and OpenSSL it speaks wss, with the certificate and key in the file that AGENT_PEM names. */
#include "wire.h"

#ifdef TLS
#include <openssl/ssl.h>
#endif

enum { MAX_FDS = 8192, HEAD_BYTES = 4096, ENDED_FRAMES = 10, LATE_BINS = 100000 };

typedef struct {
    int open, upgraded, loud, quiet_frames, answering, sent, n_head, n_rest;
    double ended_s, due_s;
    char session[80], head[HEAD_BYTES];
    uint8_t rest[4096];
#ifdef TLS
    SSL *tls;
#endif
} Peer;

static Peer *peers;
static int live[MAX_FDS], n_live, epoll_fd, answer_frames = 100;
static double delay_s = 0.3;
static uint8_t answer[4 + FRAME_BYTES];
static FILE *truth;
static long late_bins[LATE_BINS];
static volatile sig_atomic_t over;

static void on_term(int signal) { (void)signal; over = 1; }

#ifdef TLS
static SSL_CTX *context;

static int listen_for_tls(void) {
    const char *pem = getenv("AGENT_PEM");
    context = SSL_CTX_new(TLS_server_method());
    if (pem == NULL || SSL_CTX_use_certificate_chain_file(context, pem) != 1) return 0;
    SSL_CTX_set_read_ahead(context, 1); /* a read of the socket for a record, not two */
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
    return SSL_CTX_use_PrivateKey_file(context, pem, SSL_FILETYPE_PEM) == 1;
}

static void secure(int fd) {
    peers[fd].tls = SSL_new(context);
    SSL_set_fd(peers[fd].tls, fd);
    SSL_set_accept_state(peers[fd].tls);
}

static void unsecure(int fd) { SSL_free(peers[fd].tls); }

/* As recv and send: reading shakes hands first. */
static ssize_t receive(int fd, void *into, size_t room) {
    int n = SSL_read(peers[fd].tls, into, (int)room);
    if (n > 0) return n;
    int why = SSL_get_error(peers[fd].tls, n);
    errno = EAGAIN;
    return why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE ? -1 : 0;
}

static ssize_t give(int fd, const void *from, size_t n) { return SSL_write(peers[fd].tls, from, (int)n); }
static int holds_more(int fd) { return SSL_has_pending(peers[fd].tls); }
#else
static int listen_for_tls(void) { return 1; }
static void secure(int fd) { (void)fd; }
static void unsecure(int fd) { (void)fd; }
static ssize_t receive(int fd, void *into, size_t room) { return recv(fd, into, room, 0); }
static ssize_t give(int fd, const void *from, size_t n) { return send(fd, from, n, MSG_NOSIGNAL); }
static int holds_more(int fd) { return (void)fd, 0; }
#endif

static void sha1(const uint8_t *data, size_t n, uint8_t out[20]) {
    uint32_t h[5] = {0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0};
    uint8_t block[256] = {0};
    memcpy(block, data, n);
    block[n] = 0x80;
    size_t blocks = (n + 9 + 63) / 64;
    for (int i = 0; i < 8; i++) block[blocks * 64 - 1 - i] = (uint8_t)((n * 8) >> (8 * i));
    for (size_t b = 0; b < blocks; b++) {
        uint32_t w[80], a = h[0], bb = h[1], c = h[2], d = h[3], e = h[4];
        for (int i = 0; i < 16; i++) {
            const uint8_t *p = block + b * 64 + 4 * i;
            w[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
        }
        for (int i = 16; i < 80; i++) {
            uint32_t x = w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16];
            w[i] = x << 1 | x >> 31;
        }
        for (int i = 0; i < 80; i++) {
            uint32_t f, k;
            if (i < 20) f = (bb & c) | (~bb & d), k = 0x5A827999;
            else if (i < 40) f = bb ^ c ^ d, k = 0x6ED9EBA1;
            else if (i < 60) f = (bb & c) | (bb & d) | (c & d), k = 0x8F1BBCDC;
            else f = bb ^ c ^ d, k = 0xCA62C1D6;
            uint32_t next = (a << 5 | a >> 27) + f + e + k + w[i];
            e = d, d = c, c = bb << 30 | bb >> 2, bb = a, a = next;
        }
        h[0] += a, h[1] += bb, h[2] += c, h[3] += d, h[4] += e;
    }
    for (int i = 0; i < 20; i++) out[i] = (uint8_t)(h[i / 4] >> (24 - 8 * (i % 4)));
}

static void base64_20(const uint8_t in[20], char out[29]) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint8_t padded[21] = {0};
    memcpy(padded, in, 20);
    for (int i = 0; i < 7; i++) {
        uint32_t v = (uint32_t)padded[3 * i] << 16 | (uint32_t)padded[3 * i + 1] << 8 | padded[3 * i + 2];
        for (int j = 0; j < 4; j++) out[4 * i + j] = digits[v >> (18 - 6 * j) & 63];
    }
    out[27] = '=';
    out[28] = 0;
}

static void note(const Peer *peer, int fd, const char *event, double t_s) {
    fprintf(truth, "{\"t\": %.6f, \"event\": \"%s\", \"connection\": %d, \"session\": \"%s\"}\n", t_s, event, fd,
            peer->session);
}

static void let_go(int fd) {
    for (int i = 0; i < n_live; i++)
        if (live[i] == fd) {
            live[i] = live[--n_live];
            break;
        }
    peers[fd].open = 0;
    unsecure(fd);
    close(fd);
}

/* 1: upgraded; 0: more is needed; -1: no WebSocket. */
static int upgrade(int fd, Peer *peer) {
    char *end = strstr(peer->head, "\r\n\r\n");
    if (end == NULL) return peer->n_head + 1 >= HEAD_BYTES ? -1 : 0;
    char *key = strcasestr(peer->head, "sec-websocket-key:");
    if (key == NULL) return -1;
    char joined[128], accept[29], reply[256];
    uint8_t digest[20];
    int n_key = 0;
    for (key += 18; *key == ' '; key++) {}
    while (key[n_key] != '\r' && n_key < 60) n_key++;
    int n = snprintf(joined, sizeof joined, "%.*s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", n_key, key);
    sha1((uint8_t *)joined, (size_t)n, digest);
    base64_20(digest, accept);
    char *named = strstr(peer->head, "session=");
    if (named != NULL) sscanf(named + 8, "%79[A-Za-z0-9._-]", peer->session);
    n = snprintf(reply, sizeof reply,
                 "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                 "Sec-WebSocket-Accept: %s\r\n\r\n", accept);
    if (give(fd, reply, (size_t)n) != n) return -1;
    int n_left = peer->n_head - (int)(end + 4 - peer->head);
    memcpy(peer->rest, end + 4, (size_t)n_left);
    peer->n_rest = n_left;
    peer->upgraded = 1;
    return 1;
}

static void hear(int fd, Peer *peer, uint8_t *payload, int n, const uint8_t mask[4], double at_s) {
    int16_t samples[FRAME_SAMPLES];
    if (n > FRAME_BYTES) return;
    uint32_t word;
    memcpy(&word, mask, 4);
    uint32_t *words = (uint32_t *)samples;
    memcpy(samples, payload, (size_t)n);
    for (int i = 0; i < n / 4; i++) words[i] ^= word;
    if (is_loud(energy_of(samples, n / 2), n / 2)) {
        peer->loud = 1;
        peer->quiet_frames = 0;
        peer->ended_s = at_s;
    } else if (peer->loud && ++peer->quiet_frames == ENDED_FRAMES) {
        peer->loud = 0;
        note(peer, fd, "user_speech_end", peer->ended_s);
        peer->answering = 1;
        peer->sent = 0;
        peer->due_s = at_s + delay_s;
    }
}

/* 0: the line is over. */
static int take(int fd, Peer *peer, double at_s) {
    int at = 0;
    while (peer->n_rest - at >= 6) {
        uint8_t *frame = peer->rest + at;
        int n = frame[1] & 0x7F, body = 6;
        if (n == 126) {
            if (peer->n_rest - at < 8) break;
            n = frame[2] << 8 | frame[3];
            body = 8;
        }
        if (body + n > (int)sizeof peer->rest) return 0;
        if (peer->n_rest - at < body + n) break;
        if ((frame[0] & 0x0F) == 8) {
            static const uint8_t goodbye[] = {0x88, 2, 0x03, 0xE8};
            (void)!give(fd, goodbye, sizeof goodbye);
            return 0;
        }
        if ((frame[0] & 0x0F) == 2) hear(fd, peer, frame + body, n, frame + body - 4, at_s);
        at += body + n;
    }
    peer->n_rest -= at;
    memmove(peer->rest, peer->rest + at, (size_t)peer->n_rest);
    return 1;
}

static int read_from(int fd, Peer *peer) {
    uint8_t *into = peer->upgraded ? peer->rest + peer->n_rest : (uint8_t *)peer->head + peer->n_head;
    int room = peer->upgraded ? (int)sizeof peer->rest - peer->n_rest : HEAD_BYTES - 1 - peer->n_head;
    int n = (int)receive(fd, into, (size_t)room);
    if (n < 0) return errno == EAGAIN;
    if (n == 0) return 0;
    if (peer->upgraded) {
        peer->n_rest += n;
        return take(fd, peer, now_s());
    }
    peer->n_head += n;
    peer->head[peer->n_head] = 0;
    int found = upgrade(fd, peer);
    return found < 0 ? 0 : found == 0 ? 1 : take(fd, peer, now_s());
}

/* As `read_from`, until nothing is left that has been read and not yet decrypted: no socket would tell of that. */
static int read_all(int fd, Peer *peer) {
    int goes_on;
    do {
        errno = 0;
        goes_on = read_from(fd, peer);
    } while (goes_on && errno != EAGAIN && holds_more(fd)); /* half a record is held, too */
    return goes_on;
}

static void speak(int fd, Peer *peer) {
    double at_s = now_s();
    while (peer->answering && peer->due_s <= at_s) {
        if (give(fd, answer, sizeof answer) != (ssize_t)sizeof answer) {
            peer->answering = 0; /* a tester that does not read: its answer is over */
            return;
        }
        if (peer->sent == 0) note(peer, fd, "first_audio", now_s());
        int bin = (int)((now_s() - peer->due_s) * 1e5);
        late_bins[bin < 0 ? 0 : bin < LATE_BINS ? bin : LATE_BINS - 1]++;
        peer->due_s += FRAME_MS * 1e-3;
        if (++peer->sent == answer_frames) peer->answering = 0;
    }
}

static double late_ms(double share) {
    long n = 0, seen = 0;
    for (int i = 0; i < LATE_BINS; i++) n += late_bins[i];
    for (int i = 0; i < LATE_BINS; i++)
        if ((seen += late_bins[i]) >= share * n) return i * 0.01;
    return 0.0;
}

int main(int n_arguments, char **arguments) {
    if (n_arguments < 3) return 2;
    truth = fopen(arguments[2], "w");
    if (truth == NULL || !listen_for_tls()) return 2;
    signal(SIGPIPE, SIG_IGN);
    if (n_arguments > 3) answer_frames = atoi(arguments[3]) / FRAME_MS;
    if (n_arguments > 4) delay_s = atof(arguments[4]) * 1e-3;
    peers = calloc(MAX_FDS, sizeof *peers);
    answer[0] = 0x82, answer[1] = 126, answer[2] = FRAME_BYTES >> 8, answer[3] = FRAME_BYTES & 255;
    int16_t noise[FRAME_SAMPLES];
    make_noise(noise, FRAME_SAMPLES, 1);
    memcpy(answer + 4, noise, FRAME_BYTES);
    signal(SIGTERM, on_term);
    int listening = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(arguments[1])),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listening, (struct sockaddr *)&place, sizeof place) != 0 || listen(listening, 1024) != 0) {
        perror("bind");
        return 2;
    }
    fcntl(listening, F_SETFL, O_NONBLOCK);
    socklen_t size = sizeof place;
    getsockname(listening, (struct sockaddr *)&place, &size);
    printf("ready %d\n", ntohs(place.sin_port));
    fflush(stdout);
    epoll_fd = epoll_create1(0);
    int ticker = tick_every_ms(1, TFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listening}, ready[256];
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listening, &event);
    event.data.fd = ticker;
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, ticker, &event);
    while (!over) {
        int n = epoll_wait(epoll_fd, ready, 256, -1);
        for (int i = 0; i < n; i++) {
            int fd = ready[i].data.fd;
            if (fd == ticker) {
                uint64_t expired;
                (void)!read(ticker, &expired, 8);
                for (int k = 0; k < n_live; k++) speak(live[k], &peers[live[k]]);
            } else if (fd == listening) {
                int accepted;
                while ((accepted = accept(listening, NULL, NULL)) >= 0) {
                    if (accepted >= MAX_FDS) {
                        close(accepted);
                        continue;
                    }
                    make_quick(accepted);
                    memset(&peers[accepted], 0, sizeof(Peer));
                    peers[accepted].open = 1;
                    secure(accepted);
                    live[n_live++] = accepted;
                    event.data.fd = accepted;
                    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, accepted, &event);
                }
            } else if (peers[fd].open && !read_all(fd, &peers[fd])) {
                let_go(fd);
            }
        }
    }
    fclose(truth);
    printf("late_ms p50=%.2f p99=%.2f max=%.2f cpu_s=%.2f\n", late_ms(0.5), late_ms(0.99), late_ms(1.0), cpu_s());
    return 0;
}
