/* Waiting with deadlines, and the words that tell the host what the device has done. */
#include "tests/bench/forms/wait.h"

#include <string.h>
#include <time.h>

#define LINE_WORDS 16u      /* of a cache line of 64 bytes */
#define LOOK_NS    10000000 /* between looks at the stream */

static struct {
    volatile uint32_t *words;
    CUdeviceptr device;
    uint64_t limit_ns;
    bool stuck;
    uint64_t gap_ns;
} waits;

bool weir_forms_wait_init(double limit_s)
{
    void *host = NULL;
    size_t bytes = (size_t)WEIR_FORMS_WORD_COUNT * LINE_WORDS * sizeof(uint32_t);

    waits.limit_ns = (uint64_t)(limit_s * 1e9);
    WEIR_FORMS_TRY(cu.cuMemHostAlloc(&host, bytes, CU_MEMHOSTALLOC_DEVICEMAP));
    memset(host, 0, bytes);
    waits.words = host;
    WEIR_FORMS_TRY(cu.cuMemHostGetDevicePointer_v2(&waits.device, host, 0));
    return true;
}

uint64_t weir_forms_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint32_t weir_forms_word_get(enum weir_forms_word word)
{
    return waits.words[word * LINE_WORDS];
}

void weir_forms_word_set(enum weir_forms_word word, uint32_t value)
{
    waits.words[word * LINE_WORDS] = value;
    __sync_synchronize();
}

CUdeviceptr weir_forms_word_device(enum weir_forms_word word)
{
    return waits.device + (CUdeviceptr)word * LINE_WORDS * sizeof(uint32_t);
}

bool weir_forms_word_write(CUstream stream, enum weir_forms_word word, uint32_t value)
{
    WEIR_FORMS_TRY(cu.cuStreamWriteValue32_v2(stream, weir_forms_word_device(word), value, 0));
    return true;
}

static bool run_out(const char *what)
{
    waits.stuck = true;
    return weir_forms_fail("%s: nothing for %.0f s", what, (double)waits.limit_ns * 1e-9);
}

bool weir_forms_wait_word(enum weir_forms_word word, uint32_t mask, uint32_t value, CUstream stream)
{
    uint64_t begin = weir_forms_now_ns(), looked = begin, before = begin;

    waits.gap_ns = 0;
    while ((weir_forms_word_get(word) & mask) != value) {
        uint64_t now = weir_forms_now_ns();

        waits.gap_ns = now - before > waits.gap_ns ? now - before : waits.gap_ns;
        before = now;
        if (now - begin > waits.limit_ns) {
            return run_out("a word in host memory");
        }
        if (now - looked > LOOK_NS) {
            CUresult result = cu.cuStreamQuery(stream);

            looked = now;
            if (result != CUDA_ERROR_NOT_READY && !weir_forms_ok(result, "cuStreamQuery")) {
                return false;
            }
        }
    }
    before = weir_forms_now_ns() - before;
    waits.gap_ns = before > waits.gap_ns ? before : waits.gap_ns;
    return true;
}

uint64_t weir_forms_wait_gap_ns(void)
{
    return waits.gap_ns;
}

bool weir_forms_wait_stream(CUstream stream)
{
    uint64_t begin = weir_forms_now_ns();
    CUresult result = cu.cuStreamQuery(stream);

    while (result == CUDA_ERROR_NOT_READY) {
        if (weir_forms_now_ns() - begin > waits.limit_ns) {
            return run_out("a stream");
        }
        result = cu.cuStreamQuery(stream);
    }
    return weir_forms_ok(result, "cuStreamQuery");
}

bool weir_forms_wait_event(CUevent event)
{
    uint64_t begin = weir_forms_now_ns();
    CUresult result = cu.cuEventQuery(event);

    while (result == CUDA_ERROR_NOT_READY) {
        if (weir_forms_now_ns() - begin > waits.limit_ns) {
            return run_out("an event");
        }
        result = cu.cuEventQuery(event);
    }
    return weir_forms_ok(result, "cuEventQuery");
}

void weir_forms_pause_ns(uint64_t ns)
{
    uint64_t end = weir_forms_now_ns() + ns;

    while (weir_forms_now_ns() < end) {
    }
}

bool weir_forms_is_stuck(void)
{
    return waits.stuck;
}
