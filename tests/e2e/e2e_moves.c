/*
 * Preloaded into programs: a thread that reads words of managed memory at random moments, so that
 * blocks move to the CPU while the program and its kernels use them. Reads through a system call,
 * since memory may be freed at any time. SEED: of the moments and words. At the end standard error
 * gets "moves N".
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define RANGES_MAX 64
#define PAUSE_NS   200000u /* at most */

static uint64_t seed;
static atomic_uint n_moves;

static uint64_t draw(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (seed >> 11) % below;
}

/* A page of managed memory; 0: there is none. */
static uint64_t draw_page(void)
{
    uint64_t from[RANGES_MAX], pages[RANGES_MAX], first, end;
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    uint64_t i, n = 0;

    while (maps && n < RANGES_MAX && fgets(line, sizeof line, maps)) {
        if (strstr(line, "weir-managed") &&
            sscanf(line, "%" SCNx64 "-%" SCNx64, &first, &end) == 2) {
            from[n] = first;
            pages[n++] = (end - first) / 4096;
        }
    }
    if (maps) {
        fclose(maps);
    }
    if (n == 0) {
        return 0;
    }
    i = draw(n);
    return from[i] + draw(pages[i]) * 4096;
}

static void *moves(void *user)
{
    uint64_t word;

    (void)user;
    for (;;) {
        const struct timespec pause = {.tv_nsec = (long)draw(PAUSE_NS)};
        uint64_t page = draw_page();
        struct iovec here = {&word, sizeof word}, there = {(void *)(uintptr_t)page, sizeof word};

        if (page != 0 && process_vm_readv(getpid(), &here, 1, &there, 1, 0) == sizeof word) {
            atomic_fetch_add(&n_moves, 1);
        }
        (void)nanosleep(&pause, NULL);
    }
    return NULL;
}

__attribute__((constructor)) static void begin(void)
{
    const char *text = getenv("SEED");
    pthread_t thread;

    seed = 88172645463325252ull * (text ? strtoull(text, NULL, 10) : 1) + 1;
    (void)pthread_create(&thread, NULL, moves, NULL);
}

__attribute__((destructor)) static void end(void)
{
    dprintf(STDERR_FILENO, "moves %u\n", atomic_load(&n_moves));
}
