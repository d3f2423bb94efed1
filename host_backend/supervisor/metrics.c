/*
 * Metrics as text: one table of a tenant's numbers, one of a worker's.
 *
 * Names follow Prometheus' conventions: base units in the name, counters end in _total, ratios lie
 * between 0 and 1. What belongs together (a direction, an outcome) is one name with a label.
 */
#include "host_backend/supervisor/metrics.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* Of a REAL unit, and not there if it is NAN. */
enum unit { UNIT_ONE, UNIT_NANOSECONDS, UNIT_PERCENT, UNIT_REAL, UNIT_REAL_PERCENT };

struct series {
    const char *name, *type, *help;
    const char *label; /* ',direction="to_device"'; "" */
    bool small;        /* uint32_t, not uint64_t */
    bool scheduled;    /* only where there is a scheduler */
    enum unit unit;
    size_t offset;
};

#define TENANT(field) offsetof(struct weir_status_tenant, field)
#define WORKER(field) offsetof(struct weir_status_worker, field)
#define DEVICE(field) offsetof(struct weir_status_device, field)

/* Rows of one name stand together, with the same help. */
static const struct series tenant_series[] = {
    {"weir_tenant_weight", "gauge", "Weight against tenants of the same priority.", "", true, false,
     UNIT_ONE, TENANT(weight)},
    {"weir_tenant_min_share_ratio", "gauge", "Part of the GPU's time that it gets at least.", "",
     true, false, UNIT_PERCENT, TENANT(min_share_pct)},
    {"weir_tenant_sm_limit_ratio", "gauge", "Part of the multiprocessors that it gets at most.", "",
     true, false, UNIT_PERCENT, TENANT(sm_limit_pct)},
    {"weir_tenant_sessions", "gauge", "Connected processes.", "", true, false, UNIT_ONE,
     TENANT(sessions)},
    {"weir_tenant_orphans", "gauge", "Of these, programs that are gone and left work behind.", "",
     true, false, UNIT_ONE, TENANT(orphans)},
    {"weir_tenant_contexts", "gauge", "CUDA contexts of workers that serve it alone.", "", true,
     false, UNIT_ONE, TENANT(contexts)},
    {"weir_tenant_memory_bytes", "gauge", "Device memory that its sessions hold.", "", false, false,
     UNIT_ONE, TENANT(used_bytes)},
    {"weir_tenant_memory_limit_bytes", "gauge", "Device memory that its sessions may hold.", "",
     false, false, UNIT_ONE, TENANT(quota_bytes)},
    {"weir_tenant_pinned_memory_bytes", "gauge", "Pinned host memory that its sessions hold.", "",
     false, false, UNIT_ONE, TENANT(pinned_bytes)},
    {"weir_tenant_image_bytes", "gauge", "Kept images of its programs' modules.", "", false, false,
     UNIT_ONE, TENANT(image_bytes)},
    {"weir_tenant_settings_changed", "gauge", "Settings that differ from those of its source.", "",
     true, false, UNIT_ONE, TENANT(changed)},
    {"weir_tenant_faults_total", "counter", "GPU faults that ended a worker's context.",
     ",suspects=\"one\"", false, false, UNIT_ONE, TENANT(faults)},
    {"weir_tenant_faults_total", "counter", "GPU faults that ended a worker's context.",
     ",suspects=\"several\"", false, false, UNIT_ONE, TENANT(suspected_faults)},
    {"weir_tenant_refused_allocations_total", "counter",
     "Allocations that a quota or a limit did not allow.", ",memory=\"device\"", false, false,
     UNIT_ONE, TENANT(refused_device)},
    {"weir_tenant_refused_allocations_total", "counter",
     "Allocations that a quota or a limit did not allow.", ",memory=\"pinned\"", false, false,
     UNIT_ONE, TENANT(refused_pinned)},
    {"weir_tenant_refused_sessions_total", "counter", "Programs that were turned away.", "", false,
     false, UNIT_ONE, TENANT(refused_sessions)},
    {"weir_tenant_quarantined", "gauge", "1: it has a worker of its own since a GPU fault.", "",
     true, false, UNIT_ONE, TENANT(quarantined)},
    {"weir_tenant_sm_seconds_total", "counter",
     "Multiprocessor time: seconds times multiprocessors.", "", false, true, UNIT_NANOSECONDS,
     TENANT(service_sm_ns)},
    {"weir_tenant_copy_seconds_total", "counter", "Time of copies.", ",direction=\"to_device\"",
     false, true, UNIT_NANOSECONDS, TENANT(copy_h2d_ns)},
    {"weir_tenant_copy_seconds_total", "counter", "Time of copies.", ",direction=\"from_device\"",
     false, true, UNIT_NANOSECONDS, TENANT(copy_d2h_ns)},
    {"weir_tenant_copy_bytes_total", "counter", "Bytes copied.", ",direction=\"to_device\"", false,
     true, UNIT_ONE, TENANT(copy_h2d_bytes)},
    {"weir_tenant_copy_bytes_total", "counter", "Bytes copied.", ",direction=\"from_device\"",
     false, true, UNIT_ONE, TENANT(copy_d2h_bytes)},
    {"weir_tenant_wait_seconds_total", "counter", "Time that its work waited for others' work.", "",
     false, true, UNIT_NANOSECONDS, TENANT(wait_ns)},
    {"weir_tenant_items_total", "counter", "Pieces of work: kernels, graphs, copies, memsets.", "",
     false, true, UNIT_ONE, TENANT(items)},
    {"weir_tenant_stops_total", "counter", "Kernels of it that were stopped for others.", "", false,
     true, UNIT_ONE, TENANT(stops)},
};

static const struct series worker_series[] = {
    {"weir_worker_restarts_total", "counter", "How often it died and was started again.", "", true,
     false, UNIT_ONE, WORKER(restarts)},
    {"weir_worker_objects", "gauge", "Live driver objects of all its sessions.", "", false, false,
     UNIT_ONE, WORKER(objects)},
    {"weir_worker_chunks", "gauge", "Pieces of memory that its sessions hold.", "", false, false,
     UNIT_ONE, WORKER(chunks)},
    {"weir_worker_chunk_bytes", "gauge", "Bytes of those pieces.", "", false, false, UNIT_ONE,
     WORKER(chunk_bytes)},
};

static const struct series device_series[] = {
    {"weir_device_multiprocessors", "gauge", "Its multiprocessors.", "", true, false, UNIT_ONE,
     DEVICE(sms)},
    {"weir_device_memory_bytes", "gauge", "Its memory.", "", false, false, UNIT_ONE,
     DEVICE(memory_bytes)},
    {"weir_device_memory_free_bytes", "gauge", "Memory that nobody has.", "", false, false,
     UNIT_REAL, DEVICE(free_bytes)},
    {"weir_device_utilization_ratio", "gauge",
     "Part of the driver's last interval in which a kernel ran (NVML).", "", false, false,
     UNIT_REAL_PERCENT, DEVICE(utilization_pct)},
    {"weir_device_temperature_celsius", "gauge", "Of the GPU (NVML).", "", false, false, UNIT_REAL,
     DEVICE(temperature_c)},
    {"weir_device_power_watts", "gauge", "What the board draws (NVML).", "", false, false,
     UNIT_REAL, DEVICE(power_w)},
    {"weir_device_sm_seconds_total", "counter",
     "Multiprocessor time of all tenants: seconds times multiprocessors.", "", false, true,
     UNIT_NANOSECONDS, DEVICE(sm_ns)},
};

static void print_head(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* A label's value: names of devices come from the driver. */
static void print_escaped(FILE *out, const char *text)
{
    for (; *text != 0; text++) {
        if (*text == '\\' || *text == '"') {
            fprintf(out, "\\%c", *text);
        } else if ((unsigned char)*text >= ' ' && (unsigned char)*text < 0x7f) {
            putc(*text, out);
        } else {
            putc('?', out); /* the format wants UTF-8, which a driver need not give */
        }
    }
}

static bool is_real(const struct series *s)
{
    return s->unit == UNIT_REAL || s->unit == UNIT_REAL_PERCENT;
}

static double real_of(const struct series *s, const void *row)
{
    return *(const double *)(const void *)((const char *)row + s->offset);
}

static void print_number(FILE *out, const struct series *s, const void *row)
{
    const void *at = (const char *)row + s->offset;

    if (is_real(s)) {
        fprintf(out, " %.10g\n", real_of(s, row) / (s->unit == UNIT_REAL ? 1 : 100));
        return;
    }
    unsigned long long value = s->small ? *(const uint32_t *)at : *(const uint64_t *)at;

    switch (s->unit) {
    case UNIT_ONE:
        fprintf(out, " %llu\n", value);
        break;
    case UNIT_NANOSECONDS:
        fprintf(out, " %llu.%09llu\n", value / 1000000000, value % 1000000000);
        break;
    case UNIT_REAL:
    case UNIT_REAL_PERCENT:
        break;
    case UNIT_PERCENT:
        fprintf(out, " %llu.%02llu\n", value / 100, value % 100);
        break;
    }
}

static bool is_scheduled(const struct weir_status_report *report)
{
    bool scheduled = false;

    for (size_t i = 0; i < report->n_tenants; i++) {
        scheduled |= report->tenants[i].scheduled != 0;
    }
    return scheduled;
}

static void print_tenants(FILE *out, const struct weir_status_report *report)
{
    bool scheduled = is_scheduled(report);

    print_head(out, "weir_tenant_info", "gauge", "What a tenant is; always 1.");
    for (size_t i = 0; i < report->n_tenants; i++) {
        const struct weir_status_tenant *t = &report->tenants[i];

        fprintf(
            out,
            "weir_tenant_info{tenant=\"%s\",priority=\"%s\",isolation=\"%s\",source=\"%s\"} 1\n",
            t->name, t->priority, t->isolation, t->source);
    }
    for (size_t k = 0; k < sizeof tenant_series / sizeof tenant_series[0]; k++) {
        const struct series *s = &tenant_series[k];

        if (s->scheduled && !scheduled) {
            continue;
        }
        if (k == 0 || strcmp(s->name, s[-1].name) != 0) {
            print_head(out, s->name, s->type, s->help);
        }
        for (size_t i = 0; i < report->n_tenants; i++) {
            fprintf(out, "%s{tenant=\"%s\"%s}", s->name, report->tenants[i].name, s->label);
            print_number(out, s, &report->tenants[i]);
        }
    }
}

/* How long work waited in the gate: "le" counts all that waited no longer. */
static void print_waits(FILE *out, const struct weir_status_report *report)
{
    static const char name[] = "weir_tenant_gate_wait_seconds";
    static const char *const bounds[] = {"1e-05", "0.0001", "0.001", "0.01", "0.1", "1.0", "+Inf"};

    print_head(out, name, "histogram", "How long work waited until the scheduler let it run.");
    for (size_t i = 0; i < report->n_tenants; i++) {
        const struct weir_status_tenant *t = &report->tenants[i];
        const uint64_t waits[] = {t->waits_10us,  t->waits_100us, t->waits_1ms,   t->waits_10ms,
                                  t->waits_100ms, t->waits_1s,    t->waits_longer};
        unsigned long long n = 0;

        for (size_t k = 0; k < sizeof waits / sizeof waits[0]; k++) {
            n += waits[k];
            fprintf(out, "%s_bucket{tenant=\"%s\",le=\"%s\"} %llu\n", name, t->name, bounds[k], n);
        }
        fprintf(out, "%s_sum{tenant=\"%s\"} %llu.%09llu\n%s_count{tenant=\"%s\"} %llu\n", name,
                t->name, (unsigned long long)t->wait_ns / 1000000000,
                (unsigned long long)t->wait_ns % 1000000000, name, t->name, n);
    }
}

static void print_programs(FILE *out, const struct weir_status_report *report)
{
    print_head(out, "weir_program_sm_seconds_total", "counter",
               "Multiprocessor time of a tenant's programs of a name, at most 17 names.");
    for (size_t i = 0; i < report->n_programs; i++) {
        const struct weir_status_program *p = &report->programs[i];

        fprintf(out, "weir_program_sm_seconds_total{tenant=\"%s\",program=\"", p->tenant);
        print_escaped(out, p->program);
        fprintf(out, "\"} %llu.%09llu\n", (unsigned long long)p->sm_ns / 1000000000,
                (unsigned long long)p->sm_ns % 1000000000);
    }
}

/* Is there a number of a series for the row? */
static bool is_known(const struct series *s, const struct weir_status_device *row)
{
    return !(s->scheduled && row->scheduled == 0) && !(is_real(s) && isnan(real_of(s, row)));
}

static void print_devices(FILE *out, const struct weir_status_report *report)
{
    print_head(out, "weir_device_info", "gauge", "What a device is; always 1.");
    for (size_t i = 0; i < report->n_devices; i++) {
        const struct weir_status_device *d = &report->devices[i];

        fprintf(out, "weir_device_info{device=\"%u\",uuid=\"%s\",model=\"", d->ordinal, d->uuid);
        print_escaped(out, d->name);
        fprintf(out, "\"} 1\n");
    }
    for (size_t k = 0; k < sizeof device_series / sizeof device_series[0]; k++) {
        const struct series *s = &device_series[k];
        bool headed = false;

        for (size_t i = 0; i < report->n_devices; i++) {
            if (!is_known(s, &report->devices[i])) {
                continue;
            }
            if (!headed) {
                print_head(out, s->name, s->type, s->help);
                headed = true;
            }
            fprintf(out, "%s{device=\"%u\"}", s->name, report->devices[i].ordinal);
            print_number(out, s, &report->devices[i]);
        }
    }
}

static void print_workers(FILE *out, const struct weir_status_report *report)
{
    print_head(out, "weir_worker_up", "gauge", "1 while it runs, 0 while it is being restarted.");
    for (size_t i = 0; i < report->n_workers; i++) {
        const struct weir_status_worker *w = &report->workers[i];

        fprintf(out, "weir_worker_up{worker=\"%zu\",tenant=\"%s\",devices=\"%s\",model=\"", i,
                w->tenant, w->devices);
        print_escaped(out, w->device);
        fprintf(out, "\"} %d\n", w->pid != 0);
    }
    for (size_t k = 0; k < sizeof worker_series / sizeof worker_series[0]; k++) {
        const struct series *s = &worker_series[k];

        print_head(out, s->name, s->type, s->help);
        for (size_t i = 0; i < report->n_workers; i++) {
            fprintf(out, "%s{worker=\"%zu\"}", s->name, i);
            print_number(out, s, &report->workers[i]);
        }
    }
}

void weir_metrics_write(FILE *out, const struct weir_status_report *report, double start_time_s)
{
    print_head(out, "weir_build_info", "gauge", "The host's version; always 1.");
    fprintf(out, "weir_build_info{version=\"%s\"} 1\n", report->version);
    print_head(out, "weir_start_time_seconds", "gauge", "When the host began, since 1970.");
    fprintf(out, "weir_start_time_seconds %.3f\n", start_time_s);
    print_head(out, "weir_kept_memory_handles", "gauge",
               "Pieces of device memory that outlive their worker.");
    fprintf(out, "weir_kept_memory_handles %llu\n", (unsigned long long)report->kept_fds);
    print_head(out, "weir_worker_starts_total", "counter",
               "Processes that serve programs and were started.");
    fprintf(out, "weir_worker_starts_total %llu\n", (unsigned long long)report->worker_starts);
    print_devices(out, report);
    print_tenants(out, report);
    if (is_scheduled(report)) {
        print_waits(out, report);
        print_programs(out, report);
    }
    print_workers(out, report);
}

/* Where the request's head ends; 0: not yet. Bare newlines are taken as well (RFC 9112, 2.2). */
static size_t head_end(const char *head, size_t bytes)
{
    for (size_t i = 0; i + 1 < bytes; i++) {
        if (head[i] == '\n' && (head[i + 1] == '\n' ||
                                (head[i + 1] == '\r' && i + 2 < bytes && head[i + 2] == '\n'))) {
            return i + 1;
        }
    }
    return 0;
}

/* The next word of the first line; *at stands behind it and its blank. */
static size_t word(const char **at, const char *end, const char **ret_word)
{
    const char *start = *at;

    while (*at < end && (unsigned char)**at > ' ' && **at != 0x7f) {
        (*at)++;
    }
    *ret_word = start;
    size_t n = (size_t)(*at - start);
    if (*at < end && **at == ' ') {
        (*at)++;
    }
    return n;
}

static bool is(const char *text, size_t bytes, const char *expected)
{
    return strlen(expected) == bytes && memcmp(text, expected, bytes) == 0;
}

int weir_http_judge(const char *head, size_t bytes, bool *ret_head)
{
    const char *at = head, *end, *method, *target, *version;
    size_t n_method, n_target, n_version, n_path;

    *ret_head = false;
    if (head_end(head, bytes) == 0) {
        return bytes >= WEIR_HTTP_HEAD_MAX ? 431 : WEIR_HTTP_MORE;
    }
    end = memchr(head, '\n', bytes);
    if (end > head && end[-1] == '\r') {
        end--;
    }
    n_method = word(&at, end, &method);
    n_target = word(&at, end, &target);
    n_version = word(&at, end, &version);
    if (n_method == 0 || n_target == 0 || n_version != 8 || at != end ||
        memcmp(version, "HTTP/", 5) != 0) {
        return 400;
    }
    if (version[5] != '1' || version[6] != '.') {
        return 505;
    }
    *ret_head = is(method, n_method, "HEAD");
    if (!*ret_head && !is(method, n_method, "GET")) {
        return 405;
    }
    n_path = memchr(target, '?', n_target) != NULL
                 ? (size_t)((const char *)memchr(target, '?', n_target) - target)
                 : n_target;
    return is(target, n_path, "/metrics") ? 200 : 404;
}

const char *weir_http_reason(int status)
{
    switch (status) {
    case 200:
        return "200 OK";
    case 404:
        return "404 Not Found";
    case 405:
        return "405 Method Not Allowed";
    case 431:
        return "431 Request Header Fields Too Large";
    case 503:
        return "503 Service Unavailable";
    case 505:
        return "505 HTTP Version Not Supported";
    default:
        return "400 Bad Request";
    }
}
