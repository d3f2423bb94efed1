/*
 * Round trips over each transport: bench_roundtrip [COUNT]. Prints p50 and p99 in microseconds of a
 * 64-byte record echoed by another thread: with both ends spinning, and with both asleep in
 * between.
 */
#include "base/clock.h"
#include "tests/lib/tl_pair.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

struct echo {
    struct weir_transport *t;
    uint64_t spin_ns;
    size_t count;
};

static void *echo_run(void *user)
{
    struct echo *echo = user;
    for (size_t i = 0; i < echo->count; i++) {
        const struct weir_record *record;
        const void *bulk;
        size_t bulk_bytes;
        if (echo->t->ops->receive(echo->t, &record, &bulk, &bulk_bytes, echo->spin_ns,
                                  10 * WEIR_NS_PER_S) != WEIR_OK ||
            echo->t->ops->send(echo->t, record, NULL, 0, WEIR_NS_PER_S) != WEIR_OK) {
            return (void *)echo;
        }
    }
    return NULL;
}

static int compare(const void *one, const void *other)
{
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

static void measure(enum weir_transport_id id, const char *how, uint64_t spin_ns, size_t count)
{
    struct tl_pair pair;
    pthread_t thread;
    void *failed;
    union {
        struct weir_record record;
        uint8_t bytes[64];
    } message = {.record = {.len_bytes = 64}};
    uint64_t *took_ns = calloc(count, sizeof *took_ns);
    assert_non_null(took_ns);
    tl_pair_make(id, NULL, &pair);
    struct echo echo = {.t = pair.host, .spin_ns = spin_ns, .count = count};
    assert_int_equal(pthread_create(&thread, NULL, echo_run, &echo), 0);
    for (size_t i = 0; i < count; i++) {
        const struct weir_record *record;
        const void *bulk;
        size_t bulk_bytes;
        uint64_t start_ns = weir_clock_now_ns();
        assert_int_equal(pair.guest->ops->send(pair.guest, &message.record, NULL, 0, WEIR_NS_PER_S),
                         WEIR_OK);
        assert_int_equal(pair.guest->ops->receive(pair.guest, &record, &bulk, &bulk_bytes, spin_ns,
                                                  10 * WEIR_NS_PER_S),
                         WEIR_OK);
        took_ns[i] = weir_clock_now_ns() - start_ns;
    }
    pthread_join(thread, &failed);
    assert_null(failed);
    qsort(took_ns, count, sizeof *took_ns, compare);
    printf("%-5s %-6s p50 %8.2f us  p99 %8.2f us  (%zu)\n", weir_transport_kind(id)->name, how,
           (double)took_ns[count / 2] / 1000, (double)took_ns[count * 99 / 100] / 1000, count);
    free(took_ns);
    tl_pair_destroy(&pair);
}

static size_t count = 2000;

static void round_trips(void **state)
{
    (void)state;
    for (int id = 0; id < WEIR_TRANSPORT_COUNT; id++) {
#ifndef WEIR_WITH_ZMQ
        if (id == WEIR_TRANSPORT_ZMQ) {
            continue;
        }
#endif
        measure((enum weir_transport_id)id, "spin", 50 * WEIR_NS_PER_MS, count);
        measure((enum weir_transport_id)id, "sleep", 0, count);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        count = strtoul(argv[1], NULL, 10);
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(round_trips)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
