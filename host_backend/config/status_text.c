/* Status as text: one flat JSON object a line; writer and reader from one table of fields. */
#include "host_backend/config/status_text.h"

#include "base/gpu_uuid.h"
#include "base/text.h"
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum field_kind { FIELD_TEXT, FIELD_U32, FIELD_U64, FIELD_REAL };

struct field {
    const char *name;
    enum field_kind kind;
    size_t offset, size;
};

#define F(type, field, kind)                                                                       \
    {                                                                                              \
#field, FIELD_##kind, offsetof(struct weir_status_##type, field),                          \
            sizeof(((struct weir_status_##type *)0)->field)                                        \
    }

static const struct field host_fields[] = {
    F(report, version, TEXT),      F(report, run_dir, TEXT),
    F(report, pid, U64),           F(report, age_s, REAL),
    F(report, kept_fds, U64),      F(report, policy, TEXT),
    F(report, config, TEXT),       F(report, memory_promised_pct, U32),
    F(report, worker_starts, U64), {0}};
static const struct field tenant_fields[] = {F(tenant, name, TEXT),
                                             F(tenant, priority, TEXT),
                                             F(tenant, isolation, TEXT),
                                             F(tenant, weight, U32),
                                             F(tenant, sessions, U32),
                                             F(tenant, contexts, U32),
                                             F(tenant, quota_bytes, U64),
                                             F(tenant, used_bytes, U64),
                                             F(tenant, pinned_bytes, U64),
                                             F(tenant, image_bytes, U64),
                                             F(tenant, source, TEXT),
                                             F(tenant, changed, U32),
                                             F(tenant, min_share_pct, U32),
                                             F(tenant, sm_limit_pct, U32),
                                             F(tenant, orphans, U32),
                                             F(tenant, faults, U64),
                                             F(tenant, suspected_faults, U64),
                                             F(tenant, fault_age_s, REAL),
                                             F(tenant, refused_device, U64),
                                             F(tenant, refused_pinned, U64),
                                             F(tenant, refused_sessions, U64),
                                             F(tenant, quarantined, U32),
                                             F(tenant, quarantine_s, REAL),
                                             F(tenant, scheduled, U32),
                                             F(tenant, service_sm_ns, U64),
                                             F(tenant, copy_h2d_ns, U64),
                                             F(tenant, copy_d2h_ns, U64),
                                             F(tenant, copy_h2d_bytes, U64),
                                             F(tenant, copy_d2h_bytes, U64),
                                             F(tenant, wait_ns, U64),
                                             F(tenant, waits_10us, U64),
                                             F(tenant, waits_100us, U64),
                                             F(tenant, waits_1ms, U64),
                                             F(tenant, waits_10ms, U64),
                                             F(tenant, waits_100ms, U64),
                                             F(tenant, waits_1s, U64),
                                             F(tenant, waits_longer, U64),
                                             F(tenant, items, U64),
                                             F(tenant, stops, U64),
                                             {0}};
static const struct field session_fields[] = {F(session, tenant, TEXT),
                                              F(session, program, TEXT),
                                              F(session, transport, TEXT),
                                              F(session, id, U64),
                                              F(session, pid, U64),
                                              F(session, worker, U64),
                                              F(session, sm_ns, U64),
                                              F(session, used_bytes, U64),
                                              F(session, memory_limit_bytes, U64),
                                              F(session, sm_limit_pct, U32),
                                              F(session, calls, U64),
                                              F(session, calls_per_s, REAL),
                                              F(session, age_s, REAL),
                                              F(session, orphan_age_s, REAL),
                                              {0}};
static const struct field device_fields[] = {F(device, uuid, TEXT),
                                             F(device, name, TEXT),
                                             F(device, ordinal, U32),
                                             F(device, sms, U32),
                                             F(device, memory_bytes, U64),
                                             F(device, free_bytes, REAL),
                                             F(device, utilization_pct, REAL),
                                             F(device, temperature_c, REAL),
                                             F(device, power_w, REAL),
                                             F(device, scheduled, U32),
                                             F(device, sm_ns, U64),
                                             {0}};
static const struct field program_fields[] = {
    F(program, tenant, TEXT), F(program, program, TEXT), F(program, sm_ns, U64), {0}};
static const struct field worker_fields[] = {
    F(worker, device, TEXT),     F(worker, devices, TEXT),
    F(worker, n_devices, U32),   F(worker, contexts, U32),
    F(worker, all_devices, U32), F(worker, memory_bytes, U64),
    F(worker, driver, TEXT),     F(worker, tenant, TEXT),
    F(worker, state, TEXT),      F(worker, sm_share_pct, U32),
    F(worker, pid, U64),         F(worker, restarts, U32),
    F(worker, objects, U64),     F(worker, chunks, U64),
    F(worker, chunk_bytes, U64), {0}};
static const struct field counted_fields[] = {
    F(counted, tenant, TEXT),    F(counted, program, TEXT),
    F(counted, transport, TEXT), F(counted, id, U64),
    F(counted, pid, U64),        F(counted, ended, U32),
    F(counted, age_s, REAL),     {0}};
static const struct field function_fields[] = {F(function, name, TEXT),   F(function, guest, U64),
                                               F(function, posted, U64),  F(function, waited, U64),
                                               F(function, wait_ns, U64), F(function, max_ns, U64),
                                               F(function, busy_ns, U64), {0}};
static const struct field prediction_fields[] = {
    F(prediction, device, U32),       F(prediction, keys, U32),
    F(prediction, keys_found, U32),   F(prediction, asked, U64),
    F(prediction, known, U64),        F(prediction, kernels, U64),
    F(prediction, kernel_mean, REAL), F(prediction, kernel_median, REAL),
    F(prediction, copies, U64),       F(prediction, copy_mean, REAL),
    F(prediction, copy_median, REAL), {0}};

static const struct field form_fields[] = {F(count, name, TEXT), F(count, n, U64), {0}};
static const struct field run_fields[] = {
    F(count, device, TEXT), F(count, name, TEXT), F(count, n, U64), {0}};

static const struct field setting_fields[] = {F(setting, tenant, TEXT), F(setting, key, TEXT),
                                              F(setting, value, TEXT),  F(setting, before, TEXT),
                                              F(setting, base, TEXT),   F(setting, origin, TEXT),
                                              F(setting, live, U32),    {0}};
static const struct field note_fields[] = {F(note, kind, TEXT), F(note, text, TEXT), {0}};

static const struct field policy_fields[] = {
    F(policy, kind, TEXT), F(policy, in_force, TEXT), F(policy, known, TEXT), {0}};
static const struct field check_fields[] = {
    F(check, result, TEXT), F(check, text, TEXT), F(check, remedy, TEXT), {0}};
static const struct field rate_fields[] = {F(rate, tenant, TEXT),
                                           F(rate, program, TEXT),
                                           F(rate, pid, U64),
                                           F(rate, session, U64),
                                           F(rate, device, U32),
                                           F(rate, sessions, U32),
                                           F(rate, share_pct, REAL),
                                           F(rate, sm_pct, REAL),
                                           F(rate, sm_s, REAL),
                                           F(rate, to_device_bytes_per_s, REAL),
                                           F(rate, from_device_bytes_per_s, REAL),
                                           F(rate, wait_pct, REAL),
                                           F(rate, calls_per_s, REAL),
                                           F(rate, memory_bytes, U64),
                                           F(rate, quota_bytes, U64),
                                           {0}};
static const struct field event_fields[] = {F(event, number, U64),
                                            F(event, time, TEXT),
                                            F(event, kind, TEXT),
                                            F(event, tenant, TEXT),
                                            F(event, program, TEXT),
                                            F(event, call, TEXT),
                                            F(event, why, TEXT),
                                            F(event, pid, U64),
                                            F(event, worker, U64),
                                            F(event, session, U64),
                                            F(event, bytes, U64),
                                            F(event, n, U64),
                                            {0}};

/* JSON has no NAN. */
static void put_real(FILE *out, double value)
{
    if (isnan(value)) {
        fputs("null", out);
    } else {
        fprintf(out, "%.3f", value);
    }
}

static void write_row(FILE *out, const char *row, const struct field *fields, const void *object)
{
    fprintf(out, "{\"row\":\"%s\"", row);
    for (const struct field *f = fields; f->name != NULL; f++) {
        const char *at = (const char *)object + f->offset;

        fprintf(out, ",\"%s\":", f->name);
        switch (f->kind) {
        case FIELD_TEXT:
            weir_json_put(out, at);
            break;
        case FIELD_U32:
            fprintf(out, "%u", *(const uint32_t *)(const void *)at);
            break;
        case FIELD_U64:
            fprintf(out, "%llu", (unsigned long long)*(const uint64_t *)(const void *)at);
            break;
        case FIELD_REAL:
            put_real(out, *(const double *)(const void *)at);
            break;
        }
    }
    fputs("}\n", out);
}

void weir_status_text_write(FILE *out, const struct weir_status_report *report)
{
    write_row(out, "host", host_fields, report);
    for (size_t i = 0; i < report->n_devices; i++) {
        write_row(out, "device", device_fields, &report->devices[i]);
    }
    for (size_t i = 0; i < report->n_workers; i++) {
        write_row(out, "worker", worker_fields, &report->workers[i]);
    }
    for (size_t i = 0; i < report->n_tenants; i++) {
        write_row(out, "tenant", tenant_fields, &report->tenants[i]);
    }
    for (size_t i = 0; i < report->n_sessions; i++) {
        write_row(out, "session", session_fields, &report->sessions[i]);
    }
    for (size_t i = 0; i < report->n_programs; i++) {
        write_row(out, "program", program_fields, &report->programs[i]);
    }
    for (size_t i = 0; i < report->n_settings; i++) {
        write_row(out, "setting", setting_fields, &report->settings[i]);
    }
    for (size_t i = 0; i < report->n_notes; i++) {
        write_row(out, "note", note_fields, &report->notes[i]);
    }
    for (size_t i = 0; i < report->n_events; i++) {
        weir_status_text_event(out, &report->events[i]);
    }
    fputs(WEIR_STATUS_TEXT_END, out);
}

void weir_status_device_init(struct weir_status_device *row, const uint8_t *u)
{
    *row = (struct weir_status_device){
        .free_bytes = NAN, .utilization_pct = NAN, .temperature_c = NAN, .power_w = NAN};
    weir_gpu_uuid_text(u, row->uuid);
}

void weir_status_text_tenant(FILE *out, const struct weir_status_tenant *row)
{
    write_row(out, "tenant", tenant_fields, row);
}

void weir_status_text_device(FILE *out, const struct weir_status_device *row)
{
    write_row(out, "device", device_fields, row);
}

void weir_status_text_setting(FILE *out, const struct weir_status_setting *row)
{
    write_row(out, "setting", setting_fields, row);
}

void weir_status_text_policy(FILE *out, const struct weir_status_policy *row)
{
    write_row(out, "policy", policy_fields, row);
}

void weir_status_text_check(FILE *out, const struct weir_status_check *row)
{
    write_row(out, "check", check_fields, row);
}

void weir_status_text_rate(FILE *out, const char *of, const struct weir_status_rate *row)
{
    write_row(out, of, rate_fields, row);
}

void weir_status_text_event(FILE *out, const struct weir_status_event *row)
{
    write_row(out, "event", event_fields, row);
}

void weir_status_text_counted(FILE *out, const struct weir_status_counted *row)
{
    write_row(out, "counted", counted_fields, row);
}

void weir_status_text_function(FILE *out, const struct weir_status_function *row)
{
    write_row(out, "function", function_fields, row);
}

void weir_status_text_prediction(FILE *out, const struct weir_status_prediction *row)
{
    write_row(out, "prediction", prediction_fields, row);
}

void weir_status_text_form(FILE *out, const struct weir_status_count *row)
{
    write_row(out, "form", form_fields, row);
}

void weir_status_text_run(FILE *out, const struct weir_status_count *row)
{
    write_row(out, "run", run_fields, row);
}

/* The UTF-8 of \uXXXX whose digits begin at digits; returns its bytes. */
static size_t read_escape(const char *digits, char bytes[3])
{
    char hex[5] = "";
    unsigned code;

    memcpy(hex, digits, strnlen(digits, 4));
    code = (unsigned)strtoul(hex, NULL, 16);
    if (code < 0x80) {
        bytes[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        bytes[0] = (char)(0xc0 | code >> 6);
        bytes[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    bytes[0] = (char)(0xe0 | code >> 12);
    bytes[1] = (char)(0x80 | (code >> 6 & 0x3f));
    bytes[2] = (char)(0x80 | (code & 0x3f));
    return 3;
}

/* A string at *at (after its quote) into room; false when it does not end. */
static bool read_string(char **at, char *room, size_t room_bytes)
{
    size_t used = 0;
    char *p = *at;

    for (; *p != '"'; p++) {
        char bytes[3] = {*p};
        size_t n = 1;

        if (*p == '\\') {
            p++;
            bytes[0] = *p;
            if (*p == 'u') {
                n = read_escape(p + 1, bytes);
                p += strnlen(p + 1, 4);
            }
        }
        if (*p == 0) {
            return false;
        }
        if (used + n < room_bytes) {
            memcpy(room + used, bytes, n);
            used += n;
        } else {
            room_bytes = used; /* nothing more */
        }
    }
    room[used] = 0;
    *at = p + 1;
    return true;
}

static void store(const struct field *fields, void *object, const char *key, bool is_text,
                  const char *text)
{
    for (const struct field *f = fields; fields != NULL && f->name != NULL; f++) {
        char *at = (char *)object + f->offset;

        if (strcmp(f->name, key) != 0 || is_text != (f->kind == FIELD_TEXT)) {
            continue;
        }
        switch (f->kind) {
        case FIELD_TEXT:
            snprintf(at, f->size, "%s", text);
            break;
        case FIELD_U32:
            *(uint32_t *)(void *)at = (uint32_t)strtoul(text, NULL, 10);
            break;
        case FIELD_U64:
            *(uint64_t *)(void *)at = strtoull(text, NULL, 10);
            break;
        case FIELD_REAL:
            *(double *)(void *)at = strcmp(text, "null") == 0 ? NAN : strtod(text, NULL);
            break;
        }
    }
}

/* The fields of one line behind its first key; *at stands behind that key's value. */
static bool read_fields(char *at, const struct field *fields, void *object)
{
    char key[32], text[512];

    while (at[0] == ',' && at[1] == '"') {
        bool is_text;

        at += 2;
        if (!read_string(&at, key, sizeof key) || *at++ != ':') {
            return false;
        }
        is_text = *at == '"';
        if (is_text) {
            at++;
            if (!read_string(&at, text, sizeof text)) {
                return false;
            }
        } else {
            size_t n = strcspn(at, ",}");

            snprintf(text, sizeof text, "%.*s", (int)(n < sizeof text ? n : sizeof text - 1), at);
            at += n;
        }
        store(fields, object, key, is_text, text);
    }
    return strcmp(at, "}") == 0;
}

/* One more zeroed element behind an array. */
static void *grow(void **array, size_t *n, size_t size)
{
    void *bigger = realloc(*array, (*n + 1) * size);

    if (bigger == NULL) {
        return NULL;
    }
    *array = bigger;
    return memset((char *)bigger + (*n)++ * size, 0, size);
}

static enum weir_status read_line(char *line, struct weir_status_report *report, bool *ret_end)
{
    static const char start[] = "{\"row\":\"";
    const struct field *fields = NULL;
    void *object = NULL;
    bool known = true;
    char row[32];

    if (strncmp(line, start, sizeof start - 1) != 0) {
        return WEIR_ERR_PEER;
    }
    line += sizeof start - 1;
    if (!read_string(&line, row, sizeof row)) {
        return WEIR_ERR_PEER;
    }
    if (strcmp(row, "host") == 0) {
        fields = host_fields;
        object = report;
    } else if (strcmp(row, "worker") == 0) {
        fields = worker_fields;
        object = grow((void **)&report->workers, &report->n_workers, sizeof *report->workers);
    } else if (strcmp(row, "device") == 0) {
        fields = device_fields;
        object = grow((void **)&report->devices, &report->n_devices, sizeof *report->devices);
    } else if (strcmp(row, "program") == 0) {
        fields = program_fields;
        object = grow((void **)&report->programs, &report->n_programs, sizeof *report->programs);
    } else if (strcmp(row, "tenant") == 0) {
        fields = tenant_fields;
        object = grow((void **)&report->tenants, &report->n_tenants, sizeof *report->tenants);
    } else if (strcmp(row, "session") == 0) {
        fields = session_fields;
        object = grow((void **)&report->sessions, &report->n_sessions, sizeof *report->sessions);
    } else if (strcmp(row, "setting") == 0) {
        fields = setting_fields;
        object = grow((void **)&report->settings, &report->n_settings, sizeof *report->settings);
    } else if (strcmp(row, "note") == 0) {
        fields = note_fields;
        object = grow((void **)&report->notes, &report->n_notes, sizeof *report->notes);
    } else if (strcmp(row, "counted") == 0) {
        fields = counted_fields;
        object = grow((void **)&report->counted, &report->n_counted, sizeof *report->counted);
    } else if (strcmp(row, "prediction") == 0) {
        fields = prediction_fields;
        object = grow((void **)&report->predictions, &report->n_predictions,
                      sizeof *report->predictions);
    } else if (strcmp(row, "function") == 0 && report->n_counted != 0) {
        fields = function_fields;
        object = grow((void **)&report->functions, &report->n_functions, sizeof *report->functions);
        if (object != NULL) {
            ((struct weir_status_function *)object)->counted = (uint32_t)report->n_counted - 1;
        }
    } else if (strcmp(row, "form") == 0 && report->n_counted != 0) {
        fields = form_fields;
        object = grow((void **)&report->forms, &report->n_forms, sizeof *report->forms);
        if (object != NULL) {
            ((struct weir_status_count *)object)->counted = (uint32_t)report->n_counted - 1;
        }
    } else if (strcmp(row, "event") == 0) {
        fields = event_fields;
        object = grow((void **)&report->events, &report->n_events, sizeof *report->events);
    } else if (strcmp(row, "run") == 0) {
        fields = run_fields;
        object = grow((void **)&report->runs, &report->n_runs, sizeof *report->runs);
    } else {
        known = false;
        *ret_end = strcmp(row, "end") == 0;
    }
    if (known && object == NULL) {
        return WEIR_ERR_NO_MEMORY;
    }
    return read_fields(line, fields, object) ? WEIR_OK : WEIR_ERR_PEER;
}

enum weir_status weir_status_text_read(char *text, struct weir_status_report **ret_report)
{
    struct weir_status_report *report = calloc(1, sizeof *report);
    enum weir_status status = report != NULL ? WEIR_OK : WEIR_ERR_NO_MEMORY;
    bool end = false;
    char *rest = NULL;

    for (char *line = strtok_r(text, "\n", &rest); status == WEIR_OK && line != NULL && !end;
         line = strtok_r(NULL, "\n", &rest)) {
        status = read_line(line, report, &end);
    }
    if (status == WEIR_OK && !end) {
        status = WEIR_ERR_PEER;
    }
    if (status != WEIR_OK) {
        weir_status_report_destroy(report);
        return status;
    }
    *ret_report = report;
    return WEIR_OK;
}

void weir_status_report_destroy(struct weir_status_report *report)
{
    if (report != NULL) {
        free(report->tenants);
        free(report->sessions);
        free(report->workers);
        free(report->devices);
        free(report->programs);
        free(report->counted);
        free(report->functions);
        free(report->predictions);
        free(report->forms);
        free(report->runs);
        free(report->settings);
        free(report->notes);
        free(report->events);
        free(report);
    }
}
