/* What the load programs measure with: the clock, pauses, and times of single kernels. */
#pragma once

#include <stddef.h>

/** Milliseconds of CLOCK_MONOTONIC, which all processes share. */
double bench_now_ms(void);

/** Sleep for so many microseconds. */
void bench_pause_us(double us);

/** Wait until bench_now_ms() is so far: the last bit of it awake. */
void bench_wait_until_ms(double ms);

/** Keep a time, in microseconds; beyond a million of them they are dropped. @thread one */
void bench_latency_add(double us);

/** Print "latency us p50 P p99 P max M mean A n N" of those kept, and forget them. Nothing for
 * none. @thread the same */
void bench_latency_print(void);
