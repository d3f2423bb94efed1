/*
 * Saves the learned durations, so that the next host need not learn them again, and reports how
 * good predictions are. There is a file for each GPU, next to the cache of twins. A worker that
 * never has a gate process writes and reads it; the gate process has its own (process/times.c).
 * Like that cache (host_backend/config/file_cache.h), a file is written under another name and
 * renamed, its size is bounded, and a damaged file is removed with a line in the log.
 *
 * The file is written when the process ends, and every KEEP_NS if something was learned. Copying
 * the table holds the gate's lock, so this waits for a moment without work, but not for ever.
 */
#include "host_backend/config/control.h"
#include "host_backend/gate/private.h"

#include "base/log.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUFFIX      ".times"
#define FILES_BYTES (UINT64_C(16) << 20) /* of all GPUs and drivers; a file has up to 1.2 MB */
#define KEEP_NS     (60 * WEIR_NS_PER_S)
#define WAIT_NS     (600 * WEIR_NS_PER_S)

void weir_gate_times_open(struct weir_gate *gate, const char *dir)
{
    const uint64_t *uuid = (const uint64_t *)(const void *)gate->uuid;
    char of[64];
    struct weir_predict_stats stats;
    enum weir_status status;
    uint8_t *bytes;
    size_t n_bytes;

    weir_file_cache_init(&gate->times, dir, FILES_BYTES, SUFFIX);
    snprintf(of, sizeof of, "times\n%u\n%016llx%016llx", gate->sms, (unsigned long long)uuid[0],
             (unsigned long long)uuid[1]);
    gate->times_key = weir_hash_of(of, strlen(of));
    gate->kept_ns = weir_clock_now_ns();
    if (weir_file_cache_get(&gate->times, &gate->times_key, &bytes, &n_bytes) != WEIR_OK) {
        return;
    }
    status = weir_predict_load(gate->predict, bytes, n_bytes);
    free(bytes);
    weir_predict_stats(gate->predict, &stats);
    gate->keys_found = stats.keys;
    if (status != WEIR_OK) {
        weir_log_warn("sched: durations on disk are not taken over device=%u why=\"%s\"",
                      gate->device, weir_status_text(status));
    }
}

/* The table as it is now, to be freed; NULL: nothing new, or no memory. */
static uint8_t *copy(struct weir_gate *gate, bool when_idle, size_t *ret_bytes)
{
    struct weir_predict_stats stats;
    uint8_t *bytes = NULL;

    pthread_mutex_lock(&gate->lock);
    weir_predict_stats(gate->predict, &stats);
    if (stats.learned != gate->kept_learned && (!when_idle || gate->n_items == 0)) {
        size_t room = weir_predict_save_bytes(gate->predict);

        bytes = malloc(room);
        if (bytes != NULL && weir_predict_save(gate->predict, bytes, room, ret_bytes) == WEIR_OK) {
            gate->kept_learned = stats.learned;
        }
    }
    pthread_mutex_unlock(&gate->lock);
    return bytes;
}

static void keep(struct weir_gate *gate, bool when_idle)
{
    size_t n_bytes = 0;
    bool keeps = gate->times.dir[0] != 0 && !gate->attached_once;
    uint8_t *bytes = keeps ? copy(gate, when_idle, &n_bytes) : NULL;

    if (bytes == NULL) {
        return;
    }
    if (weir_file_cache_put(&gate->times, &gate->times_key, bytes, n_bytes) != WEIR_OK &&
        !gate->told_not_kept) {
        gate->told_not_kept = true;
        weir_log_warn("sched: durations cannot be kept dir=%s", gate->times.dir);
    }
    free(bytes);
    gate->kept_ns = weir_clock_now_ns();
}

void weir_gate_keep(struct weir_gate *gate)
{
    uint64_t now_ns = weir_clock_now_ns();

    if (now_ns - gate->kept_ns >= KEEP_NS) {
        keep(gate, now_ns - gate->kept_ns < WAIT_NS);
    }
}

void weir_gate_prediction(struct weir_gate *gate, struct weir_status_prediction *row)
{
    struct weir_predict_stats stats;

    pthread_mutex_lock(&gate->lock);
    weir_predict_stats(gate->predict, &stats);
    pthread_mutex_unlock(&gate->lock);
    row->keys = stats.keys;
    row->keys_found = gate->keys_found;
    row->asked = stats.asked;
    row->known = stats.known;
    row->kernels = stats.kernels.count;
    row->kernel_mean = stats.kernels.mean;
    row->kernel_median = stats.kernels.median;
    row->copies = stats.copies.count;
    row->copy_mean = stats.copies.mean;
    row->copy_median = stats.copies.median;
}

void weir_gate_times_close(struct weir_gate *gate)
{
    keep(gate, false);
    weir_file_cache_finish(&gate->times);
}
