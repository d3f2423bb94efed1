/*
 * How long work takes, learned from how long it took.
 *
 * Per key a straight line through what was seen: duration = launch + blocks * block (FLEP's linear
 * model, in blocks; the key holds kernel and block geometry). Copies have a line in bytes per
 * direction, which is CuMAS's rate x / (a x + b) read the other way round. Old observations fade,
 * so that a kernel whose data changes is followed. What a prediction was off by is kept as a mean
 * relative error.
 *
 * Keys have owners, who are the tenants where several are predicted for: the highest 16 bits of a
 * key (WEIR_PREDICT_KEY_BITS) say whose it is, so no other bits can name a key of another owner.
 * Copies have a line for each owner. Keys of no owner known here are nobody's.
 *
 * At most `capacity` keys, and of an owner a quarter of that; its own one unused longest makes
 * room. When all are taken, an owner who is not in use gives one up, else the one with the most,
 * and on a tie the one who wants another. So no owner is left with less than an equal part by
 * others.
 *
 * Threads: owner thread only, or under one lock of the owner's.
 * Source: docs/design/scheduling.md; FLEP (ASPLOS 2017) 4.2, CuMAS (ICS 2016) 5.3
 */
#ifndef WEIR_SCHED_PREDICT_H
#define WEIR_SCHED_PREDICT_H

#include "sched/sched.h"

#define WEIR_PREDICT_KEY_BITS   48 /* of a key that are its owner's to choose */
#define WEIR_PREDICT_KEY_MASK   ((UINT64_C(1) << WEIR_PREDICT_KEY_BITS) - 1)
#define WEIR_PREDICT_NAME_BYTES 64u
#define WEIR_PREDICT_ROW_BYTES  88u

struct weir_predict;

/** @param capacity  keys, 1 .. 2^20. @return WEIR_OK, WEIR_ERR_INVALID, WEIR_ERR_NO_MEMORY @thread
 * any */
enum weir_status weir_predict_create(uint32_t capacity,
                                     struct weir_predict **ret_predict) WEIR_MUST_CHECK;

/** Accepts NULL. @thread owner */
void weir_predict_destroy(struct weir_predict *predict);

/**
 * Whose keys are predicted for from now on. Who is known already keeps what was learned.
 *
 * @param name       cut after WEIR_PREDICT_NAME_BYTES - 1; not empty.
 * @param ret_owner  to be put into keys: key & WEIR_PREDICT_KEY_MASK | owner.
 * @return WEIR_OK
 * @return WEIR_ERR_NO_MEMORY  also: 1023 are in use.
 * @thread owner
 */
enum weir_status weir_predict_owner_comes(struct weir_predict *predict, const char *name,
                                          uint64_t *ret_owner) WEIR_MUST_CHECK;
/** Its keys may make room for others'. @thread owner */
void weir_predict_owner_goes(struct weir_predict *predict, uint64_t owner);

/**
 * How long an item will take alone on the device.
 *
 * @param key    of copies and memsets the owner alone is looked at.
 * @param size   blocks of a kernel, bytes of a copy or memset; of a graph 0.
 * @return nanoseconds, 1 or more; 0: nothing is known.
 * @thread owner
 */
uint64_t weir_predict_ask(struct weir_predict *predict, enum weir_sched_class class, uint64_t key,
                          uint64_t size);

/**
 * How long an item took, undisturbed.
 *
 * Never fails: without memory for a new key nothing is learned.
 * @param took_ns  0 is not learned from.
 * @thread owner
 */
void weir_predict_learn(struct weir_predict *predict, enum weir_sched_class class, uint64_t key,
                        uint64_t size, uint64_t took_ns);

/**
 * How long each of several like items took, in the mean: one observation, with their weight.
 *
 * @param count  of them, 1 or more; above 8 counts as 8. Otherwise as weir_predict_learn().
 */
void weir_predict_learn_alike(struct weir_predict *predict, enum weir_sched_class class,
                              uint64_t key, uint64_t size, uint64_t took_ns, uint32_t count);

/**
 * How long an item took beside others: better than nothing, and forgotten at the first learn().
 * Where something was learned of the key it says nothing. Otherwise as weir_predict_learn().
 */
void weir_predict_suppose(struct weir_predict *predict, enum weir_sched_class class, uint64_t key,
                          uint64_t size, uint64_t took_ns);

/**
 * Has the key been learned of often enough to charge by it: three times alike, or sixteen times?
 * @thread owner
 */
bool weir_predict_is_sure(const struct weir_predict *predict, enum weir_sched_class class,
                          uint64_t key);

struct weir_predict_info {
    double launch_ns; /* what it costs without any block or byte */
    double size_ns;   /* each block or byte */
    double error;     /* mean relative error of predictions: 0.05 is 5 % */
    uint64_t samples;
};
/** @return false: nothing is known. @thread owner */
bool weir_predict_query(const struct weir_predict *predict, enum weir_sched_class class,
                        uint64_t key, struct weir_predict_info *ret_info);

/* What predictions were off by, relative to what was seen: 0.05 is 5 %. Zeros before there are. */
struct weir_predict_error {
    uint64_t count;      /* observations of keys that had been seen before */
    double mean, median; /* the median to within 3 % of itself, from 0.1 % to 6400 % */
};

/* Over all keys, since it was made, for `weir stats`. */
struct weir_predict_stats {
    uint32_t keys;
    uint64_t asked, known; /* questions; those that had an answer */
    uint64_t learned;
    struct weir_predict_error kernels; /* and graphs */
    struct weir_predict_error copies;  /* and memsets */
};
/** @thread owner */
void weir_predict_stats(const struct weir_predict *predict, struct weir_predict_stats *ret_stats);

/** Bytes that weir_predict_save() needs at most now. @thread owner */
size_t weir_predict_save_bytes(const struct weir_predict *predict);

/**
 * Write what is known, with the names of the owners: a versioned, checksummed image, the same on
 * every machine. Graphs are left out, since their keys are a process's own, and suppositions.
 *
 * @param capacity_bytes  of the buffer.
 * @param ret_bytes       written.
 * @return WEIR_OK, WEIR_ERR_TOO_BIG (nothing was written)
 * @thread owner
 */
enum weir_status weir_predict_save(const struct weir_predict *predict, void *buffer,
                                   size_t capacity_bytes, size_t *ret_bytes) WEIR_MUST_CHECK;

/**
 * Take over what weir_predict_save() wrote; what is known of the same keys is replaced, what does
 * not fit is left out.
 *
 * @param buffer  any bytes.
 * @return WEIR_OK
 * @return WEIR_ERR_VERSION    another version's.
 * @return WEIR_ERR_INVALID    damaged: nothing was taken over.
 * @thread owner
 */
enum weir_status weir_predict_load(struct weir_predict *predict, const void *buffer,
                                   size_t bytes) WEIR_MUST_CHECK;

/**
 * Tell what is surely known of an owner's kernels and copies, the one used last first, for
 * weir_predict_take_row() in another process. Rows name no owner.
 *
 * @param row  false: no more is wanted.
 * @thread owner
 */
void weir_predict_rows(const struct weir_predict *predict, uint64_t owner,
                       bool (*row)(void *user, const uint8_t bytes[WEIR_PREDICT_ROW_BYTES]),
                       void *user);
/** Take over a row, as a key of nobody's, unless something was learned of it here. A row that
 * makes no sense is left out. @thread owner */
void weir_predict_take_row(struct weir_predict *predict,
                           const uint8_t bytes[WEIR_PREDICT_ROW_BYTES]);

#endif
