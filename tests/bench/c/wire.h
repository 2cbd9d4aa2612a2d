/* What agent and client of the benchmark share: clocks, samples, percentiles, WebSocket headers. Linux only. */
#ifndef WIRE_H
#define WIRE_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { RATE_HZ = 16000, FRAME_SAMPLES = 320, FRAME_BYTES = 640, FRAME_MS = 20 };

static inline double now_s(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec + ts.tv_nsec * 1e-9;
}

static inline double realtime_ahead_s(void) {
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return ts.tv_sec + ts.tv_nsec * 1e-9 - now_s();
}

static inline double cpu_s(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec + 1e-6 * (used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

static inline int tick_every_ms(int period_ms, int flags) {
    int fd = timerfd_create(CLOCK_MONOTONIC, flags);
    struct itimerspec spec = {{0, period_ms * 1000000L}, {0, period_ms * 1000000L}};
    timerfd_settime(fd, 0, &spec, NULL);
    return fd;
}

static inline void make_quick(int fd) {
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(fd, F_SETFL, O_NONBLOCK);
}

/* Noise at -20 dBFS: loud in every analysis frame, from its first sample on. */
static inline void make_noise(int16_t *samples, int n, uint32_t seed) {
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        samples[i] = (int16_t)((int)(seed >> 16) % 11350 - 5675);
    }
}

static inline double energy_of(const int16_t *samples, int n) {
    double energy = 0.0;
    for (int i = 0; i < n; i++) energy += (double)samples[i] * samples[i];
    return energy;
}

/* -45 dBFS RMS. */
static inline int is_loud(double energy, int n) { return energy >= n * 32768.0 * 32768.0 * pow(10.0, -4.5); }

#endif
