/* weir sim: run a recorded or invented load on a model of a GPU, with the host's scheduler. */
#include "base/clock.h"
#include "sched/sim/metrics.h"
#include "sched/sim/replay.h"
#include "sched/sim/timeline.h"
#include "tools/command.h"
#include "tools/sim_report.h"
#include "tools/sim_settings.h"
#include "tools/trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_SHOWN   25u
#define RING_RECORDS 65536u

struct wish {
    const char *trace, *generate, *seed, *duration, *policy, *gpu, *until, *interval, *fill;
    const char *timeline, *svg, *record, *set, *tune;
    bool open, learn, replay, quick, shares, all, json, cost;
};

/* What receives the events of a run. */
struct listeners {
    struct weir_sim_timeline *timeline;
    struct weir_sched_trace *trace;
    FILE *timeline_file;
    const char *timeline_path;
};

static void on_span(void *user, const struct weir_sim_span *span)
{
    const struct listeners *l = user;
    weir_sim_timeline_span(l->timeline, span);
}

static void on_hold(void *user, const struct weir_sim_hold *hold)
{
    const struct listeners *l = user;
    weir_sim_timeline_hold(l->timeline, hold);
}

static void on_record(void *user, const struct weir_sched_record *record)
{
    struct listeners *l = user;
    /* This thread writes the ring and also reads it, so it must empty a full ring itself. */
    static uint32_t since_flush;
    (void)weir_sched_trace_put(l->trace, record);
    if (++since_flush >= RING_RECORDS / 4) {
        since_flush = 0;
        (void)weir_sched_trace_flush(l->trace);
    }
}

static void on_log(void *user, const char *line)
{
    (void)user;
    fprintf(stderr, "weir sim: %s\n", line);
}

static bool out_of_memory(void)
{
    fprintf(stderr, "weir sim: out of memory\n");
    return false;
}

static FILE *open_output(const char *path)
{
    FILE *file = fopen(path, "we");
    if (!file) {
        fprintf(stderr, "weir sim: %s: %s\n", path, strerror(errno));
    }
    return file;
}

static bool close_output(FILE *file, const char *path, bool is_good)
{
    is_good = fclose(file) == 0 && is_good;
    if (!is_good) {
        fprintf(stderr, "weir sim: %s: it could not be written\n", path);
    }
    return is_good;
}

/* ------------------------------------------------------------------ recordings of a run */

static bool open_record(const struct wish *wish, const struct weir_sim_load *load,
                        const struct weir_sim_params *params, struct listeners *l)
{
    struct weir_sched_config config = params->config;
    config.sms = params->gpu.sms;
    int fd = open(wish->record, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        fprintf(stderr, "weir sim: %s: %s\n", wish->record, strerror(errno));
        return false;
    }
    enum weir_status status = weir_sched_trace_create(&config, 0, 0, RING_RECORDS, fd, &l->trace);
    if (status != WEIR_OK) {
        fprintf(stderr, "weir sim: %s: %s\n", wish->record, weir_status_text(status));
        return false;
    }
    for (int kind = 0; kind < WEIR_POLICY_KIND_COUNT; kind++) {
        const struct weir_policy_ops *ops = params->policies.policy[kind];
        if (ops) {
            weir_sched_trace_policy(l->trace, 0, (uint8_t)kind, ops->name);
        }
    }
    (void)load;
    return true;
}

static bool open_listeners(const struct wish *wish, const struct weir_sim_load *load,
                           struct weir_sim_params *params, struct listeners *l)
{
    params->watch.user = l;
    if (wish->timeline) {
        l->timeline_path = wish->timeline;
        l->timeline_file = open_output(wish->timeline);
        WEIR_FAIL_IF(!l->timeline_file, false);
        if (weir_sim_timeline_open(l->timeline_file, load, &l->timeline) != WEIR_OK) {
            return out_of_memory();
        }
    }
    WEIR_FAIL_IF(wish->record && !open_record(wish, load, params, l), false);
    params->watch.span = l->timeline ? on_span : NULL;
    params->watch.hold = l->timeline ? on_hold : NULL;
    params->watch.record = l->trace ? on_record : NULL;
    return true;
}

static bool close_listeners(const struct wish *wish, struct listeners *l, bool is_good)
{
    enum weir_status status = weir_sim_timeline_close(l->timeline);
    if (l->timeline_file) {
        is_good = close_output(l->timeline_file, l->timeline_path, status == WEIR_OK) && is_good;
    }
    if (weir_sched_trace_destroy(l->trace) != WEIR_OK) {
        fprintf(stderr, "weir sim: %s: it could not be written\n", wish->record);
        is_good = false;
    }
    return is_good;
}

/* ------------------------------------------------------------------ a run */

static bool set_times(const struct wish *wish, struct weir_sim_params *params)
{
    params->bucket_ns = WEIR_NS_PER_S;
    if ((wish->until && !weir_option_time("until", wish->until, &params->until_ns)) ||
        (wish->interval && !weir_option_time("interval", wish->interval, &params->bucket_ns))) {
        return false;
    }
    if (!params->bucket_ns || (wish->until && !params->until_ns)) {
        fprintf(stderr, "weir sim: --interval and --until must not be 0\n");
        return false;
    }
    return true;
}

static bool set(const struct wish *wish, struct weir_sim_params *params)
{
    char error[WEIR_SIM_SETTINGS_ERROR_BYTES];
    if (wish->set && !weir_sim_settings_apply(params, wish->set, error)) {
        fprintf(stderr, "weir sim: --set: %s\n", error);
        return false;
    }
    return true;
}

static bool set_fill(const struct wish *wish, struct weir_sim_params *params)
{
    char setting[64], error[WEIR_SIM_SETTINGS_ERROR_BYTES];
    (void)snprintf(setting, sizeof setting, "fill=%.40s", wish->fill ? wish->fill : "");
    if (wish->fill && !weir_sim_settings_apply(params, setting, error)) {
        fprintf(stderr, "weir sim: --fill %s: not one of none, all\n", wish->fill);
        return false;
    }
    return true;
}

static bool run_and_report(const struct wish *wish, const struct weir_sim_load *load,
                           const struct weir_sim_params *params, const char *policies)
{
    struct weir_sim_result result;
    struct weir_sim_metrics metrics = {0};
    char error[WEIR_SIM_ERROR_BYTES];
    if (weir_sim_run(load, params, &result, error) != WEIR_OK) {
        fprintf(stderr, "weir sim: %s\n", error);
        return false;
    }
    bool is_good = true;
    if (!wish->quick && weir_sim_measure(load, params, &result, &metrics, error) != WEIR_OK) {
        fprintf(stderr, "weir sim: each tenant alone: %s\n", error);
        is_good = false;
    }
    if (is_good) {
        const struct weir_sim_report report = {
            .load = load,
            .params = params,
            .result = &result,
            .metrics = wish->quick ? NULL : &metrics,
            .policies = policies,
            .rows = wish->all ? UINT32_MAX : ROWS_SHOWN,
            .has_shares = wish->shares,
            .has_cost = wish->cost,
        };
        (wish->json ? weir_sim_report_json : weir_sim_report_text)(&report);
    }
    weir_sim_metrics_finish(&metrics);
    weir_sim_result_finish(&result);
    return is_good;
}

static void name_policies(const struct weir_policy_set *set, char *ret_text, size_t bytes)
{
    size_t length = 0;
    ret_text[0] = '\0';
    for (int kind = 0; kind < WEIR_POLICY_KIND_COUNT && length < bytes; kind++) {
        if (set->policy[kind]) {
            length += (size_t)snprintf(ret_text + length, bytes - length, "%s%s", length ? "," : "",
                                       set->policy[kind]->name);
        }
    }
    if (!length) {
        (void)snprintf(ret_text, bytes, "none");
    }
}

static bool simulate(const struct wish *wish, const struct weir_sim_gpu_params *gpu,
                     const struct weir_policy_set *policies, const void *data, uint64_t bytes)
{
    struct weir_sched_trace_error error;
    struct weir_sim_load load;
    struct weir_sim_params params;
    struct listeners listeners = {0};
    char names[128];
    if (weir_sim_load_read(data, bytes, wish->open, &load, &error) != WEIR_OK) {
        fprintf(stderr, "weir sim: %s: offset %" PRIu64 ": %s\n",
                wish->trace ? wish->trace : "load", error.offset, error.text);
        return false;
    }
    weir_sim_params_init(&params, &load, gpu);
    params.policies = *policies;
    params.learns = wish->learn;
    params.clock = wish->cost ? weir_clock_now_ns : NULL;
    params.log = on_log;
    name_policies(policies, names, sizeof names);
    bool is_good = set_times(wish, &params) && set_fill(wish, &params) && set(wish, &params) &&
                   open_listeners(wish, &load, &params, &listeners) &&
                   run_and_report(wish, &load, &params, names);
    is_good = close_listeners(wish, &listeners, is_good);
    weir_sim_load_finish(&load);
    return is_good;
}

/* Replay a trace. Exit status 1 if decisions differ. */
static bool replay(const struct wish *wish, const struct weir_policy_set *policies,
                   const void *data, uint64_t bytes)
{
    struct weir_sched_trace_error error;
    struct weir_sim_replay result;
    if (weir_sim_replay(data, bytes, wish->policy ? policies : NULL, &result, &error) != WEIR_OK) {
        fprintf(stderr, "weir sim: %s: offset %" PRIu64 ": %s\n", wish->trace, error.offset,
                error.text);
        return false;
    }
    if (result.differs) {
        printf("after %" PRIu64 " equal records (%" PRIu64 " decisions), at offset %" PRIu64
               ":\n  traced:  %s\n  decided: %s\n",
               result.records, result.decisions, result.offset, result.traced, result.decided);
        return false;
    }
    printf("%" PRIu64 " records, %" PRIu64 " decisions: all equal\n", result.records,
           result.decisions);
    return true;
}

static bool tune(const char *values)
{
    char error[WEIR_SIM_SETTINGS_ERROR_BYTES];
    if (values && !weir_sim_settings_tune(values, error)) {
        fprintf(stderr, "weir sim: --tune: %s\n", error);
        return false;
    }
    return true;
}

static bool run(const struct wish *wish)
{
    struct weir_sim_gpu_params gpu;
    struct weir_policy_set policies;
    struct weir_diag diag = {0};
    char error[WEIR_SIM_ERROR_BYTES];
    void *data;
    uint64_t bytes;
    const char *policy = wish->policy ? wish->policy : "fair";
    WEIR_FAIL_IF(!tune(wish->tune), false);
    if (weir_sim_gpu_find(wish->gpu ? wish->gpu : "h200", &gpu, error) != WEIR_OK) {
        fprintf(stderr, "weir sim: --gpu: %s\n", error);
        return false;
    }
    if (weir_policy_set_parse(policy, &policies, &diag) != WEIR_OK) {
        fprintf(stderr, "weir sim: --policy %s: column %u: %s\n", policy, diag.column,
                diag.message);
        return false;
    }
    bool is_read = wish->generate ? weir_trace_generate_data("sim", wish->generate, wish->seed,
                                                             wish->duration, &gpu, &data, &bytes)
                                  : weir_trace_file_read("sim", wish->trace, &data, &bytes);
    WEIR_FAIL_IF(!is_read, false);
    bool is_good = wish->replay ? replay(wish, &policies, data, bytes)
                                : simulate(wish, &gpu, &policies, data, bytes);
    free(data);
    return is_good;
}

int weir_cmd_sim(int argc, char **argv)
{
    struct wish wish = {0};
    const struct weir_option options[] = {
        {"policy", "LIST", "policies, as of weir serve (default fair)", &wish.policy, NULL},
        {"gpu", "NAME[,KEY=N]", "the device (default h200): see weir-sim(1)", &wish.gpu, NULL},
        {"generate", "SPEC", "a load made up from a line, or @FILE, instead of a trace",
         &wish.generate, NULL},
        {"seed", "N", "with --generate: of chance (default 1)", &wish.seed, NULL},
        {"duration", "TIME", "with --generate: of the load (default 10s)", &wish.duration, NULL},
        {"until", "TIME", "end there (default: when all is done)", &wish.until, NULL},
        {"interval", "TIME", "of shares over time (default 1s)", &wish.interval, NULL},
        {"shares", NULL, "print shares over time", NULL, &wish.shares},
        {"all", NULL, "all tenants, not only the first 25", NULL, &wish.all},
        {"quick", NULL, "without each tenant alone: no STP, no ANTT", NULL, &wish.quick},
        {"fill", "WHO", "none or all: who may have what a leader leaves (default: the trace's)",
         &wish.fill, NULL},
        {"set", "KEY=VALUE,...", "settings of the scheduler and the device: see weir-sim(1)",
         &wish.set, NULL},
        {"tune", "NAME=VALUE,...", "other values of constants of sched/tuning.def", &wish.tune,
         NULL},
        {"open", NULL, "everything arrives when it did, waiting for nothing", NULL, &wish.open},
        {"learn", NULL, "forget recorded predictions, learn in the run", NULL, &wish.learn},
        {"cost", NULL, "measure what deciding costs here", NULL, &wish.cost},
        {"timeline", "FILE", "write Chrome trace events (JSON), for Perfetto", &wish.timeline,
         NULL},
        {"svg", "FILE", NULL, &wish.svg, NULL},
        {"record", "FILE", "write the run as a trace", &wish.record, NULL},
        {"replay", NULL, "do not simulate: compare today's decisions with the trace's", NULL,
         &wish.replay},
        {"json", NULL, "one JSON object", NULL, &wish.json},
        {.name = NULL},
    };
    int first;
    int exit_status;
    if (!weir_options_parse(argc, argv, "[OPTIONS] TRACE | --generate SPEC [OPTIONS]",
                            "Replay a scheduler's trace on a model of a GPU, under any policies.",
                            options, &first, &exit_status)) {
        return exit_status;
    }
    if (wish.svg) {
        fprintf(stderr, "weir sim: --svg is gone. --timeline FILE writes the same run for Perfetto "
                        "(https://ui.perfetto.dev), which shows it.\n");
        return WEIR_EXIT_USAGE;
    }
    if ((first + 1 != argc) == !wish.generate || (wish.generate && (wish.replay || first < argc))) {
        fprintf(stderr,
                "weir sim: one TRACE is wanted, or --generate SPEC (see weir sim --help)\n");
        return WEIR_EXIT_USAGE;
    }
    wish.trace = wish.generate ? NULL : argv[first];
    return run(&wish) ? WEIR_EXIT_OK : WEIR_EXIT_FAILED;
}
