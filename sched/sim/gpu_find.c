/* Finding the GPUs of gpus.def by name, and changing their parameters. */
#include "sched/sim/gpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_BYTES 256

static const struct weir_sim_gpu_params gpus[] = {
#define WEIR_SIM_GPU(name, about, sms, h2d_mb_s, d2h_mb_s, launch_ns, notice_ns, h2d_ns, d2h_ns,   \
                     stop_ns, resume_ns, drain_ps, switch_ns, wake_ns, spin_ns)                    \
    {#name,  about,   sms,       h2d_mb_s, d2h_mb_s,  launch_ns, notice_ns, h2d_ns,                \
     d2h_ns, stop_ns, resume_ns, drain_ps, switch_ns, wake_ns,   spin_ns},
#include "sched/sim/gpus.def"
#undef WEIR_SIM_GPU
};

const struct weir_sim_gpu_params *weir_sim_gpu_at(size_t i)
{
    return i < WEIR_COUNT(gpus) ? &gpus[i] : NULL;
}

struct column {
    const char *name;
    size_t offset;
    uint64_t min;
    uint64_t max;
};

/* A second is more than any launch or stop takes; 10^9 MB/s more than any memory gives. */
#define LATENCY(field)                                                                             \
    {                                                                                              \
#field, offsetof(struct weir_sim_gpu_params, field), 0, 1000000000                         \
    }
#define BANDWIDTH(field)                                                                           \
    {                                                                                              \
#field, offsetof(struct weir_sim_gpu_params, field), 1, 1000000000                         \
    }

/* All parameters but sms, which is no uint64_t. */
static const struct column columns[] = {
    BANDWIDTH(h2d_mb_s), BANDWIDTH(d2h_mb_s), LATENCY(launch_ns), LATENCY(notice_ns),
    LATENCY(h2d_ns),     LATENCY(d2h_ns),     LATENCY(stop_ns),   LATENCY(resume_ns),
    LATENCY(drain_ps),   LATENCY(switch_ns),  LATENCY(wake_ns),   LATENCY(spin_ns),
};

static bool read_number(const char *text, size_t length, uint64_t min, uint64_t max,
                        uint64_t *ret_value)
{
    char digits[24];
    WEIR_FAIL_IF(!length || length >= sizeof digits || strspn(text, "0123456789") < length, false);
    memcpy(digits, text, length);
    digits[length] = '\0';
    errno = 0;
    uint64_t value = strtoull(digits, NULL, 10);
    if (errno || value < min || value > max) {
        return false;
    }
    *ret_value = value;
    return true;
}

static bool set(struct weir_sim_gpu_params *params, const char *text, size_t length)
{
    const char *equals = memchr(text, '=', length);
    WEIR_FAIL_IF(!equals, false);
    size_t name_length = (size_t)(equals - text);
    size_t value_length = length - name_length - 1;
    uint64_t value;
    if (name_length == 3 && memcmp(text, "sms", 3) == 0) {
        WEIR_FAIL_IF(!read_number(equals + 1, value_length, 1, WEIR_SIM_SMS_MAX, &value), false);
        params->sms = (uint32_t)value;
        return true;
    }
    for (size_t i = 0; i < WEIR_COUNT(columns); i++) {
        const struct column *c = &columns[i];
        if (strlen(c->name) == name_length && memcmp(text, c->name, name_length) == 0) {
            WEIR_FAIL_IF(!read_number(equals + 1, value_length, c->min, c->max, &value), false);
            memcpy((char *)params + c->offset, &value, sizeof value);
            return true;
        }
    }
    return false;
}

enum weir_status weir_sim_gpu_set(struct weir_sim_gpu_params *params, const char *text,
                                  size_t length)
{
    return set(params, text, length) ? WEIR_OK : WEIR_ERR_INVALID;
}

enum weir_status weir_sim_gpu_find(const char *text, struct weir_sim_gpu_params *ret_params,
                                   char *ret_error)
{
    size_t length = strcspn(text, ",");
    const struct weir_sim_gpu_params *found = NULL;
    for (size_t i = 0; i < WEIR_COUNT(gpus); i++) {
        if (strlen(gpus[i].name) == length && strncmp(gpus[i].name, text, length) == 0) {
            found = &gpus[i];
        }
    }
    if (!found) {
        int n = snprintf(ret_error, ERROR_BYTES,
                         "no model of a GPU '%.*s'; there are:", (int)(WEIR_MIN(length, 64)), text);
        for (size_t i = 0; i < WEIR_COUNT(gpus) && n < ERROR_BYTES; i++) {
            n += snprintf(ret_error + n, (size_t)(ERROR_BYTES - n), " %s", gpus[i].name);
        }
        return WEIR_ERR_NOT_FOUND;
    }
    struct weir_sim_gpu_params params = *found;
    for (const char *at = text + length; *at;) {
        at++;
        length = strcspn(at, ",");
        if (!set(&params, at, length)) {
            (void)snprintf(ret_error, ERROR_BYTES,
                           "'%.*s' sets nothing of a GPU to a value that it may have",
                           (int)(WEIR_MIN(length, 64)), at);
            return WEIR_ERR_INVALID;
        }
        at += length;
    }
    *ret_params = params;
    return WEIR_OK;
}
