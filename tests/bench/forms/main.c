/*
 * weir_forms_bench: what the forms of kernels cost, and how fast they stop, move and grow.
 *
 * Two processes. One measures; the other, which never touches the driver, started it and waits. A
 * kernel that faults ruins its process's contexts, and one that hangs cannot be ended from within:
 * then the waiting process ends the measuring one and starts another, which goes on behind the
 * kernel that failed. Results lie in memory that both share.
 */
#include "tests/bench/forms/measure.h"
#include "tests/bench/forms/wait.h"

#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CONTROLS      128u
#define DEFAULT_STOPS 200u
#define QUICK_STOPS   12u
#define MAX_RESTARTS  20u
#define LOOK_NS       20000000 /* between looks at the measuring process */
#define WAIT_S        3.0      /* of every wait on a GPU */
#define QUICK_WAIT_S  60.0     /* softgpu, on a busy machine */
#define SILENCE_S     20.0     /* without a sign of life: the driver's compiler, at most */
#define EXIT_AGAIN    3
#define TICKET_STOPS  20u

struct options {
    const char *driver;
    const char *json;
    const char *markdown;
    const char *only;  /* names of kernels, with commas */
    const char *sizes; /* names of sizes, with commas */
    const char *stop_by;
    double minutes;
    uint32_t n_stops;
    bool quick;
};

static const struct option long_options[] = {{"driver", required_argument, NULL, 'd'},
                                             {"json", required_argument, NULL, 'j'},
                                             {"markdown", required_argument, NULL, 'm'},
                                             {"only", required_argument, NULL, 'o'},
                                             {"sizes", required_argument, NULL, 's'},
                                             {"minutes", required_argument, NULL, 't'},
                                             {"stops", required_argument, NULL, 'n'},
                                             {"stop-by", required_argument, NULL, 'b'},
                                             {"quick", no_argument, NULL, 'q'},
                                             {"help", no_argument, NULL, 'h'},
                                             {NULL, 0, NULL, 0}};

static void usage(FILE *out)
{
    fputs(
        "usage: weir_forms_bench [OPTIONS]\n"
        "Measure kernels in the forms that can be stopped and resumed, beside their originals.\n\n"
        "  --driver FILE     the driver to load (libcuda.so.1)\n"
        "  --json FILE       lines of JSON as results come (- for standard output, the default)\n"
        "  --markdown FILE   tables at the end (- for standard output)\n"
        "  --only NAME,...   only these kernels\n"
        "  --sizes SIZE,...  of large, small, trivial (all three)\n"
        "  --minutes N       to be through in, about (1.5)\n"
        "  --stops N         of each kernel (200)\n"
        "  --stop-by WAY     how the word is written: write (cuStreamWriteValue32, the default), "
        "set\n"
        "                    (cuMemsetD32Async) or copy (cuMemcpyHtoDAsync)\n"
        "  --quick           for softgpu: little inputs, few stops, times of no meaning\n\n"
        "Exit status: 0 all results right, 1 not so, 2 usage, 77 no driver.\n",
        out);
}

/* Whether a list names a word; a list that is not there names all. */
static bool is_listed(const char *list, const char *word)
{
    size_t len = strlen(word);

    for (const char *at = list; at;) {
        size_t part = strcspn(at, ",");

        if (part == len && strncmp(at, word, len) == 0) {
            return true;
        }
        at = at[part] ? at + part + 1 : NULL;
    }
    return !list;
}

/* ------------------------------------------------------------ the measuring process */

static bool open_device(struct weir_forms_bench *bench, const struct options *options)
{
    CUdevice device;
    CUcontext context;
    int value = 0;
    CUstream *streams[] = {&bench->main, &bench->other, &bench->control, &bench->watcher};

    WEIR_FORMS_TRY(cu.cuInit(0));
    WEIR_FORMS_TRY(cu.cuDeviceGet(&device, 0));
    WEIR_FORMS_TRY(
        cu.cuDeviceGetName(bench->results->device, sizeof(bench->results->device), device));
    WEIR_FORMS_TRY(cu.cuDriverGetVersion(&value));
    bench->results->driver_version = value;
    WEIR_FORMS_TRY(cu.cuDevicePrimaryCtxRetain(&context, device));
    WEIR_FORMS_TRY(cu.cuCtxSetCurrent(context));
    WEIR_FORMS_TRY(
        cu.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    bench->sms = (uint32_t)value;
    bench->results->sms = value;
    WEIR_FORMS_TRY(cu.cuDeviceGetAttribute(
        &value, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device));
    bench->max_shared = (uint32_t)value;
    WEIR_FORMS_TRY(cu.cuDeviceGetAttribute(
        &value, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, device));
    weir_forms_shared_init((uint32_t)value);
    for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]); i++) {
        WEIR_FORMS_TRY(cu.cuStreamCreate(streams[i], CU_STREAM_NON_BLOCKING));
    }
    WEIR_FORMS_TRY(cu.cuEventCreate(&bench->begin, CU_EVENT_DEFAULT));
    WEIR_FORMS_TRY(cu.cuEventCreate(&bench->end, CU_EVENT_DEFAULT));
    WEIR_FORMS_TRY(cu.cuEventCreate(&bench->stopped, CU_EVENT_DEFAULT));
    WEIR_FORMS_TRY(cu.cuEventCreate(&bench->freed, CU_EVENT_DEFAULT));
    return weir_forms_wait_init(options->quick ? QUICK_WAIT_S : WAIT_S) &&
           weir_forms_helpers_load(bench->main) && weir_forms_controls_init(CONTROLS);
}

/* Shares of an item's time. The rest is for inputs, comparisons and loading. */
#define SHARE_OVERHEAD 0.45
#define SHARE_STOPS    0.15
#define SHARE_TICKET   0.05
#define SHARE_MIXED    0.05
#define SHARE_RESIZES  0.08
#define SHARE_SPATIAL  0.08

/* Everything beyond overhead, of the input that forms are chosen by. */
static bool measure_more(struct weir_forms_bench *bench, const struct weir_forms_subject *subject,
                         double budget_s)
{
    struct weir_forms_item *item = subject->item;
    const struct weir_forms_variant ticket = {WEIR_FORMS_TICKET, 0};
    bool has_ticket = subject->set->facts[WEIR_FORMS_TICKET].there &&
                      !(subject->unusable >> WEIR_FORMS_TICKET & 1);

    return weir_forms_measure_stops(bench, subject, &item->timings[item->chosen].variant,
                                    bench->n_stops, budget_s * SHARE_STOPS, &item->stops) &&
           weir_forms_measure_mixed(bench, subject, bench->quick ? 2 : 5, budget_s * SHARE_MIXED) &&
           weir_forms_measure_resizes(bench, subject, bench->quick ? 3 : 100,
                                      budget_s * SHARE_RESIZES) &&
           weir_forms_measure_spatial(bench, subject, bench->quick ? 1 : 9,
                                      budget_s * SHARE_SPATIAL) &&
           (!has_ticket || weir_forms_measure_stops(bench, subject, &ticket,
                                                    bench->quick ? QUICK_STOPS : TICKET_STOPS,
                                                    budget_s * SHARE_TICKET, &item->ticket_stops));
}

static bool measure_item(struct weir_forms_bench *bench, struct weir_forms_set *set, uint32_t k,
                         enum weir_forms_size size, double budget_s)
{
    struct weir_forms_item *item = &bench->results->items[k][size];
    struct weir_forms_work work;
    const struct weir_forms_subject subject = {set, &work, item,
                                               bench->results->kernels[k].unusable};
    bool leads = size == WEIR_FORMS_LARGE || size == WEIR_FORMS_QUICK;

    item->state = WEIR_FORMS_BEGUN;
    bool ok = weir_forms_work_init(&work, set->kernel, size) &&
              weir_forms_measure_overhead(bench, &subject, &bench->results->kernels[k].choice,
                                          budget_s * SHARE_OVERHEAD);

    if (ok && leads) {
        if (item->chosen == WEIR_FORMS_NONE) {
            ok = weir_forms_fail("no form can be stopped: %s",
                                 set->facts[WEIR_FORMS_PERSISTENT].reason);
        } else {
            ok = measure_more(bench, &subject, budget_s);
        }
    }
    if (!weir_forms_is_broken() && !weir_forms_is_stuck()) {
        weir_forms_work_finish(&work);
    }
    return ok;
}

static void keep_facts(struct weir_forms_bench *bench, const struct weir_forms_set *set, uint32_t k)
{
    memcpy(bench->results->kernels[k].facts, set->facts, sizeof(set->facts));
    bench->results->kernels[k].make_ms = set->make_ms;
    bench->results->kernels[k].load_ms = set->load_ms;
    for (uint32_t build = 0; build < WEIR_FORMS_BUILD_COUNT; build++) {
        const struct weir_forms_facts *facts = &set->facts[build];

        if (facts->there) {
            weir_forms_json("twin",
                            "\"kernel\": \"%s\", \"form\": \"%s\", \"registers\": %d, "
                            "\"shared\": %d, \"local\": %d, \"per_sm\": %d",
                            set->kernel->name, weir_forms_build_names[build], facts->registers,
                            facts->shared_bytes, facts->local_bytes, facts->per_sm);
        }
    }
}

/* JSON without what would have to be escaped. */
static void fail_item(struct weir_forms_item *item, const char *kernel, uint32_t size,
                      const char *why)
{
    item->state = WEIR_FORMS_FAILED;
    snprintf(item->note, sizeof(item->note), "%s", why);
    for (char *c = item->note; *c; c++) {
        *c = *c == '"' || *c == '\\' || (unsigned char)*c < ' ' ? '\'' : *c;
    }
    weir_forms_json("failure", "\"kernel\": \"%s\", \"size\": \"%s\", \"why\": \"%s\"", kernel,
                    weir_forms_size_names[size], item->note);
}

struct plan {
    uint32_t kernels[WEIR_FORMS_MAX_KERNELS * WEIR_FORMS_SIZE_COUNT];
    uint32_t sizes[WEIR_FORMS_MAX_KERNELS * WEIR_FORMS_SIZE_COUNT];
    uint32_t n;
};

static double weight_of(uint32_t size)
{
    return size == WEIR_FORMS_LARGE ? 8 : 1;
}

/* What the item may take of the time that is left. */
static double budget_of(const struct plan *plan, uint32_t at, uint64_t end_ns)
{
    uint64_t now = weir_forms_now_ns();
    double left_s = end_ns > now ? (double)(end_ns - now) * 1e-9 : 0, sum = 0;

    for (uint32_t i = at; i < plan->n; i++) {
        sum += weight_of(plan->sizes[i]);
    }
    return left_s * weight_of(plan->sizes[at]) / sum;
}

/* Measure from results->begun on. @return exit status */
static int measure_all(struct weir_forms_results *results, const struct options *options,
                       const struct plan *plan, uint64_t end_ns)
{
    struct weir_forms_bench bench = {
        .results = results, .quick = options->quick, .n_stops = options->n_stops, .seed = 20171};
    struct weir_forms_set set = {0};
    uint32_t loaded = WEIR_FORMS_NONE;

    results->beat_ns = weir_forms_now_ns();
    /* Code that is loaded when it is first launched may have to wait for all that runs. */
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    if (!weir_forms_cuda_load(options->driver) || !open_device(&bench, options)) {
        fprintf(stderr, "weir_forms_bench: %s\n", weir_forms_reason());
        return 77;
    }
    bench.stop_by = (enum weir_forms_way)results->stop_by;
    weir_forms_json("device", "\"name\": \"%s\", \"driver\": %d, \"sms\": %d", results->device,
                    results->driver_version, results->sms);
    if (results->begun == 0 && !weir_forms_measure_ways(&bench, options->n_stops)) {
        fprintf(stderr, "weir_forms_bench: %s\n", weir_forms_reason());
    }
    while (results->begun < plan->n) {
        uint32_t at = results->begun++;
        uint32_t k = plan->kernels[at], size = plan->sizes[at];
        struct weir_forms_item *item = &results->items[k][size];
        double budget_s = budget_of(plan, at, end_ns);

        results->beat_ns = weir_forms_now_ns();
        if (budget_s <= 0) {
            item->state = WEIR_FORMS_SKIPPED;
            snprintf(item->note, sizeof(item->note), "no time left");
            continue;
        }
        bool ok = true;

        if (loaded != k) {
            weir_forms_set_finish(&set);
            ok = weir_forms_set_init(&set, weir_forms_kernels[k]);
            set.started = &results->started;
            loaded = ok ? k : WEIR_FORMS_NONE;
            keep_facts(&bench, &set, k);
        }
        ok = ok && measure_item(&bench, &set, k, (enum weir_forms_size)size, budget_s);
        if (ok) {
            item->state = WEIR_FORMS_DONE;
            weir_forms_reason();
        } else {
            fail_item(item, weir_forms_kernels[k]->name, size, weir_forms_reason());
        }
        if (weir_forms_is_broken() || weir_forms_is_stuck()) {
            return EXIT_AGAIN;
        }
    }
    return 0;
}

/* ------------------------------------------------------------ the waiting process */

/* @return its exit status, EXIT_AGAIN when it was ended or ended itself in a bad way */
static int wait_child(pid_t child, const struct weir_forms_results *results,
                      const struct options *options)
{
    double silence_s = options->quick ? QUICK_WAIT_S * 2 : SILENCE_S;
    int status = 0;

    for (;;) {
        pid_t ended = waitpid(child, &status, WNOHANG);

        if (ended == child) {
            return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_AGAIN;
        }
        uint64_t now = weir_forms_now_ns(), beat = results->beat_ns;

        if (now > beat && (double)(now - beat) * 1e-9 > silence_s) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            return EXIT_AGAIN;
        }
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    }
}

/* The item begun last broke its process: it is tried again without the form that ran then, unless
 * that was the original, or was left out already. */
static void give_up_form(struct weir_forms_results *results, const struct plan *plan)
{
    uint32_t at = results->begun - 1, k = plan->kernels[at], size = plan->sizes[at];
    struct weir_forms_item *item = &results->items[k][size];
    uint32_t bit = 1u << results->started;

    if (item->state == WEIR_FORMS_DONE) {
        return;
    }
    if (item->state != WEIR_FORMS_FAILED) {
        fail_item(item, weir_forms_kernels[k]->name, size, "the measuring process ended");
    }
    if (results->started != WEIR_FORMS_ORIGINAL && !(results->kernels[k].unusable & bit)) {
        char note[sizeof(item->note)];

        snprintf(note, sizeof(note), "without %s: %.200s", weir_forms_build_names[results->started],
                 item->note);
        memset(item, 0, sizeof(*item));
        memcpy(item->note, note, sizeof(note));
        results->kernels[k].unusable |= bit;
        results->kernels[k].choice = (struct weir_forms_choice){0};
        results->begun = at;
    }
    results->started = WEIR_FORMS_ORIGINAL;
}

static int supervise(struct weir_forms_results *results, const struct options *options,
                     const struct plan *plan)
{
    uint64_t end_ns = weir_forms_now_ns() + (uint64_t)(options->minutes * 60e9);

    for (uint32_t i = 0; i < MAX_RESTARTS; i++) {
        results->beat_ns = weir_forms_now_ns();
        pid_t child = fork();

        if (child < 0) {
            perror("weir_forms_bench: fork");
            return 1;
        }
        if (child == 0) {
            _exit(measure_all(results, options, plan, end_ns));
        }
        int status = wait_child(child, results, options);

        if (status == 0 || status == 77) {
            return status;
        }
        if (results->begun == 0) {
            return 1; /* not even the device was opened */
        }
        give_up_form(results, plan);
    }
    return 1;
}

static bool parse(int argc, char **argv, struct options *options, int *ret_exit)
{
    int c;

    *ret_exit = 2;
    while ((c = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        switch (c) {
        case 'd':
            options->driver = optarg;
            break;
        case 'j':
            options->json = optarg;
            break;
        case 'm':
            options->markdown = optarg;
            break;
        case 'o':
            options->only = optarg;
            break;
        case 's':
            options->sizes = optarg;
            break;
        case 't':
            options->minutes = atof(optarg);
            break;
        case 'n':
            options->n_stops = (uint32_t)atoi(optarg);
            break;
        case 'b':
            options->stop_by = optarg;
            break;
        case 'q':
            options->quick = true;
            break;
        case 'h':
            usage(stdout);
            *ret_exit = 0;
            return false;
        default:
            usage(stderr);
            return false;
        }
    }
    if (optind < argc) {
        usage(stderr);
        return false;
    }
    if (options->n_stops == 0) {
        options->n_stops = options->quick ? QUICK_STOPS : DEFAULT_STOPS;
    }
    return true;
}

static void make_plan(const struct options *options, struct plan *plan)
{
    /* First the sizes with which forms are chosen. */
    static const uint32_t sizes[] = {WEIR_FORMS_LARGE, WEIR_FORMS_QUICK, WEIR_FORMS_SMALL,
                                     WEIR_FORMS_TRIVIAL};

    for (uint32_t k = 0; k < weir_forms_n_kernels; k++) {
        for (uint32_t i = 0; i < WEIR_FORMS_SIZE_COUNT; i++) {
            uint32_t size = sizes[i];
            bool fits = options->quick == (size == WEIR_FORMS_QUICK) ||
                        (options->quick && size == WEIR_FORMS_TRIVIAL);

            if (fits && is_listed(options->only, weir_forms_kernels[k]->name) &&
                is_listed(options->sizes, weir_forms_size_names[size])) {
                plan->kernels[plan->n] = k;
                plan->sizes[plan->n++] = size;
            }
        }
    }
}

static FILE *open_out(const char *path)
{
    FILE *out = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");

    if (!out) {
        perror(path);
    }
    return out;
}

int main(int argc, char **argv)
{
    struct options options = {
        .driver = "libcuda.so.1", .json = "-", .stop_by = "write", .minutes = 1.5};
    static struct plan plan;
    int status;

    if (!parse(argc, argv, &options, &status)) {
        return status;
    }
    struct weir_forms_results *results =
        mmap(NULL, sizeof(*results), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    FILE *json = open_out(options.json);

    if (results == MAP_FAILED || !json) {
        return 1;
    }
    weir_forms_json_open(json);
    while (results->stop_by < WEIR_FORMS_WAY_COUNT &&
           strcmp(options.stop_by, weir_forms_way_names[results->stop_by]) != 0) {
        results->stop_by++;
    }
    if (results->stop_by == WEIR_FORMS_WAY_COUNT) {
        usage(stderr);
        return 2;
    }
    make_plan(&options, &plan);
    status = supervise(results, &options, &plan);
    if (options.markdown && status != 77) {
        FILE *out = open_out(options.markdown);

        if (out) {
            weir_forms_markdown(results, out);
        }
    }
    uint32_t failures = weir_forms_failures(results);

    weir_forms_json("end", "\"items\": %u, \"failures\": %u", plan.n, failures);
    return status ? status : failures != 0;
}
