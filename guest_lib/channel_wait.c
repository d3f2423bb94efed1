/*
 * Waits for completion words.
 *
 * A wait spins as long as the policy says, then yields, then sleeps on the word itself. softgpu
 * wakes the sleeper, but a GPU does not, so each sleep is short compared with the time waited
 * already: a sixteenth of it at first, and a 512th if that is longer than slice_max_ns.
 */
#include "guest_lib/calls.h"
#include "guest_lib/channel.h"
#include "proto/guest_calls.h"
#include <sched.h>

#define PEER_CHECK_NS   (50 * WEIR_NS_PER_MS)
#define SOON_SPIN_NS    (5 * WEIR_NS_PER_US)
#define PAUSES_PER_LOOK 16
#define LONG_SLICE_NS   (5 * WEIR_NS_PER_MS) /* the longest slice, for a wait of 2.5 s or more */

uint64_t weir_channel_spin_ns(struct weir_channel *channel, uint64_t spin_ns)
{
    bool lost = __atomic_load_n(&channel->preempted, __ATOMIC_RELAXED) &&
                __atomic_exchange_n(&channel->preempted, false, __ATOMIC_RELAXED);

    if (lost || (channel->header && __atomic_load_n(&channel->header->spin, __ATOMIC_RELAXED) ==
                                        WEIR_SEGMENT_SPIN_NO)) {
        return WEIR_MIN(spin_ns, WEIR_FEW_SPIN_NS);
    }
    return spin_ns;
}

static bool value_reached(uint32_t now, uint32_t value)
{
    return (int32_t)(now - value) >= 0;
}

uint32_t weir_channel_word(struct weir_channel *channel, uint32_t word)
{
    if (!channel->remote) {
        /* W1: meets the write of the GPU or the worker; what they wrote before it is visible. */
        return __atomic_load_n(&channel->words[word], __ATOMIC_ACQUIRE);
    }
    struct weir_op_word_peek_out out = {0};
    if (weir_call_word_peek(channel, &(struct weir_op_word_peek_in){.word = word}, &out)) {
        return 0;
    }
    return out.value;
}

bool weir_channel_word_reached(struct weir_channel *channel, uint32_t word, uint32_t value)
{
    return value_reached(weir_channel_word(channel, word), value);
}

/* Returns the error that makes waiting pointless, or CUDA_SUCCESS. */
static CUresult hopeless(struct weir_channel *channel)
{
    uint32_t error = __atomic_load_n(&channel->dead, __ATOMIC_ACQUIRE);
    if (!error) {
        error = __atomic_load_n(&channel->header->sticky_error, __ATOMIC_ACQUIRE);
    }
    return (CUresult)error;
}

static void nap_on_word(struct weir_channel *channel, uint32_t word, uint32_t seen, uint64_t ns)
{
    static uint32_t nobody;
    if (channel->polled) {
        weir_futex_wait(&nobody, 0, ns);
    } else {
        weir_futex_wait(&channel->words[word], seen, ns);
    }
}

static uint64_t slice_after(const struct weir_wait_policy *policy, uint64_t waited_ns)
{
    uint64_t slice_ns = waited_ns / 16, long_ns = waited_ns / 512;

    slice_ns = WEIR_MIN(slice_ns, policy->slice_max_ns);
    slice_ns = WEIR_MAX(slice_ns, policy->slice_min_ns);
    long_ns = WEIR_MIN(long_ns, LONG_SLICE_NS);
    return WEIR_MAX(slice_ns, long_ns);
}

static CUresult sleep_on_word(struct weir_channel *channel, uint32_t word, uint32_t value,
                              uint64_t start_ns)
{
    const struct weir_wait_policy *policy = &channel->wait;
    uint64_t now_ns = weir_clock_now_ns();
    uint64_t checked_ns = now_ns;
    for (;;) {
        uint32_t seen = weir_channel_word(channel, word);
        if (value_reached(seen, value)) {
            return CUDA_SUCCESS;
        }
        CUresult result = hopeless(channel);
        if (result) {
            return result;
        }
        nap_on_word(channel, word, seen, slice_after(policy, now_ns - start_ns));
        now_ns = weir_clock_now_ns();
        if (now_ns - checked_ns > PEER_CHECK_NS) {
            checked_ns = now_ns;
            if (channel->transport->ops->peer_gone(channel->transport)) {
                weir_channel_kill(channel, CUDA_ERROR_DEVICE_UNAVAILABLE);
            }
        }
    }
}

CUresult weir_channel_word_wait(struct weir_channel *channel, uint32_t word, uint32_t value,
                                bool sleep_soon)
{
    if (channel->remote) {
        struct weir_op_word_wait_out out;
        return weir_call_word_wait(
            channel, &(struct weir_op_word_wait_in){.word = word, .value = value}, &out);
    }
    if (weir_channel_word_reached(channel, word, value)) {
        return CUDA_SUCCESS;
    }
    weir_calls_mark_waiting();
    const struct weir_wait_policy *policy = &channel->wait;
    uint64_t spin_ns = sleep_soon ? SOON_SPIN_NS : weir_channel_spin_ns(channel, policy->spin_ns);
    uint64_t yield_ns = spin_ns < policy->spin_ns ? 0 : policy->yield_ns;
    uint64_t start_ns = weir_clock_now_ns();
    uint64_t looked_ns = start_ns;
    for (;;) {
        for (int i = 0; i < PAUSES_PER_LOOK; i++) {
            if (weir_channel_word_reached(channel, word, value)) {
                return CUDA_SUCCESS;
            }
            weir_cpu_pause();
        }
        uint64_t now_ns = weir_clock_now_ns();
        uint64_t waited_ns = now_ns - start_ns;
        /* Another thread needs this core, so sleep. */
        if (now_ns - looked_ns >= WEIR_PREEMPTED_NS) {
            __atomic_store_n(&channel->preempted, true, __ATOMIC_RELAXED);
            return sleep_on_word(channel, word, value, start_ns);
        }
        looked_ns = now_ns;
        if (waited_ns >= spin_ns) {
            if (waited_ns >= yield_ns) {
                return sleep_on_word(channel, word, value, start_ns);
            }
            sched_yield();
        }
        CUresult result = hopeless(channel);
        if (result) {
            return result;
        }
    }
}
