#include "proto/transport/transport.h"
#include <sched.h>
#include <string.h>

/*
 * With few cores no thread spins, because a message passes through three or four threads that need
 * the cores, too. On two cores a round trip took 80-90 us without spins (99th percentile 0.15 ms),
 * but 300 us (2.8 ms) with spins of 200 us at both ends (bench_roundtrip, 2026-11-21).
 */
#define SPIN_MAX_NS   200000u
#define SPIN_MIN_CPUS 6

static const struct weir_transport_kind kinds[WEIR_TRANSPORT_COUNT] = {
#define WEIR_TRANSPORT(id, text, can_negotiate, is_remote)                                         \
    [WEIR_TRANSPORT_##id] = {.name = (text), .negotiable = (can_negotiate), .remote = (is_remote)},
#include "proto/transport/transports.def"
#undef WEIR_TRANSPORT
};

const struct weir_transport_kind *weir_transport_kind(enum weir_transport_id id)
{
    return (unsigned)id < WEIR_TRANSPORT_COUNT ? &kinds[id] : NULL;
}

enum weir_transport_id weir_transport_find(const char *name)
{
    int id = 0;
    while (id < WEIR_TRANSPORT_COUNT && strcmp(kinds[id].name, name) != 0) {
        id++;
    }
    return (enum weir_transport_id)id;
}

uint64_t weir_useful_spin_ns(uint64_t wanted_ns)
{
    static int n_cpus; /* atomic, relaxed: early threads may each ask the system */
    int n = __atomic_load_n(&n_cpus, __ATOMIC_RELAXED);
    if (n == 0) {
        cpu_set_t cpus;
        CPU_ZERO(&cpus);
        n = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
        __atomic_store_n(&n_cpus, n, __ATOMIC_RELAXED);
    }
    if (n < SPIN_MIN_CPUS) {
        return 0;
    }
    return WEIR_MIN(wanted_ns, SPIN_MAX_NS);
}
