/*
 * Predict how long work takes, from observed durations.
 *
 * Each key has a straight line through its observations: duration = launch + blocks * block (FLEP's
 * linear model, in blocks; the key holds kernel and block geometry). Copies have a line in bytes
 * per direction, which is CuMAS's rate x / (a x + b) turned round. Old observations fade, so that
 * the line follows a kernel whose data changes.
 *
 * Keys have owners, such as tenants: the highest 16 bits of a key (above WEIR_PREDICT_KEY_BITS)
 * name the owner, so the other bits cannot name a key of another owner. Copies have a line for each
 * owner. Keys with an unknown owner belong to nobody.
 *
 * There are at most `capacity` keys, and an owner has at most a quarter of them: a new key replaces
 * its own key that was unused longest. When all are taken, an owner that is not in use gives one
 * up, else the owner with the most keys, and on a tie the owner that wants another. So others
 * cannot push an owner below an equal part.
 *
 * Threads: owner thread only, or under one lock of the owner's.
 * Source: docs/design/scheduling.md; FLEP (ASPLOS 2017) 4.2, CuMAS (ICS 2016) 5.3
 */
#pragma once

#include "sched/sched.h"

#define WEIR_PREDICT_KEY_BITS   48 /* low bits of a key, which its owner may choose */
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
 * Add an owner of keys, or bring a known one back in use; it keeps what was learned.
 *
 * @param name       the owner's; cut after WEIR_PREDICT_NAME_BYTES - 1; not empty.
 * @param ret_owner  to be put into keys: key & WEIR_PREDICT_KEY_MASK | owner.
 * @return WEIR_OK
 * @return WEIR_ERR_NO_MEMORY  also if 1023 owners are in use.
 * @thread owner
 */
enum weir_status weir_predict_owner_comes(struct weir_predict *predict, const char *name,
                                          uint64_t *ret_owner) WEIR_MUST_CHECK;
/** An owner is no longer in use: other owners may take the room of its keys. @thread owner */
void weir_predict_owner_goes(struct weir_predict *predict, uint64_t owner);

/**
 * Predict how long an item takes alone on the device.
 *
 * @param key    for copies and memsets only its owner counts.
 * @param size   blocks of a kernel, bytes of a copy or memset, 0 for a graph.
 * @return nanoseconds, 1 or more; 0: nothing is known.
 * @thread owner
 */
uint64_t weir_predict_ask(struct weir_predict *predict, enum weir_sched_class class, uint64_t key,
                          uint64_t size);

/**
 * Learn how long an undisturbed item took.
 *
 * This never fails: without memory for a new key nothing is learned.
 * @param took_ns  0: nothing is learned.
 * @thread owner
 */
void weir_predict_learn(struct weir_predict *predict, enum weir_sched_class class, uint64_t key,
                        uint64_t size, uint64_t took_ns);

/**
 * Learn the mean duration of several identical items: one observation, with their weight.
 *
 * @param count  number of items, 1 or more; above 8 counts as 8. Otherwise as weir_predict_learn().
 */
void weir_predict_learn_alike(struct weir_predict *predict, enum weir_sched_class class,
                              uint64_t key, uint64_t size, uint64_t took_ns, uint32_t count);

/**
 * Suppose the duration that an item took beside others, until the first weir_predict_learn() of its
 * key. This has no effect once the key has been learned. Otherwise as weir_predict_learn().
 */
void weir_predict_suppose(struct weir_predict *predict, enum weir_sched_class class, uint64_t key,
                          uint64_t size, uint64_t took_ns);

/**
 * Is a key's prediction reliable enough for charges? It is after three observations that agree, or
 * sixteen.
 * @thread owner
 */
bool weir_predict_is_sure(const struct weir_predict *predict, enum weir_sched_class class,
                          uint64_t key);

/* How far predictions were from the durations observed afterwards, as parts of these: 0.05 is 5 %.
 * All members are 0 until something was observed. */
struct weir_predict_error {
    uint64_t count;      /* observations of keys that had been seen before */
    double mean, median; /* the median to within 3 % of itself, from 0.1 % to 6400 % */
};

/* Statistics over all keys since the predictor was created, for `weir stats`. */
struct weir_predict_stats {
    uint32_t keys;
    uint64_t asked, known; /* queries; queries with an answer */
    uint64_t learned;
    struct weir_predict_error kernels; /* kernels and graphs */
    struct weir_predict_error copies;  /* copies and memsets */
};
/** @thread owner */
void weir_predict_stats(const struct weir_predict *predict, struct weir_predict_stats *ret_stats);

/** The most bytes that weir_predict_save() needs now. @thread owner */
size_t weir_predict_save_bytes(const struct weir_predict *predict);

/**
 * Write the learned lines and the owners' names as a versioned, checksummed image, the same on
 * every machine. Suppositions and graphs are left out, since graphs' keys are a process's own.
 *
 * @param capacity_bytes  of the buffer.
 * @param ret_bytes       the number of bytes written.
 * @return WEIR_OK, WEIR_ERR_TOO_BIG (nothing was written)
 * @thread owner
 */
enum weir_status weir_predict_save(const struct weir_predict *predict, void *buffer,
                                   size_t capacity_bytes, size_t *ret_bytes) WEIR_MUST_CHECK;

/**
 * Import an image of weir_predict_save(). It replaces the lines of the same keys; lines that do not
 * fit are left out.
 *
 * @param buffer  the image; any bytes are safe.
 * @return WEIR_OK
 * @return WEIR_ERR_VERSION    the image has another version.
 * @return WEIR_ERR_INVALID    the image is damaged; nothing was imported.
 * @thread owner
 */
enum weir_status weir_predict_load(struct weir_predict *predict, const void *buffer,
                                   size_t bytes) WEIR_MUST_CHECK;

/**
 * Export the sure lines of an owner's kernels and copies, the latest used first, for
 * weir_predict_take_row() in another process. Rows name no owner.
 *
 * @param row  called with each row; returns false to end the export.
 * @thread owner
 */
void weir_predict_rows(const struct weir_predict *predict, uint64_t owner,
                       bool (*row)(void *user, const uint8_t bytes[WEIR_PREDICT_ROW_BYTES]),
                       void *user);
/** Import a row as a key of no owner, unless that key was learned here. An invalid row is ignored.
 * @thread owner */
void weir_predict_take_row(struct weir_predict *predict,
                           const uint8_t bytes[WEIR_PREDICT_ROW_BYTES]);
