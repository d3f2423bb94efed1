/*
 * Writes metrics as text: the fields of status.def that are metrics.
 *
 * Names follow Prometheus' conventions: base units in the name, counters end in _total, ratios lie
 * between 0 and 1. Values that belong together (a direction, an outcome) share a name and differ in
 * a label.
 */
#include "host_backend/supervisor/watch/metrics.h"

#include "host_backend/config/status_text.h"
#include <math.h>
#include <stddef.h>
#include <string.h>

static void print_head(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* Print a label's value escaped: names of devices come from the driver. */
static void print_escaped(FILE *out, const char *text)
{
    for (; *text != 0; text++) {
        if (*text == '\\' || *text == '"') {
            fprintf(out, "\\%c", *text);
        } else if ((unsigned char)*text >= ' ' && (unsigned char)*text < 0x7f) {
            putc(*text, out);
        } else {
            putc('?', out); /* the format requires UTF-8; a driver's text may have other bytes */
        }
    }
}

static double real_of(const struct weir_status_field *f, const void *row)
{
    return *(const double *)(const void *)((const char *)row + f->offset);
}

static unsigned long long whole_of(const struct weir_status_field *f, const void *row)
{
    const void *at = (const char *)row + f->offset;

    return f->kind == WEIR_STATUS_U32 ? *(const uint32_t *)at : *(const uint64_t *)at;
}

static void print_number(FILE *out, const struct weir_status_field *f, const void *row)
{
    enum weir_status_unit unit = f->metric.unit;

    if (f->kind == WEIR_STATUS_REAL) {
        fprintf(out, " %.10g\n", real_of(f, row) / (unit == WEIR_STATUS_PERCENT ? 100 : 1));
    } else if (unit == WEIR_STATUS_ONE) {
        fprintf(out, " %llu\n", whole_of(f, row));
    } else {
        unsigned long long whole = unit == WEIR_STATUS_PERCENT ? 100 : 1000000000;

        fprintf(out, " %llu.%0*llu\n", whole_of(f, row) / whole,
                unit == WEIR_STATUS_PERCENT ? 2 : 9, whole_of(f, row) % whole);
    }
}

static bool is_scheduled(const struct weir_status_report *report)
{
    return WEIR_ANY(i, report->n_tenants, report->tenants[i].scheduled != 0);
}

/* Print a tenant's own labels, but those that have the name of one of ours, or came before. */
static void print_labels(FILE *out, const char *labels)
{
    static const char ours[] = "tenant,priority,isolation,source,";
    char seen[256];
    int used = snprintf(seen, sizeof seen, ",%s", ours);

    for (const char *at = labels; *at != 0;) {
        int name = (int)strcspn(at, "="), end = (int)strcspn(at, ",");
        char key[200];

        snprintf(key, sizeof key, ",%.*s,", name, at);
        if (name < end && !strstr(seen, key)) {
            fprintf(out, ",%.*s=\"%.*s\"", name, at, end - name - 1, at + name + 1);
            used += snprintf(seen + used, sizeof seen - (size_t)used, "%s", key + 1);
        }
        at += end + (at[end] == ',');
    }
}

static void print_tenants(FILE *out, const struct weir_status_report *report)
{
    bool scheduled = is_scheduled(report);

    print_head(out, "weir_tenant_info", "gauge", "What a tenant is; always 1.");
    for (size_t i = 0; i < report->n_tenants; i++) {
        const struct weir_status_tenant *t = &report->tenants[i];

        fprintf(out,
                "weir_tenant_info{tenant=\"%s\",priority=\"%s\",isolation=\"%s\",source=\"%s\"",
                t->name, t->priority, t->isolation, t->source);
        print_labels(out, t->labels);
        fputs("} 1\n", out);
    }
    for (const struct weir_status_field *f = weir_status_tenant_fields; f->name; f++) {
        const struct weir_status_metric *m = &f->metric;

        if (!m->name || (m->scheduled && !scheduled)) {
            continue;
        }
        if (!f[-1].metric.name || strcmp(m->name, f[-1].metric.name) != 0) {
            print_head(out, m->name, m->type, m->help);
        }
        for (size_t i = 0; i < report->n_tenants; i++) {
            fprintf(out, "%s{tenant=\"%s\"%s}", m->name, report->tenants[i].name,
                    m->label ? m->label : "");
            print_number(out, f, &report->tenants[i]);
        }
    }
}

/* Print the histogram of waits in the gate: the bucket "le" counts all waits up to its bound. */
static void print_waits(FILE *out, const struct weir_status_report *report)
{
    static const char name[] = "weir_tenant_gate_wait_seconds";

    print_head(out, name, "histogram", "How long work waited until the scheduler let it run.");
    for (size_t i = 0; i < report->n_tenants; i++) {
        const struct weir_status_tenant *t = &report->tenants[i];
        unsigned long long n = 0;

        for (const struct weir_status_field *f = weir_status_tenant_fields; f->name; f++) {
            if (f->metric.bucket) {
                n += whole_of(f, t);
                fprintf(out, "%s_bucket{tenant=\"%s\",le=\"%s\"} %llu\n", name, t->name,
                        f->metric.bucket, n);
            }
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

/* Does the metric have a value in this row? */
static bool is_known(const struct weir_status_field *f, const struct weir_status_device *row)
{
    return f->metric.name && !(f->metric.scheduled && row->scheduled == 0) &&
           !(f->kind == WEIR_STATUS_REAL && isnan(real_of(f, row)));
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
    for (const struct weir_status_field *f = weir_status_device_fields; f->name; f++) {
        const struct weir_status_metric *m = &f->metric;
        bool headed = false;

        for (size_t i = 0; i < report->n_devices; i++) {
            if (!is_known(f, &report->devices[i])) {
                continue;
            }
            if (!headed) {
                print_head(out, m->name, m->type, m->help);
                headed = true;
            }
            fprintf(out, "%s{device=\"%u\"}", m->name, report->devices[i].ordinal);
            print_number(out, f, &report->devices[i]);
        }
    }
}

static void print_extras(FILE *out, const struct weir_status_report *report)
{
    for (const struct weir_status_field *f = weir_status_extra_fields; f->name; f++) {
        if (f->metric.name) {
            print_head(out, f->metric.name, f->metric.type, f->metric.help);
        }
        for (size_t i = 0; f->metric.name && i < report->n_extras; i++) {
            fprintf(out, "%s{extra=\"%s\"}", f->metric.name, report->extras[i].name);
            print_number(out, f, &report->extras[i]);
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
    for (const struct weir_status_field *f = weir_status_worker_fields; f->name; f++) {
        if (!f->metric.name) {
            continue;
        }
        print_head(out, f->metric.name, f->metric.type, f->metric.help);
        for (size_t i = 0; i < report->n_workers; i++) {
            fprintf(out, "%s{worker=\"%zu\"}", f->metric.name, i);
            print_number(out, f, &report->workers[i]);
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
    print_extras(out, report);
    print_devices(out, report);
    print_tenants(out, report);
    if (is_scheduled(report)) {
        print_waits(out, report);
        print_programs(out, report);
    }
    print_workers(out, report);
}

/* Find the end of the request's head; 0: not yet. Bare newlines count, too (RFC 9112, 2.2). */
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

/* Take the next word of the first line; *at moves behind it and its blank. */
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
    n_path = memchr(target, '?', n_target)
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
