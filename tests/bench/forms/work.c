/* Inputs, outputs and their comparison, for all kernels of the benchmark. */
#include "tests/bench/forms/work.h"

#include "tests/bench/forms/kernels/values.h"
#include "tests/bench/forms/wait.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FILL_BLOCKS  1056u
#define FILL_THREADS 256u
#define WINDOW       16u        /* elements read from an output at once */
#define CHECK_ALL    (1u << 16) /* outputs up to so many elements are checked whole */
#define SPOILT       0xa5u
#define SAMPLE_SEED  77u

WEIR_FORMS_PTX(helpers);

const char *const weir_forms_size_names[] = {"large", "small", "trivial", "quick"};

const struct weir_forms_kernel *const weir_forms_kernels[] = {
    &weir_forms_cfd,   &weir_forms_nn, &weir_forms_pf, &weir_forms_pl, &weir_forms_md,
    &weir_forms_spmv,  &weir_forms_mm, &weir_forms_va, &weir_forms_bs, &weir_forms_gs,
    &weir_forms_sgemm, &weir_forms_rg, &weir_forms_tr, &weir_forms_tg};
const uint32_t weir_forms_n_kernels = sizeof(weir_forms_kernels) / sizeof(weir_forms_kernels[0]);

static struct {
    CUmodule module;
    CUstream stream;
    CUdeviceptr differences;
} helpers;

bool weir_forms_helpers_load(CUstream stream)
{
    helpers.stream = stream;
    WEIR_FORMS_TRY(cu.cuModuleLoadDataEx(&helpers.module, weir_forms_helpers_ptx, 0, NULL, NULL));
    WEIR_FORMS_TRY(cu.cuMemAlloc_v2(&helpers.differences, sizeof(uint32_t)));
    return true;
}

CUfunction weir_forms_helper(const char *name)
{
    CUfunction function = NULL;

    if (!weir_forms_ok(cu.cuModuleGetFunction(&function, helpers.module, name), name)) {
        return NULL;
    }
    return function;
}

static bool run_helper(const char *name, void **params)
{
    CUfunction function = weir_forms_helper(name);

    if (!function) {
        return false;
    }
    WEIR_FORMS_TRY(cu.cuLaunchKernel(function, FILL_BLOCKS, 1, 1, FILL_THREADS, 1, 1, 0,
                                     helpers.stream, params, NULL));
    return true;
}

/* A buffer whose address is the next parameter. NULL after a failure, now or before. */
static struct weir_forms_buffer *add_buffer(struct weir_forms_work *work, uint64_t bytes)
{
    if (work->n_params == WEIR_FORMS_PARAMS || work->n_buffers == WEIR_FORMS_BUFFERS) {
        weir_forms_fail("%s has too many parameters", work->kernel->name);
        work->blocks = 0;
        return NULL;
    }
    struct weir_forms_buffer *buffer = &work->buffers[work->n_buffers++];

    buffer->bytes = bytes;
    if (!weir_forms_ok(cu.cuMemAlloc_v2(&buffer->at, bytes), "cuMemAlloc")) {
        buffer->at = 0;
        return NULL;
    }
    work->values[work->n_params].bits = buffer->at;
    work->params[work->n_params] = &work->values[work->n_params];
    work->n_params++;
    return buffer;
}

void weir_forms_add_floats(struct weir_forms_work *work, uint64_t count, uint32_t seed, float low,
                           float span)
{
    struct weir_forms_buffer *buffer = add_buffer(work, count * 4);

    if (buffer) {
        run_helper("fill_float", (void *[]){&buffer->at, &count, &seed, &low, &span});
    }
}

void weir_forms_add_halves(struct weir_forms_work *work, uint64_t count, uint32_t seed)
{
    struct weir_forms_buffer *buffer = add_buffer(work, count * 2);

    if (buffer) {
        run_helper("fill_half", (void *[]){&buffer->at, &count, &seed});
    }
}

void weir_forms_fill_floats(struct weir_forms_work *work, uint64_t first, uint64_t count,
                            uint32_t seed, float low, float span)
{
    CUdeviceptr at = work->buffers[work->n_buffers - 1].at;

    if (at) {
        at += first * 4;
        run_helper("fill_float", (void *[]){&at, &count, &seed, &low, &span});
    }
}

void weir_forms_add_below(struct weir_forms_work *work, uint64_t count, uint32_t seed,
                          uint32_t limit)
{
    struct weir_forms_buffer *buffer = add_buffer(work, count * 4);

    if (buffer) {
        run_helper("fill_below", (void *[]){&buffer->at, &count, &seed, &limit});
    }
}

void weir_forms_add_bytes(struct weir_forms_work *work, uint64_t count, uint32_t seed)
{
    struct weir_forms_buffer *buffer = add_buffer(work, count);

    if (buffer) {
        run_helper("fill_bytes", (void *[]){&buffer->at, &count, &seed});
    }
}

void weir_forms_add_near(struct weir_forms_work *work, const char *fill, uint64_t count,
                         uint32_t seed, uint32_t reach, uint32_t items)
{
    struct weir_forms_buffer *buffer = add_buffer(work, count * 4);

    if (buffer) {
        run_helper(fill, (void *[]){&buffer->at, &count, &seed, &reach, &items});
    }
}

void weir_forms_add_rows(struct weir_forms_work *work, uint64_t count, uint32_t seed, uint32_t base,
                         uint32_t spread)
{
    struct weir_forms_buffer *buffer = add_buffer(work, count * 4);

    if (buffer) {
        run_helper("fill_rows", (void *[]){&buffer->at, &count, &seed, &base, &spread});
    }
}

void weir_forms_add_places(struct weir_forms_work *work, uint64_t atoms, uint32_t seed)
{
    struct weir_forms_buffer *buffer = add_buffer(work, atoms * 16);

    if (buffer) {
        run_helper("fill_places", (void *[]){&buffer->at, &atoms, &seed});
    }
}

void weir_forms_add_data(struct weir_forms_work *work, const void *data, uint64_t bytes)
{
    struct weir_forms_buffer *buffer = add_buffer(work, bytes);

    if (buffer) {
        weir_forms_ok(cu.cuMemcpyHtoD_v2(buffer->at, data, bytes), "cuMemcpyHtoD");
    }
}

void weir_forms_add_output(struct weir_forms_work *work, uint64_t count)
{
    struct weir_forms_buffer *buffer = add_buffer(work, count * 4);

    if (buffer) {
        work->outputs[work->n_outputs++] = work->n_buffers - 1;
        if (!weir_forms_ok(cu.cuMemAlloc_v2(&buffer->kept, count * 4), "cuMemAlloc")) {
            buffer->kept = 0;
        }
    }
}

void weir_forms_add_int(struct weir_forms_work *work, int32_t value)
{
    work->values[work->n_params].i = value;
    work->params[work->n_params] = &work->values[work->n_params];
    work->n_params++;
}

void weir_forms_add_float(struct weir_forms_work *work, float value)
{
    work->values[work->n_params].f = value;
    work->params[work->n_params] = &work->values[work->n_params];
    work->n_params++;
}

bool weir_forms_set_grid(struct weir_forms_work *work, uint64_t x, uint64_t y)
{
    work->grid[0] = (uint32_t)x;
    work->grid[1] = (uint32_t)y;
    work->grid[2] = 1;
    work->blocks = (uint32_t)(x * y);
    for (uint32_t i = 0; i < work->n_buffers; i++) {
        if (!work->buffers[i].at) {
            return false;
        }
    }
    for (uint32_t i = 0; i < work->n_outputs; i++) {
        if (!work->buffers[work->outputs[i]].kept) {
            return false;
        }
    }
    return weir_forms_wait_stream(helpers.stream);
}

bool weir_forms_work_init(struct weir_forms_work *work, const struct weir_forms_kernel *kernel,
                          enum weir_forms_size size)
{
    memset(work, 0, sizeof(*work));
    work->kernel = kernel;
    work->size = size;
    work->dims = kernel->dims[size];
    return kernel->setup(work);
}

void weir_forms_work_finish(struct weir_forms_work *work)
{
    for (uint32_t i = 0; i < work->n_buffers; i++) {
        if (work->buffers[i].at) {
            cu.cuMemFree_v2(work->buffers[i].at);
        }
        if (work->buffers[i].kept) {
            cu.cuMemFree_v2(work->buffers[i].kept);
        }
    }
    memset(work, 0, sizeof(*work));
}

bool weir_forms_work_spoil(struct weir_forms_work *work)
{
    for (uint32_t i = 0; i < work->n_outputs; i++) {
        const struct weir_forms_buffer *out = &work->buffers[work->outputs[i]];

        WEIR_FORMS_TRY(cu.cuMemsetD8Async(out->at, SPOILT, out->bytes, helpers.stream));
    }
    return weir_forms_wait_stream(helpers.stream);
}

/* Elements first .. first + count - 1 of an output. */
static bool check_window(struct weir_forms_work *work, uint32_t output, uint64_t first,
                         const uint32_t *words, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        double bound = 0, value;
        double wanted = work->kernel->expect(work, output, first + i, &bound);

        if (work->kernel->is_integer) {
            value = (double)(int32_t)words[i];
        } else {
            float single;

            memcpy(&single, &words[i], sizeof(single));
            value = (double)single;
        }
        if (!(fabs(value - wanted) <= bound)) {
            return weir_forms_fail("output %u, element %llu is %.9g, not %.9g +- %.2g", output,
                                   (unsigned long long)(first + i), value, wanted, bound);
        }
    }
    return true;
}

static bool check_output(struct weir_forms_work *work, uint32_t output)
{
    const struct weir_forms_buffer *out = &work->buffers[work->outputs[output]];
    uint64_t count = out->bytes / 4;
    uint32_t words[WINDOW];

    if (count <= CHECK_ALL && count <= work->kernel->samples * 4ull) {
        uint32_t *all = malloc(out->bytes);
        bool ok = all &&
                  weir_forms_ok(cu.cuMemcpyDtoH_v2(all, out->at, out->bytes), "cuMemcpyDtoH") &&
                  check_window(work, output, 0, all, count);

        free(all);
        return ok;
    }
    for (uint32_t i = 0; i < work->kernel->samples / WINDOW; i++) {
        uint64_t step = (count - WINDOW) / (work->kernel->samples / WINDOW - 1);
        uint64_t first = i * step;

        if (i == work->kernel->samples / WINDOW - 1) {
            first = count - WINDOW;
        } else if (i > 0 && step > WINDOW) {
            first += weir_value_below(SAMPLE_SEED, i, (uint32_t)(step - WINDOW));
        }
        WEIR_FORMS_TRY(cu.cuMemcpyDtoH_v2(words, out->at + first * 4, sizeof(words)));
        if (!check_window(work, output, first, words, WINDOW)) {
            return false;
        }
    }
    return true;
}

bool weir_forms_work_check(struct weir_forms_work *work)
{
    for (uint32_t i = 0; i < work->n_outputs; i++) {
        if (!check_output(work, i)) {
            return false;
        }
    }
    return true;
}

bool weir_forms_work_keep(struct weir_forms_work *work)
{
    if (!weir_forms_work_check(work)) {
        return false;
    }
    for (uint32_t i = 0; i < work->n_outputs; i++) {
        const struct weir_forms_buffer *out = &work->buffers[work->outputs[i]];

        WEIR_FORMS_TRY(cu.cuMemcpyDtoDAsync_v2(out->kept, out->at, out->bytes, helpers.stream));
    }
    return weir_forms_wait_stream(helpers.stream);
}

bool weir_forms_work_compare(struct weir_forms_work *work, uint32_t *ret_differences)
{
    WEIR_FORMS_TRY(cu.cuMemsetD32Async(helpers.differences, 0, 1, helpers.stream));
    for (uint32_t i = 0; i < work->n_outputs; i++) {
        struct weir_forms_buffer *out = &work->buffers[work->outputs[i]];
        uint64_t count = out->bytes / 4;

        if (!run_helper("count_differences",
                        (void *[]){&out->at, &out->kept, &count, &helpers.differences})) {
            return false;
        }
    }
    if (!weir_forms_wait_stream(helpers.stream)) {
        return false;
    }
    WEIR_FORMS_TRY(cu.cuMemcpyDtoH_v2(ret_differences, helpers.differences, 4));
    return true;
}
