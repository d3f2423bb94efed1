/*
 * Learned durations: a table of straight lines.
 *
 * Each key has weighted sums, from which the line is computed when it is needed. They fade by 1/64
 * with each observation. As long as all observations have had about the same size, the line through
 * them is not determined; then time is assumed to be in proportion to size (CuMAS's time per
 * block), which is exact for that very size. A single observation far off the prediction (a clock
 * that changed, an unseen disturbance) is limited to four times the prediction, so that one cannot
 * spoil what many taught, but five can change it. A kernel's first observations are often disturbed
 * by other programs that start, too: among the first predict_early ones, each that disagrees
 * discards the earlier ones. Kernels' lines are raised to the mean (struct model).
 *
 * Source: FLEP (ASPLOS 2017) 4.2: linear regression per kernel, there over grid, block, input and
 * shared memory sizes and offline, here over blocks alone and while running: block and shared
 * memory sizes are in the key, input sizes are not known to a driver. CuMAS (ICS 2016) 5.3 for
 * copies.
 */
#include "base/grow.h"
#include "base/hash.h"
#include "sched/predict_private.h"
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CAPACITY_MAX (1u << 20)
#define SPREAD_MIN   1e-4  /* relative spreads whose square is less are rounding */
#define OWNER_PART   4u    /* an owner may have at most 1/OWNER_PART of the table */
#define OWNERS_MAX   1024u /* a power of two; includes the owner without a name */

enum weir_status weir_predict_create(uint32_t capacity, struct weir_predict **ret_predict)
{
    uint32_t buckets = 1;

    WEIR_FAIL_IF(capacity == 0 || capacity > CAPACITY_MAX, WEIR_ERR_INVALID);
    while (buckets < capacity) {
        buckets *= 2;
    }
    struct weir_predict *predict = calloc(1, sizeof(*predict));
    WEIR_FAIL_IF(!predict, WEIR_ERR_NO_MEMORY);
    predict->capacity = capacity;
    predict->bucket_mask = buckets - 1;
    predict->bucket = calloc(buckets, sizeof(*predict->bucket));
    predict->entry = calloc(capacity, sizeof(*predict->entry));
    predict->owner = calloc(1, sizeof(*predict->owner));
    predict->n_owners = predict->owners_room = 1;
    if (!predict->bucket || !predict->entry || !predict->owner) {
        weir_predict_destroy(predict);
        return WEIR_ERR_NO_MEMORY;
    }
    predict->owner->in_use = true;
    *ret_predict = predict;
    return WEIR_OK;
}

void weir_predict_destroy(struct weir_predict *predict)
{
    if (predict) {
        free(predict->bucket);
        free(predict->entry);
        free(predict->owner);
        free(predict);
    }
}

/* ---------------------------------------------------------------- the table */

static bool is_kernel(enum weir_sched_class class)
{
    return class == WEIR_SCHED_KERNEL || class == WEIR_SCHED_GRAPH;
}

static uint32_t *bucket_of(const struct weir_predict *predict, uint32_t class, uint64_t key)
{
    uint64_t name[2] = {key, class};

    return &predict->bucket[weir_hash64_of(name, sizeof(name)) & predict->bucket_mask];
}

uint32_t predict_owner_of(const struct weir_predict *predict, uint64_t key)
{
    uint64_t owner = key >> WEIR_PREDICT_KEY_BITS;

    return owner < predict->n_owners ? (uint32_t)owner : 0;
}

static void unlink_age(struct weir_predict *predict, struct entry *entry)
{
    struct owner *owner = &predict->owner[entry->owner];

    *(entry->newer != 0 ? &predict->entry[entry->newer - 1].older : &owner->newest) = entry->older;
    *(entry->older != 0 ? &predict->entry[entry->older - 1].newer : &owner->oldest) = entry->newer;
}

static void link_newest(struct weir_predict *predict, struct entry *entry)
{
    struct owner *owner = &predict->owner[entry->owner];
    uint32_t name = (uint32_t)(entry - predict->entry) + 1;

    entry->newer = 0;
    entry->older = owner->newest;
    *(entry->older != 0 ? &predict->entry[entry->older - 1].newer : &owner->oldest) = name;
    owner->newest = name;
}

static void evict_oldest(struct weir_predict *predict, struct owner *owner)
{
    struct entry *entry = &predict->entry[owner->oldest - 1];
    uint32_t *link = bucket_of(predict, entry->class, entry->key);

    while (&predict->entry[*link - 1] != entry) {
        link = &predict->entry[*link - 1].chain;
    }
    *link = entry->chain;
    unlink_age(predict, entry);
    owner->count--;
    predict->count--;
    entry->chain = predict->free;
    predict->free = (uint32_t)(entry - predict->entry) + 1;
}

/* Must owner `a` give up an entry before owner `b` does? */
static bool gives_before(const struct owner *a, const struct owner *b)
{
    return a->in_use != b->in_use ? !a->in_use : a->count > b->count;
}

/* Find the owner that must give up an entry for a new one of `owner`; NULL: there is room. */
static struct owner *giver(struct weir_predict *predict, struct owner *owner)
{
    uint32_t most = predict->capacity / OWNER_PART;
    struct owner *gives = owner;

    if (owner != predict->owner && owner->count != 0 && owner->count >= most) {
        return owner;
    }
    if (predict->count < predict->capacity) {
        return NULL;
    }
    for (uint32_t i = 0; i < predict->n_owners; i++) {
        struct owner *other = &predict->owner[i];

        if (other->count != 0 && (gives->count == 0 || gives_before(other, gives))) {
            gives = other;
        }
    }
    return gives;
}

static struct entry *entry_for(struct weir_predict *predict, struct owner *owner)
{
    struct owner *gives = giver(predict, owner);

    assert(owner);
    if (gives) {
        evict_oldest(predict, gives);
    }
    uint32_t name = predict->free;
    if (name != 0) {
        predict->free = predict->entry[name - 1].chain;
    } else {
        name = ++predict->made;
    }
    predict->count++;
    owner->count++;
    return &predict->entry[name - 1];
}

/* The key in the table; for copies and memsets only their owner. */
static uint64_t key_in(enum weir_sched_class class, uint64_t key, uint32_t owner)
{
    return is_kernel(class) ? key : (uint64_t)owner << WEIR_PREDICT_KEY_BITS;
}

/* Find a key's entry without making it the newest; NULL: there is none. */
static struct entry *find(const struct weir_predict *predict, enum weir_sched_class class,
                          uint64_t key)
{
    uint32_t owner = predict_owner_of(predict, key), i;
    struct entry *entry;

    key = key_in(class, key, owner);
    for (i = *bucket_of(predict, class, key); i != 0; i = entry->chain) {
        entry = &predict->entry[i - 1];
        if (entry->key == key && entry->class == class && entry->owner == owner) {
            return entry;
        }
    }
    return NULL;
}

struct entry *predict_entry(struct weir_predict *predict, enum weir_sched_class class, uint64_t key,
                            bool make)
{
    struct entry *entry = find(predict, class, key);
    uint32_t owner = predict_owner_of(predict, key), *bucket;

    if (entry) {
        unlink_age(predict, entry);
        link_newest(predict, entry);
        return entry;
    }
    WEIR_FAIL_IF(!make, NULL);
    key = key_in(class, key, owner);
    entry = entry_for(predict, &predict->owner[owner]);
    bucket = bucket_of(predict, class, key);
    *entry = (struct entry){.key = key, .class = class, .owner = owner, .chain = *bucket};
    *bucket = (uint32_t)(entry - predict->entry) + 1;
    link_newest(predict, entry);
    return entry;
}

/* ---------------------------------------------------------------- owners */

/* The index for a new owner; 0: there is none. */
static uint32_t owner_place(struct weir_predict *predict)
{
    uint32_t place = 0;

    if (predict->n_owners < OWNERS_MAX) {
        return WEIR_GROW(predict->owner, predict->n_owners, predict->owners_room)
                   ? predict->n_owners++
                   : 0;
    }
    for (uint32_t i = 1; i < predict->n_owners; i++) {
        if (!predict->owner[i].in_use &&
            (place == 0 || predict->owner[i].count < predict->owner[place].count)) {
            place = i;
        }
    }
    while (place != 0 && predict->owner[place].count != 0) {
        evict_oldest(predict, &predict->owner[place]);
    }
    return place;
}

uint32_t predict_owner_named(struct weir_predict *predict, const char *name)
{
    for (uint32_t i = 1; i < predict->n_owners; i++) {
        if (strncmp(predict->owner[i].name, name, WEIR_PREDICT_NAME_BYTES - 1) == 0) {
            return i;
        }
    }
    uint32_t place = owner_place(predict);
    if (place != 0) {
        predict->owner[place] = (struct owner){0};
        snprintf(predict->owner[place].name, WEIR_PREDICT_NAME_BYTES, "%s", name);
    }
    return place;
}

enum weir_status weir_predict_owner_comes(struct weir_predict *predict, const char *name,
                                          uint64_t *ret_owner)
{
    uint32_t owner = predict_owner_named(predict, name);

    WEIR_FAIL_IF(owner == 0, WEIR_ERR_NO_MEMORY);
    predict->owner[owner].in_use = true;
    *ret_owner = (uint64_t)owner << WEIR_PREDICT_KEY_BITS;
    return WEIR_OK;
}

void weir_predict_owner_goes(struct weir_predict *predict, uint64_t owner)
{
    uint32_t place = predict_owner_of(predict, owner);

    if (place != 0) {
        predict->owner[place].in_use = false;
    }
}

/* ---------------------------------------------------------------- lines */

static void line_of(const struct model *m, bool kernel, double *ret_launch, double *ret_size)
{
    double spread = m->w * m->wxx - m->wx * m->wx;
    double byte_max_ns = tuning.predict_pull / tuning.guess_bus_gb_s; /* no bus is slower */

    if (m->wxx > 0 && spread > SPREAD_MIN * m->w * m->wxx) {
        double size = (m->w * m->wxy - m->wx * m->wy) / spread;
        double launch = (m->wy - size * m->wx) / m->w;

        if (size >= 0 && launch >= 0) {
            *ret_size = size;
            *ret_launch = launch;
            return;
        }
        if (size < 0) { /* larger items were quicker: size does not matter */
            *ret_size = 0;
            *ret_launch = m->wy / m->w;
            return;
        }
    }
    /* A line through zero with the least relative error. But large copies are faster per byte than
     * very small ones. */
    *ret_size = m->wxx > 0 ? m->wxy / m->wxx : 0;
    *ret_launch = m->wxx > 0 ? 0 : m->wy / m->w;
    if (!kernel && *ret_size > byte_max_ns) {
        *ret_size = byte_max_ns;
        *ret_launch = fmax((m->wy - byte_max_ns * m->wx) / m->w, 0);
    }
}

/* The line. A kernel's is raised until its predictions sum up to the observed times. */
static void mean_line_of(const struct model *m, bool kernel, double *ret_launch, double *ret_size)
{
    double said, ratio;

    line_of(m, kernel, ret_launch, ret_size);
    if (!kernel) {
        return;
    }
    said = *ret_launch * m->n + *ret_size * m->x;
    ratio = said > 0 ? m->y / said : 1;
    *ret_launch *= ratio;
    *ret_size *= ratio;
}

static double value_of(const struct model *model, bool kernel, uint64_t size)
{
    double launch, per_size;

    mean_line_of(model, kernel, &launch, &per_size);
    return fmax(launch + per_size * (double)size, 1);
}

uint64_t weir_predict_ask(struct weir_predict *predict, enum weir_sched_class class, uint64_t key,
                          uint64_t size)
{
    predict->asked++;
    if (is_kernel(class) && key == 0) {
        return 0;
    }
    struct entry *entry = predict_entry(predict, class, key, false);
    if (!entry) {
        return 0;
    }
    predict->known++;
    double value = value_of(&entry->model, is_kernel(class), size);
    return value < 1e18 ? (uint64_t)(value + 0.5) : (uint64_t)1e18;
}

static void count_error(struct errors *errors, double error)
{
    double at = error > 0 ? (log2(error) - ERROR_BIN_FIRST) * ERROR_BINS_TWICE : 0;

    errors->sum += error;
    errors->count++;
    errors->bin[at < 0 ? 0 : at >= ERROR_BINS ? ERROR_BINS - 1 : (uint32_t)at]++;
}

static struct weir_predict_error sum_up(const struct errors *errors)
{
    uint64_t below = 0;
    uint32_t i = 0;

    if (errors->count == 0) {
        return (struct weir_predict_error){0};
    }
    while ((below += errors->bin[i]) * 2 < errors->count) {
        i++;
    }
    return (struct weir_predict_error){
        .count = errors->count,
        .mean = errors->sum / (double)errors->count,
        .median = exp2((i + 0.5) / ERROR_BINS_TWICE + ERROR_BIN_FIRST),
    };
}

static void observe(struct weir_predict *predict, struct model *m, double x, double y,
                    uint32_t count)
{
    double fade = 1 - 1.0 / tuning.predict_memory;

    for (uint32_t i = 0; i < count; i++) {
        m->n = m->n * fade + 1;
        m->x = m->x * fade + x;
        m->y = m->y * fade + y;
    }
    double weight = 1 / (y * y);
    m->w = m->w * fade + weight;
    m->wx = m->wx * fade + weight * x;
    m->wy = m->wy * fade + weight * y;
    m->wxx = m->wxx * fade + weight * x * x;
    m->wxy = m->wxy * fade + weight * x * y;
    m->samples++;
    predict->learned++;
}

/* Find the entry that learns an observation; NULL: the observation is of no use. */
static struct entry *entry_to_teach(struct weir_predict *predict, enum weir_sched_class class,
                                    uint64_t key, uint64_t took_ns)
{
    return took_ns == 0 || (is_kernel(class) && key == 0)
               ? NULL
               : predict_entry(predict, class, key, true);
}

void weir_predict_learn(struct weir_predict *predict, enum weir_sched_class class, uint64_t key,
                        uint64_t size, uint64_t took_ns)
{
    weir_predict_learn_alike(predict, class, key, size, took_ns, 1);
}

void weir_predict_learn_alike(struct weir_predict *predict, enum weir_sched_class class,
                              uint64_t key, uint64_t size, uint64_t took_ns, uint32_t count)
{
    struct entry *entry = entry_to_teach(predict, class, key, took_ns);
    double y = (double)took_ns;

    if (!entry) {
        return;
    }
    struct model *m = &entry->model;
    if (entry->supposed) {
        *m = (struct model){0};
        entry->supposed = false;
    }
    if (m->samples != 0) {
        double said = value_of(m, is_kernel(class), size);
        bool agrees = fabs(said - y) <= tuning.predict_agrees * y;

        count_error(is_kernel(class) ? &predict->kernels : &predict->copies, fabs(said - y) / y);
        entry->agreed = agrees ? entry->agreed + 1 : 0;
        if (!agrees && entry->size == size && is_kernel(class) &&
            entry->seen < tuning.predict_early) {
            *m = (struct model){.samples = m->samples};
        } else if (m->samples >= tuning.predict_early) {
            y = fmin(fmax(y, said / tuning.predict_pull), said * tuning.predict_pull);
        }
    }
    entry->seen += entry->seen != UINT32_MAX;
    entry->size = size;
    observe(predict, m, (double)size, y, WEIR_MIN(count, tuning.predict_early));
}

void weir_predict_suppose(struct weir_predict *predict, enum weir_sched_class class, uint64_t key,
                          uint64_t size, uint64_t took_ns)
{
    struct entry *entry = entry_to_teach(predict, class, key, took_ns);

    if (!entry) {
        return;
    }
    entry->supposed |= entry->model.samples == 0;
    if (entry->supposed) {
        observe(predict, &entry->model, (double)size, (double)took_ns, 1);
    }
}

bool predict_is_sure(const struct entry *entry)
{
    return !entry->supposed &&
           (entry->agreed >= tuning.predict_sure_agreed || entry->seen >= tuning.predict_sure_seen);
}

bool weir_predict_is_sure(const struct weir_predict *predict, enum weir_sched_class class,
                          uint64_t key)
{
    const struct entry *entry = find(predict, class, key);

    return entry && predict_is_sure(entry);
}

void weir_predict_stats(const struct weir_predict *predict, struct weir_predict_stats *ret_stats)
{
    *ret_stats = (struct weir_predict_stats){
        .keys = predict->count,
        .asked = predict->asked,
        .known = predict->known,
        .learned = predict->learned,
        .kernels = sum_up(&predict->kernels),
        .copies = sum_up(&predict->copies),
    };
}
