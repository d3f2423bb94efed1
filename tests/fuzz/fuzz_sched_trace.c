/*
 * Any bytes as a trace: read, printed, made a load of, replayed; what is a load is run,
 * for a while, on the model of a GPU. A scheduler under any order of any calls must keep its
 * invariants.
 */
#include "sched/sim/replay.h"
#include "sched/sim/sim.h"

#include <stdlib.h>
#include <string.h>

/* Longer ones only find the same again, slower. */
#define BYTES_MAX 65536

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void print_all(const uint8_t *data, size_t bytes)
{
    struct weir_sched_trace_reader reader;
    struct weir_sched_trace_error error;
    struct weir_sched_record record;
    static char text[1024];
    if (weir_sched_trace_open(data, bytes, &reader, &error) != WEIR_OK) {
        return;
    }
    while (weir_sched_trace_next(&reader, &record, &error) == WEIR_OK) {
        FILE *out = fmemopen(text, sizeof text, "w");
        if (out) {
            weir_sched_trace_print(out, &record);
            (void)fclose(out);
        }
    }
}

static void run_load(const uint8_t *data, size_t bytes)
{
    struct weir_sched_trace_error error;
    struct weir_sim_load load;
    struct weir_sim_params params;
    struct weir_sim_result result;
    char text[WEIR_SIM_ERROR_BYTES];
    if (weir_sim_load_read(data, bytes, false, &load, &error) != WEIR_OK) {
        return;
    }
    weir_sim_params_init(&params, &load, weir_sim_gpu_at(0));
    params.until_ns = 10000000;
    enum weir_status status = weir_sim_run(&load, &params, &result, text);
    if (status == WEIR_ERR_INTERNAL) {
        abort(); /* the scheduler broke a promise */
    }
    if (status == WEIR_OK) {
        weir_sim_result_finish(&result);
    }
    weir_sim_load_finish(&load);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct weir_sim_replay replay;
    struct weir_sched_trace_error error;
    if (bytes > BYTES_MAX) {
        return 0;
    }
    print_all(data, bytes);
    run_load(data, bytes);
    if (weir_sim_replay(data, bytes, NULL, &replay, &error) == WEIR_OK && replay.differs &&
        !replay.traced[0]) {
        abort(); /* a difference without a word */
    }
    return 0;
}
