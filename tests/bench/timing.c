#include "tests/bench/timing.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LATENCY_MAX 1000000

static struct {
    float *us;
    size_t n;
    double sum;
} latencies;

double bench_now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

void bench_pause_us(double us)
{
    struct timespec t = {(time_t)(us / 1e6), (long)(us * 1e3) % 1000000000};

    nanosleep(&t, NULL);
}

void bench_wait_until_ms(double ms)
{
    double left_ms = ms - bench_now_ms();

    if (left_ms > 0.2) {
        bench_pause_us((left_ms - 0.2) * 1e3);
    }
    while (bench_now_ms() < ms) {
    }
}

void bench_latency_add(double us)
{
    if (!latencies.us) {
        latencies.us = malloc(LATENCY_MAX * sizeof *latencies.us);
        if (!latencies.us) {
            fprintf(stderr, "no memory for latencies\n");
            exit(1);
        }
    }
    if (latencies.n < LATENCY_MAX) {
        latencies.us[latencies.n++] = (float)us;
        latencies.sum += us;
    }
}

static int compare(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

void bench_latency_print(void)
{
    size_t n = latencies.n;

    if (n != 0) {
        qsort(latencies.us, n, sizeof *latencies.us, compare);
        printf("latency us p50 %.1f p99 %.1f max %.1f mean %.1f n %zu\n",
               (double)latencies.us[n / 2], (double)latencies.us[n * 99 / 100],
               (double)latencies.us[n - 1], latencies.sum / (double)n, n);
    }
    free(latencies.us);
    latencies.us = NULL;
    latencies.n = 0;
    latencies.sum = 0;
}
