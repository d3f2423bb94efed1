/*
 * Reads a program's requests from its environment: CUDA's number of connections, and HAMi's
 * variables. Users who come from HAMi have these variables in images and manifests. In HAMi they
 * are the limit itself, which a library in the program's process enforces. Here they can only lower
 * what the host grants, so that editing or unsetting them gains nothing.
 */
#include "guest_lib/limits.h"

#include "base/log.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define MEMORY_VARIABLE      "CUDA_DEVICE_MEMORY_LIMIT"
#define SM_VARIABLE          "CUDA_DEVICE_SM_LIMIT"
#define CONNECTIONS_VARIABLE "CUDA_DEVICE_MAX_CONNECTIONS"

static bool read_digits(const char **at, uint64_t *ret_value)
{
    const char *start = *at;
    uint64_t value = 0;

    for (; **at >= '0' && **at <= '9'; (*at)++) {
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(**at - '0'), &value)) {
            return false;
        }
    }
    *ret_value = value;
    return *at != start;
}

uint64_t weir_limit_bytes(const char *text)
{
    static const char units[] = "kmgt";
    uint64_t value;

    if (!read_digits(&text, &value)) {
        return 0;
    }
    const char *unit = *text ? strchr(units, *text | 0x20) : NULL;
    if (unit) {
        unsigned int shift = 10 * (unsigned int)(unit - units + 1);
        if (value > UINT64_MAX >> shift) {
            return 0;
        }
        value <<= shift;
        text++;
        text += strcasecmp(text, "b") == 0 ? 1 : strcasecmp(text, "ib") == 0 ? 2 : 0;
    }
    return *text ? 0 : value;
}

static uint64_t read_memory(char *(*lookup)(const char *name), const char *name)
{
    const char *text = lookup(name);
    uint64_t bytes = text ? weir_limit_bytes(text) : 0;

    if (text && *text && bytes == 0 && strcmp(text, "0") != 0) {
        weir_log_warn("guest: not a size, ignored, variable=%s", name);
    }
    return bytes;
}

static uint32_t read_sm(char *(*lookup)(const char *name))
{
    const char *text = lookup(SM_VARIABLE);
    uint64_t pct = 0;

    if (text && *text && (!read_digits(&text, &pct) || *text)) {
        weir_log_warn("guest: not a percentage, ignored, variable=" SM_VARIABLE);
        return 0;
    }
    return pct < 100 ? (uint32_t)pct : 0; /* 100 or more: no limit */
}

static uint32_t read_connections(char *(*lookup)(const char *name))
{
    const char *text = lookup(CONNECTIONS_VARIABLE);
    uint64_t n = 0;

    if (!text || !*text) {
        return 0;
    }
    if (!read_digits(&text, &n) || *text || n == 0 || n > WEIR_CONTROL_MAX_CONNECTIONS) {
        weir_log_warn("guest: not a number from 1 to 32, ignored, variable=" CONNECTIONS_VARIABLE);
        return 0;
    }
    return (uint32_t)n;
}

void weir_limits_read(char *(*lookup)(const char *name), struct weir_limit_wish *ret_wish)
{
    uint64_t all = read_memory(lookup, MEMORY_VARIABLE);

    *ret_wish = (struct weir_limit_wish){.sm_pct = read_sm(lookup),
                                         .connections = read_connections(lookup)};
    for (uint32_t i = 0; i < WEIR_CONTROL_MAX_DEVICES; i++) {
        char name[sizeof MEMORY_VARIABLE + 8];

        snprintf(name, sizeof name, MEMORY_VARIABLE "_%u", i);
        uint64_t one = read_memory(lookup, name);
        ret_wish->memory_bytes[i] = one ? one : all;
    }
}
