/*
 * What was learned, as bytes: header, entries from the one unused longest to the newest, checksum.
 * All numbers little-endian, doubles as their 64 bits.
 *
 *     0   "WEIRPRED"
 *     8   version
 *     12  number of entries
 *     16  entries of 88 bytes
 *     ..  XXH3-64 of all before
 *
 * Source: docs/design/scheduling.md
 */
#include "base/hash.h"
#include "sched/predict_private.h"
#include <math.h>
#include <string.h>

#define MAGIC         "WEIRPRED"
#define VERSION       3u
#define HEADER_BYTES  16u
#define ENTRY_BYTES   88u
#define FIELDS        9u
#define TRAILER_BYTES 8u

static void put(uint8_t *at, uint64_t value, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++) {
        at[i] = (uint8_t)(value >> 8 * i);
    }
}

static uint64_t get(const uint8_t *at, uint32_t bytes)
{
    uint64_t value = 0;

    for (uint32_t i = 0; i < bytes; i++) {
        value |= (uint64_t)at[i] << 8 * i;
    }
    return value;
}

static uint64_t bits_of(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static double double_of(uint64_t bits)
{
    double value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

size_t weir_predict_save_bytes(const struct weir_predict *predict)
{
    return HEADER_BYTES + (size_t)predict->count * ENTRY_BYTES + TRAILER_BYTES;
}

static void put_entry(uint8_t *at, const struct entry *entry)
{
    const struct model *m = &entry->model;
    const double field[FIELDS] = {m->w, m->wx, m->wy, m->wxx, m->wxy, m->error, m->n, m->x, m->y};

    put(at, entry->key, 8);
    put(at + 8, entry->class, 4);
    put(at + 12, m->samples < UINT32_MAX ? m->samples : UINT32_MAX, 4);
    for (uint32_t i = 0; i < FIELDS; i++) {
        put(at + 16 + 8 * i, bits_of(field[i]), 8);
    }
}

enum weir_status weir_predict_save(const struct weir_predict *predict, void *buffer,
                                   size_t capacity_bytes, size_t *ret_bytes)
{
    size_t bytes = weir_predict_save_bytes(predict);
    uint8_t *at = buffer;
    uint32_t count = 0;

    if (bytes > capacity_bytes) {
        return WEIR_ERR_TOO_BIG;
    }
    memcpy(at, MAGIC, 8);
    put(at + 8, VERSION, 4);
    at += HEADER_BYTES;
    for (uint32_t i = predict->oldest; i != 0; i = predict->entry[i - 1].newer) {
        if (predict->entry[i - 1].class != WEIR_SCHED_GRAPH && !predict->entry[i - 1].supposed) {
            put_entry(at, &predict->entry[i - 1]);
            at += ENTRY_BYTES;
            count++;
        }
    }
    put((uint8_t *)buffer + 12, count, 4);
    bytes = (size_t)(at - (uint8_t *)buffer) + TRAILER_BYTES;
    put(at, weir_hash64_of(buffer, bytes - TRAILER_BYTES), 8);
    *ret_bytes = bytes;
    return WEIR_OK;
}

static bool is_sound(double value)
{
    return isfinite(value) && value >= 0;
}

/* False: no observation could have made this. */
static bool get_entry(const uint8_t *at, struct entry *ret_entry)
{
    struct entry entry = {.key = get(at, 8), .class = (uint32_t)get(at + 8, 4)};
    struct model *m = &entry.model;
    double field[FIELDS];

    m->samples = get(at + 12, 4);
    for (uint32_t i = 0; i < FIELDS; i++) {
        field[i] = double_of(get(at + 16 + 8 * i, 8));
        if (!is_sound(field[i])) {
            return false;
        }
    }
    m->w = field[0];
    m->wx = field[1];
    m->wy = field[2];
    m->wxx = field[3];
    m->wxy = field[4];
    m->error = field[5];
    m->n = field[6];
    m->x = field[7];
    m->y = field[8];
    *ret_entry = entry;
    return entry.class < WEIR_SCHED_CLASS_COUNT && m->samples > 0 && m->w > 0 && m->wy > 0 &&
           m->n > 0;
}

enum weir_status weir_predict_load(struct weir_predict *predict, const void *buffer, size_t bytes)
{
    const uint8_t *at = buffer;
    uint64_t count;
    struct entry entry;

    if (bytes < HEADER_BYTES + TRAILER_BYTES || memcmp(at, MAGIC, 8) != 0) {
        return WEIR_ERR_INVALID;
    }
    if (get(at + 8, 4) != VERSION) {
        return WEIR_ERR_VERSION;
    }
    count = get(at + 12, 4);
    if (count * ENTRY_BYTES != bytes - HEADER_BYTES - TRAILER_BYTES ||
        get(at + bytes - TRAILER_BYTES, 8) != weir_hash64_of(buffer, bytes - TRAILER_BYTES)) {
        return WEIR_ERR_INVALID;
    }
    at += HEADER_BYTES;
    for (uint64_t i = 0; i < count; i++) {
        if (!get_entry(at + i * ENTRY_BYTES, &entry)) {
            return WEIR_ERR_INVALID;
        }
    }
    for (uint64_t i = 0; i < count; i++) {
        struct entry *known;

        get_entry(at + i * ENTRY_BYTES, &entry);
        known = predict_entry(predict, (enum weir_sched_class)entry.class, entry.key, true);
        known->model = entry.model;
        known->supposed = false;
        known->seen = UINT32_MAX; /* it was, in another run */
    }
    return WEIR_OK;
}
