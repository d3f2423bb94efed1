/*
 * Any text as a line for the generator; what it takes makes a trace that the reader takes. If the
 * line describes jobs over several GPUs with one stream on each GPU, they run in the simulator and
 * must end: they may never wait for each other for ever.
 */
#include "sched/sim/generate.h"
#include "sched/sim/sim.h"
#include "sched/sim/spec.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void run(const struct weir_sim_load *load, enum weir_sched_fill fill)
{
    struct weir_sim_params params;
    struct weir_sim_result result;
    char text[WEIR_SIM_ERROR_BYTES];
    weir_sim_params_init(&params, load, weir_sim_gpu_at(0));
    params.config.fill = fill;
    enum weir_status status = weir_sim_run(load, &params, &result, text);
    if (status == WEIR_ERR_INTERNAL || status == WEIR_ERR_TIMED_OUT) {
        abort();
    }
    if (status == WEIR_OK) {
        weir_sim_result_finish(&result);
    }
}

static void read_back(int fd, bool runs)
{
    struct weir_sched_trace_error error;
    struct weir_sim_load load;
    off_t bytes = lseek(fd, 0, SEEK_END);
    uint8_t *data = malloc((size_t)bytes + 1);
    if (!data || pread(fd, data, (size_t)bytes, 0) != bytes) {
        abort();
    }
    if (weir_sim_load_read(data, (uint64_t)bytes, false, &load, &error) != WEIR_OK) {
        abort();
    }
    if (runs) {
        run(&load, WEIR_SCHED_FILL_NONE);
        run(&load, WEIR_SCHED_FILL_ALL);
    }
    weir_sim_load_finish(&load);
    free(data);
}

/* Groups so big that they only take time. */
static bool is_small(const char *spec, bool *ret_runs)
{
    struct weir_sim_group *groups;
    struct weir_diag diag;
    uint64_t streams = 0, keys = 0;
    uint32_t n;
    bool alone = false; /* a job with several streams may wait for itself */
    *ret_runs = false;
    if (weir_sim_spec_parse(spec, &groups, &n, &diag) != WEIR_OK) {
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        streams += (uint64_t)groups[i].tenants * groups[i].streams.n * groups[i].streams.ranks;
        keys += groups[i].keys;
        *ret_runs |= groups[i].streams.ranks > 1;
        alone |= groups[i].streams.ranks > 1 && groups[i].streams.n > 1;
        /* A thousandth of a second has a bounded number of items at these rates. */
        streams += groups[i].burst > 100 || groups[i].rate > 1e5 || groups[i].depth > 100 ||
                           groups[i].kernels > 100 || groups[i].kernel_ns.low < 1000 ||
                           groups[i].copies.h2d.low > 0 || groups[i].copies.d2h.low > 0
                       ? 1000
                       : 0;
    }
    free(groups);
    *ret_runs = *ret_runs && !alone;
    return streams <= 100 && keys <= 2000;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct weir_sim_generate_params params = {
        .gpu = *weir_sim_gpu_at(0), .seed = 1, .duration_ns = 1000000};
    struct weir_diag diag;
    char spec[BYTES_MAX + 1];
    if (bytes > BYTES_MAX) {
        return 0;
    }
    memcpy(spec, data, bytes);
    spec[bytes] = '\0';
    bool runs;
    int fd = is_small(spec, &runs) ? memfd_create("fuzz", MFD_CLOEXEC) : -1;
    if (fd >= 0) {
        if (weir_sim_generate(spec, &params, dup(fd), &diag) == WEIR_OK) {
            read_back(fd, runs);
        }
        close(fd);
    }
    return 0;
}
