/* Mutations that know where steps begin: libFuzzer's own would shift all that follow. */
#include "tests/fuzz/session/guest.h"

#include <string.h>

#define STEP GUEST_STEP_BYTES

/* libFuzzer's; what replays a corpus has none, and calls nothing here. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size) __attribute__((weak));
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *one, size_t one_size, const uint8_t *other,
                                 size_t other_size, uint8_t *out, size_t max_size, unsigned seed);

static unsigned next_random(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static size_t steps_in(size_t size)
{
    return size < GUEST_OPTION_BYTES ? 0 : (size - GUEST_OPTION_BYTES) / STEP;
}

static uint8_t *step_at(uint8_t *data, size_t step)
{
    return data + GUEST_OPTION_BYTES + step * STEP;
}

/* Make room for a step, with a copy of another in it. */
static size_t insert(uint8_t *data, size_t n, unsigned *seed)
{
    size_t at = next_random(seed) % (n + 1);
    uint8_t copy[STEP] = {0};

    if (n != 0) {
        memcpy(copy, step_at(data, next_random(seed) % n), STEP);
    }
    memmove(step_at(data, at + 1), step_at(data, at), (n - at) * STEP);
    memcpy(step_at(data, at), copy, STEP);
    if (next_random(seed) % 2 == 0) { /* another operation */
        step_at(data, at)[0] = (uint8_t)next_random(seed);
        step_at(data, at)[1] = (uint8_t)(next_random(seed) & 3);
    }
    return n + 1;
}

static size_t erase(uint8_t *data, size_t n, unsigned *seed)
{
    size_t at = next_random(seed) % n;

    memmove(step_at(data, at), step_at(data, at + 1), (n - at - 1) * STEP);
    return n - 1;
}

static void swap(uint8_t *data, size_t n, unsigned *seed)
{
    uint8_t *a = step_at(data, next_random(seed) % n), *b = step_at(data, next_random(seed) % n);
    uint8_t copy[STEP];

    memcpy(copy, a, STEP);
    memmove(a, b, STEP);
    memcpy(b, copy, STEP);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    size_t n = steps_in(size);

    if (max_size < GUEST_OPTION_BYTES + STEP) {
        return LLVMFuzzerMutate(data, size, max_size);
    }
    if (size < GUEST_OPTION_BYTES) {
        memset(data + size, 0xc0, GUEST_OPTION_BYTES - size);
    }
    switch (next_random(&seed) % 8) {
    case 0:
    case 1:
        n = n < steps_in(max_size) ? insert(data, n, &seed) : n;
        break;
    case 2:
        n = n > 1 ? erase(data, n, &seed) : n;
        break;
    case 3:
        if (n > 1) {
            swap(data, n, &seed);
        }
        break;
    case 4:
        (void)LLVMFuzzerMutate(data, GUEST_OPTION_BYTES, GUEST_OPTION_BYTES);
        break;
    default:
        if (n != 0) {
            (void)LLVMFuzzerMutate(step_at(data, next_random(&seed) % n), STEP, STEP);
        }
        break;
    }
    return GUEST_OPTION_BYTES + n * STEP;
}

/* The first steps of one, then the last of the other. */
size_t LLVMFuzzerCustomCrossOver(const uint8_t *one, size_t one_size, const uint8_t *other,
                                 size_t other_size, uint8_t *out, size_t max_size, unsigned seed)
{
    size_t first = next_random(&seed) % (steps_in(one_size) + 1);
    size_t last = next_random(&seed) % (steps_in(other_size) + 1);
    size_t from = GUEST_OPTION_BYTES + (steps_in(other_size) - last) * STEP;

    if (one_size < GUEST_OPTION_BYTES || other_size < GUEST_OPTION_BYTES ||
        GUEST_OPTION_BYTES + (first + last) * STEP > max_size) {
        return 0;
    }
    memcpy(out, one, GUEST_OPTION_BYTES + first * STEP);
    memcpy(step_at(out, first), other + from, last * STEP);
    return GUEST_OPTION_BYTES + (first + last) * STEP;
}
