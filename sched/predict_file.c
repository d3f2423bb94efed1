/*
 * The file format of learned durations: header, owners' names, entries of each owner from the one
 * unused longest to the newest, checksum. All numbers little-endian, doubles as their 64 bits.
 *
 *     0   "WEIRPRED"
 *     8   version
 *     12  number of entries
 *     16  number of owners with a name
 *     24  names of 64 bytes, the first of them owner 1
 *     ..  entries of 88 bytes: key, class (2 bytes), owner (2 bytes), ...
 *     ..  XXH3-64 of all before
 *
 * A row is an entry alone.
 *
 * Source: docs/design/scheduling.md
 */
#include "base/hash.h"
#include "sched/predict_private.h"
#include <math.h>
#include <string.h>

#define MAGIC         "WEIRPRED"
#define VERSION       4u
#define HEADER_BYTES  24u
#define ENTRY_BYTES   WEIR_PREDICT_ROW_BYTES
#define FIELDS        9u /* the sixth is not used */
#define TRAILER_BYTES 8u
_Static_assert(ENTRY_BYTES == 16 + 8 * FIELDS, "as put_entry() has it");

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
    return HEADER_BYTES + (size_t)(predict->n_owners - 1) * WEIR_PREDICT_NAME_BYTES +
           (size_t)predict->count * ENTRY_BYTES + TRAILER_BYTES;
}

static void put_entry(uint8_t *at, const struct entry *entry, uint32_t owner)
{
    const struct model *m = &entry->model;
    const double field[FIELDS] = {m->w, m->wx, m->wy, m->wxx, m->wxy, 0, m->n, m->x, m->y};

    put(at, entry->owner != 0 ? entry->key & WEIR_PREDICT_KEY_MASK : entry->key, 8);
    put(at + 8, entry->class, 2);
    put(at + 10, owner, 2);
    put(at + 12, WEIR_MIN(m->samples, UINT32_MAX), 4);
    for (uint32_t i = 0; i < FIELDS; i++) {
        put(at + 16 + 8 * i, bits_of(field[i]), 8);
    }
}

static bool is_kept(const struct entry *entry)
{
    return entry->class != WEIR_SCHED_GRAPH && !entry->supposed;
}

/* @return the number of entries written */
static uint32_t put_entries(uint8_t *at, const struct weir_predict *predict, uint32_t owner,
                            uint32_t as)
{
    uint32_t count = 0;

    for (uint32_t i = predict->owner[owner].oldest; i != 0; i = predict->entry[i - 1].newer) {
        if (is_kept(&predict->entry[i - 1])) {
            put_entry(at + (size_t)count++ * ENTRY_BYTES, &predict->entry[i - 1], as);
        }
    }
    return count;
}

/* Is the owner's name written? Not if it has no entries. */
static bool has_name(const struct weir_predict *predict, uint32_t owner)
{
    return owner != 0 && predict->owner[owner].count != 0;
}

enum weir_status weir_predict_save(const struct weir_predict *predict, void *buffer,
                                   size_t capacity_bytes, size_t *ret_bytes)
{
    size_t bytes = weir_predict_save_bytes(predict);
    uint8_t *at = buffer;
    uint32_t count = 0, names = 0;

    WEIR_FAIL_IF(bytes > capacity_bytes, WEIR_ERR_TOO_BIG);
    memset(buffer, 0, HEADER_BYTES);
    memcpy(at, MAGIC, 8);
    put(at + 8, VERSION, 4);
    at += HEADER_BYTES;
    for (uint32_t i = 1; i < predict->n_owners; i++) {
        if (has_name(predict, i)) {
            memcpy(at, predict->owner[i].name, WEIR_PREDICT_NAME_BYTES);
            at += WEIR_PREDICT_NAME_BYTES;
            names++;
        }
    }
    put((uint8_t *)buffer + 16, names, 4);
    names = 0;
    for (uint32_t i = 0; i < predict->n_owners; i++) {
        names += has_name(predict, i);
        count += put_entries(at + (size_t)count * ENTRY_BYTES, predict, i, i != 0 ? names : 0);
    }
    put((uint8_t *)buffer + 12, count, 4);
    bytes = (size_t)(at - (uint8_t *)buffer) + (size_t)count * ENTRY_BYTES + TRAILER_BYTES;
    put((uint8_t *)buffer + bytes - TRAILER_BYTES, weir_hash64_of(buffer, bytes - TRAILER_BYTES),
        8);
    *ret_bytes = bytes;
    return WEIR_OK;
}

static bool is_sound(double value)
{
    return isfinite(value) && value >= 0;
}

/* Read an entry. False: no observations could have led to this model. */
static bool get_entry(const uint8_t *at, struct entry *ret_entry)
{
    struct entry entry = {
        .key = get(at, 8), .class = (uint32_t)get(at + 8, 2), .owner = (uint32_t)get(at + 10, 2)};
    struct model *m = &entry.model;
    double field[FIELDS];

    m->samples = get(at + 12, 4);
    for (uint32_t i = 0; i < FIELDS; i++) {
        field[i] = double_of(get(at + 16 + 8 * i, 8));
        if (!is_sound(field[i])) {
            return false;
        }
    }
    *m = (struct model){.w = field[0],
                        .wx = field[1],
                        .wy = field[2],
                        .wxx = field[3],
                        .wxy = field[4],
                        .n = field[6],
                        .x = field[7],
                        .y = field[8],
                        .samples = m->samples};
    *ret_entry = entry;
    return entry.class < WEIR_SCHED_CLASS_COUNT && m->samples > 0 && m->w > 0 && m->wy > 0 &&
           m->n > 0;
}

/* Import an entry as if it had been learned now, unless another owner has its key. */
static void take_over(struct weir_predict *predict, const struct entry *entry, uint32_t owner)
{
    if (predict_owner_of(predict, entry->key) != owner) {
        return;
    }
    struct entry *known =
        predict_entry(predict, (enum weir_sched_class)entry->class, entry->key, true);
    known->model = entry->model;
    known->supposed = false;
    known->seen = UINT32_MAX;
}

/* The parts of an image; open_image() checked their lengths. */
struct image {
    const uint8_t *names, *entries;
    uint64_t n_names, n_entries;
};

static enum weir_status open_image(const uint8_t *bytes, size_t n_bytes, struct image *ret_image)
{
    uint64_t n_names, n_entries;

    WEIR_FAIL_IF(n_bytes < HEADER_BYTES + TRAILER_BYTES || memcmp(bytes, MAGIC, 8) != 0,
                 WEIR_ERR_INVALID);
    WEIR_FAIL_IF(get(bytes + 8, 4) != VERSION, WEIR_ERR_VERSION);
    n_entries = get(bytes + 12, 4);
    n_names = get(bytes + 16, 4);
    if (n_names * WEIR_PREDICT_NAME_BYTES + n_entries * ENTRY_BYTES !=
            n_bytes - HEADER_BYTES - TRAILER_BYTES ||
        get(bytes + n_bytes - TRAILER_BYTES, 8) != weir_hash64_of(bytes, n_bytes - TRAILER_BYTES)) {
        return WEIR_ERR_INVALID;
    }
    *ret_image = (struct image){.names = bytes + HEADER_BYTES,
                                .entries = bytes + HEADER_BYTES + n_names * WEIR_PREDICT_NAME_BYTES,
                                .n_names = n_names,
                                .n_entries = n_entries};
    return WEIR_OK;
}

static bool is_whole(const struct image *image)
{
    struct entry entry;

    for (uint64_t i = 0; i < image->n_names; i++) {
        const uint8_t *name = image->names + i * WEIR_PREDICT_NAME_BYTES;

        if (name[0] == 0 || name[WEIR_PREDICT_NAME_BYTES - 1] != 0) {
            return false;
        }
    }
    return !WEIR_ANY(i, image->n_entries,
                     !get_entry(image->entries + i * ENTRY_BYTES, &entry) ||
                         entry.owner > image->n_names);
}

enum weir_status weir_predict_load(struct weir_predict *predict, const void *buffer, size_t bytes)
{
    struct image image;
    uint32_t owner = 0, of = 0;
    struct entry entry;
    WEIR_TRY(open_image(buffer, bytes, &image));
    WEIR_FAIL_IF(!is_whole(&image), WEIR_ERR_INVALID);
    for (uint64_t i = 0; i < image.n_entries; i++) {
        get_entry(image.entries + i * ENTRY_BYTES, &entry);
        if (entry.owner != of) {
            of = entry.owner;
            owner = of != 0 ? predict_owner_named(predict,
                                                  (const char *)image.names +
                                                      (size_t)(of - 1) * WEIR_PREDICT_NAME_BYTES)
                            : 0;
        }
        if (of != 0) {
            entry.key = (entry.key & WEIR_PREDICT_KEY_MASK) | (uint64_t)owner
                                                                  << WEIR_PREDICT_KEY_BITS;
        }
        if (of == 0 || owner != 0) {
            take_over(predict, &entry, owner);
        }
    }
    return WEIR_OK;
}

/* ---------------------------------------------------------------- rows */

void weir_predict_rows(const struct weir_predict *predict, uint64_t owner,
                       bool (*row)(void *user, const uint8_t bytes[WEIR_PREDICT_ROW_BYTES]),
                       void *user)
{
    uint32_t i = predict->owner[predict_owner_of(predict, owner)].newest;

    for (bool more = true; more && i != 0; i = predict->entry[i - 1].older) {
        const struct entry *entry = &predict->entry[i - 1];
        uint8_t bytes[WEIR_PREDICT_ROW_BYTES];

        if (is_kept(entry) && predict_is_sure(entry)) {
            put_entry(bytes, entry, 0);
            more = row(user, bytes);
        }
    }
}

void weir_predict_take_row(struct weir_predict *predict,
                           const uint8_t bytes[WEIR_PREDICT_ROW_BYTES])
{
    struct entry entry;

    if (!get_entry(bytes, &entry) || entry.owner != 0) {
        return;
    }
    const struct entry *known =
        predict_entry(predict, (enum weir_sched_class)entry.class, entry.key, false);
    if (!known || known->supposed) {
        take_over(predict, &entry, 0);
    }
}
