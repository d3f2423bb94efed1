/*
 * check.h: what every CUDA test program shares.
 *
 * A program calls check_begin("name"), makes checks (each prints one line, "ok   label" or
 * "bad  label: why"), and returns check_end(), which prints the verdict and gives the exit status:
 * 0 PASS, 1 FAIL, 77 SKIP. The lines must be the same on every device that can run the program: no
 * addresses, times or device names, so that runs in different arrangements compare as text.
 * stdout is unbuffered, so host lines and device printf keep their order and fork() copies nothing.
 */
#pragma once

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK_UNUSED __attribute__((unused))

static const char *check_name = "?";
static int check_bad_count;
static char check_first_bad[256];

CHECK_UNUSED static void check_begin(const char *name)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    check_name = name;
}

/* Ends the process at once: the rest of the program makes no sense. */
__attribute__((noreturn, format(printf, 1, 2))) CHECK_UNUSED static void
check_die(const char *format, ...)
{
    va_list args;

    printf("FAIL %s: ", check_name);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    exit(1);
}

__attribute__((noreturn)) CHECK_UNUSED static void check_skip(const char *why)
{
    printf("SKIP %s: %s\n", check_name, why);
    exit(77);
}

/* Prints the line of one check; `detail` says what was seen and is printed only when it failed. */
CHECK_UNUSED static int check_detail(int good, const char *label, const char *detail)
{
    if (good) {
        printf("ok   %s\n", label);
        return 1;
    }
    printf("bad  %s: %s\n", label, detail);
    if (check_bad_count++ == 0) {
        snprintf(check_first_bad, sizeof(check_first_bad), "%s: %s", label, detail);
    }
    return 0;
}

CHECK_UNUSED static int check_true(int good, const char *label)
{
    return check_detail(good, label, "does not hold");
}

CHECK_UNUSED static int check_int(long long got, long long want, const char *label)
{
    char detail[96];

    snprintf(detail, sizeof(detail), "got %lld, expected %lld", got, want);
    return check_detail(got == want, label, detail);
}

/* An error code is the result here, so the line shows it. */
CHECK_UNUSED static int check_code(int got, int want, const char *label)
{
    char line[160];
    char detail[64];

    snprintf(line, sizeof(line), "%s -> %d", label, want);
    snprintf(detail, sizeof(detail), "got %d", got);
    return check_detail(got == want, line, detail);
}

CHECK_UNUSED static int check_words(const uint32_t *got, const uint32_t *want, size_t count,
                                    const char *label)
{
    char detail[128] = "";
    size_t i;

    for (i = 0; i < count && got[i] == want[i]; i++) {
    }
    if (i < count) {
        snprintf(detail, sizeof(detail), "[%zu] is 0x%x, expected 0x%x", i, got[i], want[i]);
    }
    return check_detail(i == count, label, detail);
}

/* Every element within `tolerance`, relative for expectations larger than 1. */
CHECK_UNUSED static int check_close(const double *got, const double *want, size_t count,
                                    double tolerance, const char *label)
{
    char detail[128] = "";
    size_t i;

    for (i = 0; i < count; i++) {
        double scale = fabs(want[i]) > 1.0 ? fabs(want[i]) : 1.0;
        if (!(fabs(got[i] - want[i]) <= tolerance * scale)) {
            snprintf(detail, sizeof(detail), "[%zu] is %.17g, expected %.17g", i, got[i], want[i]);
            break;
        }
    }
    return check_detail(i == count, label, detail);
}

CHECK_UNUSED static int check_end(void)
{
    if (check_bad_count != 0) {
        printf("FAIL %s: %s\n", check_name, check_first_bad);
        return 1;
    }
    printf("PASS %s\n", check_name);
    return 0;
}

/* The numbers every program fills its inputs with: the high bits of a 32-bit LCG. */
CHECK_UNUSED static uint32_t check_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

#ifdef __CUDACC__

#include <cuda_runtime.h>

/* The call must succeed, otherwise the program ends with FAIL. */
#define RT(call) check_runtime((call), #call, __LINE__)

CHECK_UNUSED static void check_runtime(cudaError_t error, const char *text, int line)
{
    if (error != cudaSuccess) {
        check_die("line %d: %s gave %d (%s)", line, text, (int)error, cudaGetErrorName(error));
    }
}

/* After a launch: it was accepted, and the device has finished it without a fault. */
CHECK_UNUSED static void check_launch(void)
{
    RT(cudaGetLastError());
    RT(cudaDeviceSynchronize());
}

template <class T> static T *device_new(size_t count)
{
    T *p = NULL;

    RT(cudaMalloc((void **)&p, count * sizeof(T)));
    RT(cudaMemset(p, 0, count * sizeof(T)));
    RT(cudaDeviceSynchronize()); /* other streams do not wait for a thread's default stream */
    return p;
}

template <class T> static T *to_device(const T *host, size_t count)
{
    T *p = NULL;

    RT(cudaMalloc((void **)&p, count * sizeof(T)));
    RT(cudaMemcpy(p, host, count * sizeof(T), cudaMemcpyHostToDevice));
    return p;
}

template <class T> static void to_host(T *host, const T *device, size_t count)
{
    RT(cudaMemcpy(host, device, count * sizeof(T), cudaMemcpyDeviceToHost));
}

template <class T> static T *host_new(size_t count)
{
    T *p = (T *)calloc(count, sizeof(T));

    if (!p) {
        check_die("out of host memory");
    }
    return p;
}

/* Copies the device's numbers back and compares them bit by bit. */
template <class T>
static int check_device(const T *device, const T *want, size_t count, const char *label)
{
    T *got = host_new<T>(count);
    char detail[96] = "";
    size_t i;

    to_host(got, device, count);
    for (i = 0; i < count && memcmp(&got[i], &want[i], sizeof(T)) == 0; i++) {
    }
    if (i < count) {
        snprintf(detail, sizeof(detail), "element %zu of %zu differs", i, count);
    }
    free(got);
    return check_detail(i == count, label, detail);
}

CHECK_UNUSED static int device_attribute(enum cudaDeviceAttr attribute)
{
    int value = 0;

    RT(cudaDeviceGetAttribute(&value, attribute, 0));
    return value;
}

#endif /* __CUDACC__ */
