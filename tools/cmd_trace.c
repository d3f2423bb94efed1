/* weir trace: record, invent and show traces of the scheduler. */
#include "sched/trace/trace.h"
#include "tools/ask.h"
#include "tools/command.h"
#include "tools/trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const struct weir_option no_options[] = {{.name = NULL}};

/* Create the output file; --force overwrites an existing one. */
static int create_file(const char *path, bool force)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | (force ? O_TRUNC : O_EXCL), 0666);
    if (fd < 0) {
        fprintf(stderr, "weir trace: %s: %s%s\n", path, strerror(errno),
                errno == EEXIST ? " (--force overwrites it)" : "");
    }
    return fd;
}

/* ------------------------------------------------------------------ show */

static void print_header(const struct weir_sched_trace_header *h)
{
    char when[64] = "";
    time_t seconds = (time_t)(h->wall_ns / 1000000000u);
    struct tm utc;
    if (h->wall_ns && gmtime_r(&seconds, &utc)) {
        (void)strftime(when, sizeof when, ", begun %Y-%m-%dT%H:%M:%SZ", &utc);
    }
    printf("# weir trace %u: %u SMs%s%s%s\n", h->version, h->sms, when,
           h->flags & WEIR_SCHED_TRACE_MIDDLE ? ", begun while work was under way" : "",
           h->flags & WEIR_SCHED_TRACE_GENERATED ? ", made up" : "");
    printf("# alone_ns=%" PRIu64 " inflight_ns=%" PRIu64 " guess_ns=%" PRIu64 " quiet_ns=%" PRIu64
           " starve_ns=%" PRIu64 " lease_ns=%" PRIu64 " stop_ns=%" PRIu64 " launch_ns=%" PRIu64
           " overhead_ppm=%u\n",
           h->alone_ns, h->inflight_ns, h->guess_ns, h->quiet_ns, h->starve_ns, h->lease_ns,
           h->stop_ns, h->launch_ns, h->overhead_ppm);
}

static int show_data(const char *path, const void *data, uint64_t bytes)
{
    struct weir_sched_trace_reader reader;
    struct weir_sched_trace_error error;
    struct weir_sched_record record;
    enum weir_status status = weir_sched_trace_open(data, bytes, &reader, &error);
    if (status == WEIR_OK) {
        print_header(&reader.header);
        while ((status = weir_sched_trace_next(&reader, &record, &error)) == WEIR_OK) {
            weir_sched_trace_print(stdout, &record);
        }
    }
    if (status != WEIR_ERR_NOT_FOUND) {
        (void)fflush(stdout);
        fprintf(stderr, "weir trace: %s: offset %" PRIu64 ": %s\n", path, error.offset, error.text);
        return WEIR_EXIT_FAILED;
    }
    if (!reader.has_ended) {
        printf("# no end: the recording was cut off\n");
    }
    if (fflush(stdout) != 0) {
        fprintf(stderr, "weir trace: standard output: %s\n", strerror(errno));
        return WEIR_EXIT_FAILED;
    }
    return WEIR_EXIT_OK;
}

static int show(int argc, char **argv)
{
    int first, exit_status;
    void *data;
    uint64_t bytes;
    if (!weir_options_parse(argc, argv, "FILE", "Print a trace, a line a record.", no_options,
                            &first, &exit_status)) {
        return exit_status;
    }
    if (!weir_trace_file_read("trace", argv[first], &data, &bytes)) {
        return WEIR_EXIT_FAILED;
    }
    exit_status = show_data(argv[first], data, bytes);
    free(data);
    return exit_status;
}

/* ------------------------------------------------------------------ what is gone */

static int draw(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    fprintf(stderr,
            "weir trace: draw is gone. 'weir sim TRACE --timeline FILE' runs the trace's load on a "
            "model of the GPU and writes a file that Perfetto (https://ui.perfetto.dev) shows; "
            "'weir trace show TRACE' prints what was recorded.\n");
    return WEIR_EXIT_USAGE;
}

static int tail(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    fprintf(stderr, "weir trace: tail is gone. 'weir why' adds up why a tenant's work waits; 'weir "
                    "trace show TRACE' prints a line whenever the cause of a wait changed.\n");
    return WEIR_EXIT_USAGE;
}

/* ------------------------------------------------------------------ generate */

static int generate(int argc, char **argv)
{
    const char *seed = NULL, *duration = NULL, *gpu_text = "h200", *out = NULL;
    bool force = false;
    const struct weir_option options[] = {
        {"out", "FILE", "where it goes", &out, NULL},
        {"seed", "N", "of chance (default 1)", &seed, NULL},
        {"duration", "TIME", "of the load (default 10s)", &duration, NULL},
        {"gpu", "NAME[,KEY=N]", "whose SMs it is for (default h200)", &gpu_text, NULL},
        {"force", NULL, "overwrite FILE", NULL, &force},
        {.name = NULL},
    };
    struct weir_sim_gpu_params gpu;
    char error[256];
    int first, exit_status;
    if (!weir_options_parse(argc, argv, "[OPTIONS] --out FILE SPEC",
                            "Make up a trace: SPEC is a line as weir-trace(1) tells, or @FILE.",
                            options, &first, &exit_status)) {
        return exit_status;
    }
    if (!out) {
        fprintf(stderr, "weir trace generate: --out FILE is wanted\n");
        return WEIR_EXIT_USAGE;
    }
    if (weir_sim_gpu_find(gpu_text, &gpu, error) != WEIR_OK) {
        fprintf(stderr, "weir trace: --gpu: %s\n", error);
        return WEIR_EXIT_FAILED;
    }
    int fd = create_file(out, force);
    if (fd < 0) {
        return WEIR_EXIT_FAILED;
    }
    if (!weir_trace_file_generate("trace", argv[first], seed, duration, &gpu, fd)) {
        (void)unlink(out);
        return WEIR_EXIT_FAILED;
    }
    return WEIR_EXIT_OK;
}

/* ------------------------------------------------------------------ start, stop */

/* Print what the workers answer; false: no worker was successful. */
static bool print_answers(const struct weir_status_report *report)
{
    for (size_t i = 0; i < report->n_notes; i++) {
        if (strcmp(report->notes[i].kind, "error") == 0) {
            fprintf(stderr, "weir trace: error: %s\n", report->notes[i].text);
            return false;
        }
        printf("%s\n", report->notes[i].text);
    }
    if (report->n_notes == 0) {
        fprintf(stderr, "weir trace: no worker answered\n");
    }
    return report->n_notes != 0;
}

static bool ask(const char *run_dir, const char *const *words, size_t n_words, int fd)
{
    int exit_status;
    struct weir_status_report *report =
        weir_ask("trace", run_dir, words, n_words, fd, &exit_status);
    bool is_good = report && print_answers(report);
    weir_status_report_destroy(report);
    return is_good;
}

static int start(int argc, char **argv)
{
    const char *run_dir = NULL, *device = NULL;
    bool force = false;
    const struct weir_option options[] = {
        {"run-dir", "DIR", "where the host's sockets are", &run_dir, NULL},
        {"device", "N", "which GPU, from 0, in the order of their first use (default 0)", &device,
         NULL},
        {"force", NULL, "overwrite FILE", NULL, &force},
        {.name = NULL},
    };
    long long number = 0;
    int first, exit_status;
    if (!weir_options_parse(argc, argv, "[OPTIONS] FILE",
                            "Record what a running host's scheduler is told and decides.", options,
                            &first, &exit_status)) {
        return exit_status;
    }
    if (device && !weir_option_number("device", device, 0, UINT16_MAX, &number)) {
        return WEIR_EXIT_USAGE;
    }
    int fd = create_file(argv[first], force);
    if (fd < 0) {
        return WEIR_EXIT_FAILED;
    }
    char text[24];
    snprintf(text, sizeof text, "%lld", number);
    const char *const words[] = {"trace", "start", text};
    bool is_good = ask(run_dir, words, 3, fd);
    close(fd);
    if (!is_good && !force) {
        (void)unlink(argv[first]);
    }
    return is_good ? WEIR_EXIT_OK : WEIR_EXIT_FAILED;
}

static int stop(int argc, char **argv)
{
    const char *run_dir = NULL;
    const struct weir_option options[] = {
        {"run-dir", "DIR", "where the host's sockets are", &run_dir, NULL},
        {.name = NULL},
    };
    int first, exit_status;
    if (!weir_options_parse(argc, argv, "[OPTIONS]", "End all recordings of a running host.",
                            options, &first, &exit_status)) {
        return exit_status;
    }
    const char *const words[] = {"trace", "stop"};
    return ask(run_dir, words, 2, -1) ? WEIR_EXIT_OK : WEIR_EXIT_FAILED;
}

/* ------------------------------------------------------------------ dispatch */

int weir_cmd_trace(int argc, char **argv)
{
    static const struct weir_action actions[] = {
        {"start", start, "record a running host's scheduling into a file"},
        {"stop", stop, "end all recordings"},
        {"show", show, "print a trace as text"},
        {"draw", draw, NULL},
        {"tail", tail, NULL},
        {"generate", generate, "make up a trace, for weir sim"},
        {.name = NULL}};
    static const char *const valued[] = {"run-dir",  "device", "out", "seed",
                                         "duration", "gpu",    NULL};
    static const struct weir_actions all = {
        "trace", "Traces of scheduling: what arrived, what was decided, what became of it.",
        actions, valued};
    return weir_actions_run(argc, argv, &all);
}
