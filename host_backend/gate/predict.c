/*
 * Predicts how long a session's work takes. A hint holds the last prediction for a while, so that
 * most launches do not need the gate's lock. This file also decides when a session must wait
 * because it launches a kernel of unknown duration again and again.
 */
#include "host_backend/gate/private.h"

#define HINT_USES  256u
#define HINT_RETRY 8u /* uses of a hint while nothing is known of the kernel */
/* Launches between marks of a kernel without a reliable prediction while its tenant is alone: at
 * first, and at most. */
#define BLIND_BATCH 4u
#define BLIND_MOST  (1u << 20)

static uint64_t guess_ns(const struct weir_gate *gate, const struct weir_gate_work *work)
{
    return weir_sched_guess_ns(&gate->config, work->class, work->bytes);
}

/* Read the learned durations that the gate process sends when a tenant's queues begin. */
static void take_known_locked(struct weir_gate *gate)
{
    struct weir_gate_client *client = weir_gate_client_of(gate);
    uint8_t row[WEIR_PREDICT_ROW_BYTES];

    while (client && weir_gate_port_known(client->port, gate->device, row)) {
        weir_predict_take_row(gate->predict, row);
    }
}

void weir_gate_ask_locked(struct weir_gate *gate, const struct weir_gate_work *work,
                          struct weir_gate_pass *pass)
{
    struct weir_gate_hint *hint = work->hint;

    take_known_locked(gate);
    uint64_t ns = weir_predict_ask(gate->predict, work->class, work->key, weir_gate_size_of(work));
    if (hint) {
        if (hint->item_key != work->key || hint->blocks != work->blocks) {
            hint->blind_max = 0;
        }
        hint->ns = ns;
        hint->sure = weir_predict_is_sure(gate->predict, work->class, work->key);
        hint->item_key = work->key;
        hint->blocks = work->blocks;
        hint->uses = 0;
    }
    pass->guessed = ns == 0;
    pass->ns = pass->guessed ? guess_ns(gate, work) : ns;
}

/* Use the last prediction while it is fresh. It needs no lock. */
void weir_gate_predict(struct weir_gate *gate, const struct weir_gate_work *work,
                       struct weir_gate_pass *pass)
{
    struct weir_gate_hint *hint = work->hint;

    if (hint && hint->item_key == work->key && hint->blocks == work->blocks &&
        hint->uses++ < (hint->ns != 0 ? HINT_USES : HINT_RETRY)) {
        pass->guessed = hint->ns == 0;
        pass->ns = pass->guessed ? guess_ns(gate, work) : hint->ns;
        return;
    }
    WEIR_LOCKED(&gate->lock);
    weir_gate_ask_locked(gate, work, pass);
}

static uint64_t mix(uint64_t a, uint64_t b)
{
    a = (a ^ b) * UINT64_C(0x9e3779b97f4a7c15);
    return a ^ a >> 29;
}

uint64_t weir_gate_kernel_key(uint64_t kernel, const uint32_t block[3], uint32_t shared_bytes)
{
    uint64_t key = mix(kernel, (uint64_t)block[0] << 32 | block[1]);

    return mix(key, (uint64_t)block[2] << 32 | shared_bytes) >> (64 - WEIR_PREDICT_KEY_BITS);
}

/*
 * A kernel of unknown duration is launched again and again. It may be long, and another tenant that
 * comes would wait for all these launches. If other kernels or geometries come between, the session
 * does not wait: the wait would measure nothing, and programs with several kernels should not be
 * delayed.
 */
bool weir_gate_is_blind(struct weir_gate_queue *q, struct weir_gate_hint *hint)
{
    bool again = q->last == hint;

    q->last = hint;
    if (!hint || hint->sure) {
        return false;
    }
    if (hint->blind_max == 0 || !again) {
        hint->blind_given_ns = atomic_load_explicit(&q->done_ns, memory_order_relaxed);
        hint->blind_max = BLIND_BATCH;
        hint->blind = 0;
    }
    return hint->blind++ == hint->blind_max;
}

/*
 * The second batch of such launches may follow the first, the third only when the first has ended.
 * A launch may itself wait for a later launch of the same kernel, so when no batch ends, the
 * batches double in size.
 */
bool weir_gate_see(struct weir_gate_queue *q, const struct weir_gate_work *work,
                   struct weir_gate_pass *pass)
{
    struct weir_gate_hint *hint = work->hint;
    bool done;

    if (!weir_gate_wait_done(q, hint->blind_given_ns, &done)) {
        return false;
    }
    hint->blind_max = done ? BLIND_BATCH : hint->blind_max * 2;
    hint->blind_max = WEIR_MIN(hint->blind_max, BLIND_MOST);
    hint->blind_given_ns = atomic_load_explicit(&q->given_ns, memory_order_relaxed);
    hint->blind = 1;
    hint->uses = HINT_USES; /* predict again at the next launch */
    weir_gate_predict(q->gate, work, pass);
    return true;
}
