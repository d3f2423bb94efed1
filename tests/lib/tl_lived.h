/*
 * What time this process has lived: the clock without the time for which its threads wanted a
 * processor and had none, because others use the machine, too. A limit in this time tells who
 * sleeps too long from who was not let run. A thread that ends takes its share along: measure
 * before it does. Where the kernel does not count (no schedstat), it is the clock.
 */
#pragma once

#include <dirent.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

/* Several threads may wait at once, for a longer time together than it took. */
#define TL_LIVED_LEAST_PART 16

struct tl_lived {
    int64_t clock_ns;
    int64_t waited_ns; /* all threads' together, so far */
};

static inline struct tl_lived tl_lived_now(void)
{
    struct timespec now;
    struct dirent *task;
    struct tl_lived lived = {0};

    clock_gettime(CLOCK_MONOTONIC, &now);
    lived.clock_ns = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
    DIR *tasks = opendir("/proc/self/task");
    while (tasks && (task = readdir(tasks))) {
        char path[300];
        int64_t ran_ns, waited_ns;
        snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", task->d_name);
        FILE *file = fopen(path, "re");
        if (!file) {
            continue; /* ".", "..", or it has ended */
        }
        if (fscanf(file, "%" SCNd64 " %" SCNd64, &ran_ns, &waited_ns) == 2) {
            lived.waited_ns += waited_ns;
        }
        fclose(file);
    }
    if (tasks) {
        closedir(tasks);
    }
    return lived;
}

/* From the one moment to the other: no longer than the clock, and a part of it at least. */
static inline uint64_t tl_lived_between_ns(struct tl_lived from, struct tl_lived to)
{
    int64_t clock_ns = to.clock_ns - from.clock_ns, waited_ns = to.waited_ns - from.waited_ns;
    int64_t least_ns = clock_ns / TL_LIVED_LEAST_PART;

    waited_ns = waited_ns > 0 ? waited_ns : 0;
    return (uint64_t)(clock_ns - waited_ns > least_ns ? clock_ns - waited_ns : least_ns);
}

static inline uint64_t tl_lived_since_ns(struct tl_lived from)
{
    return tl_lived_between_ns(from, tl_lived_now());
}
