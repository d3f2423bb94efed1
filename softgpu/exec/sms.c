/* Sets of SMs, and which host thread acts as which SM. */
#include "softgpu/exec/internal.h"

#define WORDS (WEIR_EXEC_MAX_SMS / 64)

/* Of `threads` host threads, the one of index `t` acts as the SMs t, t + threads, t + 2 threads and
 * so on. */
uint32_t weir_exec_sm_at(const struct weir_exec_device *device, uint32_t place)
{
    const struct weir_exec_device_params *p = &device->params;
    uint32_t most = (p->sm_count + p->thread_count - 1) / p->thread_count;
    uint32_t with_most = p->sm_count - (most - 1) * p->thread_count;
    if (place < with_most * most) {
        return place / most + place % most * p->thread_count;
    }
    place -= with_most * most;
    return with_most + place / (most - 1) + place % (most - 1) * p->thread_count;
}

struct weir_exec_sms weir_x_sms_of_thread(const struct weir_exec_device *device, uint32_t index)
{
    struct weir_exec_sms sms = {{0}};
    const struct weir_exec_device_params *p = &device->params;
    for (uint32_t sm = index; sm < p->sm_count; sm += p->thread_count) {
        weir_exec_sms_add(&sms, sm);
    }
    return sms;
}

struct weir_exec_sms weir_x_sms_of_launch(const struct weir_exec_device *device,
                                          const struct weir_exec_launch *launch)
{
    struct weir_exec_sms sms = {{0}};
    for (uint32_t sm = 0; sm < device->params.sm_count; sm++) {
        weir_exec_sms_add(&sms, sm);
    }
    return !launch->sms ? sms : weir_x_sms_common(&sms, launch->sms);
}

struct weir_exec_sms weir_x_sms_common(const struct weir_exec_sms *a, const struct weir_exec_sms *b)
{
    struct weir_exec_sms both;
    for (uint32_t i = 0; i < WORDS; i++) {
        both.words[i] = a->words[i] & b->words[i];
    }
    return both;
}

uint32_t weir_exec_sms_count(const struct weir_exec_sms *sms)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < WORDS; i++) {
        n += (uint32_t)__builtin_popcountll(sms->words[i]);
    }
    return n;
}

uint32_t weir_x_sms_at(const struct weir_exec_sms *sms, uint32_t n)
{
    uint32_t i = 0;
    uint64_t word = sms->words[0];
    for (uint32_t here = 0; (here = (uint32_t)__builtin_popcountll(word)) <= n; n -= here) {
        word = sms->words[++i];
    }
    while (n-- > 0) {
        word &= word - 1;
    }
    return i * 64 + (uint32_t)__builtin_ctzll(word);
}
