/* The same work as a worker's, in C: what this machine allows at best. For bench_sessions_per_core.py.

   client PORT SESSIONS WINDOW_S WINDOWS CHURN_PER_S: holds so many sessions with agent.c, of 50 s each, so that about
   CHURN_PER_S of them start and end in a second: a frame every 20 ms, staggered over 20 slots, absolute deadlines, frames
   encoded once; packets read with kernel stamps, placed on a track that is kept, energies of 10 ms, onsets found.
   Speaks for a second in every four. Prints CPU and lateness by window. */
#include "wire.h"

enum { SLOTS = 20, MAX = 4096, CYCLE = 200, SPEECH = 50, TRACK_S = 64, LATE_BINS = 200000, RX = 65536 };

typedef struct {
    int fd, slot, frame, n_rest, run, n_energies, active;
    double zero_s, queued_s;
    double *energies;
    int16_t *track;
    long placed;
    uint8_t rest[2048];
} Session;

static Session sessions[MAX];
static int by_fd[65536], epoll_fd, n_port;
static uint8_t frames[SPEECH][8 + FRAME_BYTES], silence[8 + FRAME_BYTES];
static long late_bins[LATE_BINS], n_frames, n_packets, n_onsets;
static uint8_t rx[RX];

static void encode(uint8_t *into, const int16_t *samples) {
    static const uint8_t mask[4] = {0x37, 0xfa, 0x21, 0x3d};
    into[0] = 0x82, into[1] = 0x80 | 126, into[2] = FRAME_BYTES >> 8, into[3] = FRAME_BYTES & 255;
    memcpy(into + 4, mask, 4);
    const uint8_t *bytes = (const uint8_t *)samples;
    for (int i = 0; i < FRAME_BYTES; i++) into[8 + i] = bytes[i] ^ mask[i & 3];
}

static void dial(Session *session, int number) {
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_port = htons((uint16_t)n_port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    static int named;
    char request[300], reply[1024];
    session->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(session->fd, (struct sockaddr *)&place, sizeof place) != 0) {
        perror("connect");
        exit(1);
    }
    int n = snprintf(request, sizeof request,
                     "GET /?session=c-%d HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                     "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n", named++);
    (void)!write(session->fd, request, (size_t)n);
    n = 0;
    do n += (int)read(session->fd, reply + n, sizeof reply - 1 - (size_t)n), reply[n] = 0;
    while (strstr(reply, "\r\n\r\n") == NULL);
    make_quick(session->fd);
    int on = 1;
    setsockopt(session->fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
    session->slot = number % SLOTS;
    session->frame = session->n_rest = session->run = session->n_energies = 0;
    session->placed = 0;
    session->queued_s = 0;
    session->active = 1;
    by_fd[session->fd] = number;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = session->fd};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, session->fd, &event);
}

static void place(Session *session, const uint8_t *payload, int n, double at_s) {
    long start = lround((at_s - session->zero_s) * RATE_HZ);
    if (start < session->placed) start = session->placed;
    if (start < 0 || start + n / 2 > (long)TRACK_S * RATE_HZ) return;
    memcpy(session->track + start, payload, (size_t)n);
    for (int i = 0; i + 160 <= n / 2; i += 160) {
        double energy = energy_of((const int16_t *)payload + i, 160);
        session->energies[session->n_energies++ % (TRACK_S * 100)] = energy;
        session->run = is_loud(energy, 160) ? session->run + 1 : 0;
        if (session->run == 5) n_onsets++;
    }
    session->placed = start + n / 2;
    n_packets++;
}

static void look(Session *session, double ahead_s) {
    struct iovec part = {rx, RX};
    char control[64];
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t n = recvmsg(session->fd, &message, 0);
    if (n <= 0) return;
    double at_s = now_s();
    struct cmsghdr *found = CMSG_FIRSTHDR(&message);
    if (found != NULL && found->cmsg_type == SO_TIMESTAMPNS) {
        struct timespec *stamp = (struct timespec *)CMSG_DATA(found);
        at_s = stamp->tv_sec + stamp->tv_nsec * 1e-9 - ahead_s;
    }
    uint8_t *data = rx;
    if (session->n_rest > 0) { /* the incremental way: what was left, and what came */
        memcpy(session->rest + session->n_rest, rx, (size_t)n);
        data = session->rest;
        n += session->n_rest;
        session->n_rest = 0;
    }
    while (n >= 4) {
        int body = 2, length = data[1] & 0x7F;
        if (length == 126) length = data[2] << 8 | data[3], body = 4;
        if (n < body + length) break;
        if (data[0] == 0x82) place(session, data + body, length, at_s);
        data += body + length;
        n -= body + length;
    }
    if (n > 0 && n < (ssize_t)sizeof session->rest) memmove(session->rest, data, (size_t)n), session->n_rest = (int)n;
}

static void hang_up(Session *session) {
    static const uint8_t goodbye[] = {0x88, 0x82, 0, 0, 0, 0, 0x03, 0xE8};
    (void)!send(session->fd, goodbye, sizeof goodbye, MSG_NOSIGNAL);
    close(session->fd);
}

static double late_ms(double share) {
    long seen = 0;
    for (int i = 0; i < LATE_BINS; i++)
        if ((seen += late_bins[i]) >= share * n_frames) return i * 0.01;
    return 0.0;
}

int main(int n_arguments, char **arguments) {
    if (n_arguments < 6) return 2;
    n_port = atoi(arguments[1]);
    int n_sessions = atoi(arguments[2]), window_s = atoi(arguments[3]), windows = atoi(arguments[4]);
    double churn = atof(arguments[5]);
    int session_frames = churn > 0 ? (int)(50.0 * n_sessions / churn) : 1 << 30;
    int16_t samples[FRAME_SAMPLES] = {0};
    encode(silence, samples);
    for (int i = 0; i < SPEECH; i++) {
        make_noise(samples, FRAME_SAMPLES, (uint32_t)i + 7);
        encode(frames[i], samples);
    }
    epoll_fd = epoll_create1(0);
    for (int i = 0; i < n_sessions; i++) {
        sessions[i].track = calloc(TRACK_S * RATE_HZ, 2);
        sessions[i].energies = calloc(TRACK_S * 100, sizeof(double));
    }
    int ticker = tick_every_ms(1, 0), dialled = 0, window = 0;
    struct epoll_event ready[1024];
    double begun_s = now_s(), next_s = begun_s, ramp_s = n_sessions / 25.0, from_s = begun_s + ramp_s + 3, cpu_before_s = 0;
    int slot = 0;
    while (window < windows) {
        uint64_t expired;
        (void)!read(ticker, &expired, 8);
        double at_s = now_s();
        if (dialled < n_sessions && at_s - begun_s > dialled / 25.0) {
            sessions[dialled].zero_s = now_s();
            dial(&sessions[dialled], dialled);
            /* spread over the life of a session, so that later as many start and end in a second as they should */
            sessions[dialled].frame = -(int)(rand() % CYCLE);
            dialled++;
        }
        while (next_s <= at_s) {
            for (int i = slot; i < dialled; i += SLOTS) {
                Session *session = &sessions[i];
                int at = session->frame < 0 ? CYCLE - 1 : session->frame % CYCLE;
                (void)!send(session->fd, at < SPEECH ? frames[at] : silence, 8 + FRAME_BYTES, MSG_NOSIGNAL);
                int bin = (int)((now_s() - next_s) * 1e5);
                late_bins[bin < 0 ? 0 : bin < LATE_BINS ? bin : LATE_BINS - 1]++;
                n_frames++;
                if (++session->frame > session_frames * (0.75 + 0.5 * (i % 64) / 64.0)) {
                    hang_up(session);
                    session->zero_s = now_s();
                    dial(session, i);
                }
            }
            slot = (slot + 1) % SLOTS;
            next_s += 0.001;
        }
        double ahead_s = realtime_ahead_s();
        int n = epoll_wait(epoll_fd, ready, 1024, 0);
        for (int i = 0; i < n; i++) look(&sessions[by_fd[ready[i].data.fd]], ahead_s);
        if (at_s >= from_s) {
            if (cpu_before_s > 0) {
                double used_s = cpu_s() - cpu_before_s;
                printf("window cpu=%.4f ms_per_session_s=%.4f late_p50=%.2f late_p99=%.2f late_max=%.2f frames=%ld packets=%ld\n",
                       used_s / window_s, 1000 * used_s / window_s / n_sessions, late_ms(0.5), late_ms(0.99), late_ms(1.0),
                       n_frames, n_packets);
                fflush(stdout);
                window++;
            }
            cpu_before_s = cpu_s();
            memset(late_bins, 0, sizeof late_bins);
            n_frames = n_packets = 0;
            from_s += window_s;
        }
    }
    return 0;
}
