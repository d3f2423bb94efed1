/* Making twins of a kernel's PTX with Weir's passes, loading them as its host does,
 * starting them. */
#include "tests/bench/forms/forms.h"

#include "host_backend/worker/twins/fit.h"
#include "ptx/ptx.h"
#include "ptx/twin/twin.h"
#include "tests/bench/forms/wait.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONTROL_STRIDE 1280u /* a control block, on lines of its own */

const char *const weir_forms_build_names[] = {"original", "ticket", "persistent",
                                              "capped",   "carved", "roomy"};

static struct {
    CUdeviceptr at;
    uint32_t count;
} controls;

static uint32_t sm_shared_bytes;

void weir_forms_shared_init(uint32_t max_bytes)
{
    sm_shared_bytes = max_bytes;
}

/* ------------------------------------------------------------ loading */

static bool read_facts(struct weir_forms_set *set, enum weir_forms_build build)
{
    static const struct {
        CUfunction_attribute attribute;
        size_t offset;
    } rows[] = {
        {CU_FUNC_ATTRIBUTE_NUM_REGS, offsetof(struct weir_forms_facts, registers)},
        {CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, offsetof(struct weir_forms_facts, shared_bytes)},
        {CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, offsetof(struct weir_forms_facts, local_bytes)},
    };
    struct weir_forms_facts *facts = &set->facts[build];
    const uint32_t *block = set->kernel->block;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int value = 0;

        WEIR_FORMS_TRY(cu.cuFuncGetAttribute(&value, rows[i].attribute, set->functions[build]));
        *(int32_t *)((char *)facts + rows[i].offset) = value;
    }
    WEIR_FORMS_TRY(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(
        &facts->per_sm, set->functions[build], (int)(block[0] * block[1] * block[2]),
        set->dynamic_shared[build]));
    facts->there = facts->per_sm > 0;
    return true;
}

/* What the twins' module shares with the original's: addresses of its variables, and copies. */
static bool bind_variables(struct weir_forms_set *set, CUmodule module,
                           const struct weir_ptx_twins *twins)
{
    CUdeviceptr table = 0, from, to;
    size_t bytes, copy_bytes;

    if (twins->n_binds) {
        WEIR_FORMS_TRY(cu.cuModuleGetGlobal_v2(&table, &bytes, module, WEIR_PTX_BINDS_NAME));
    }
    for (uint32_t i = 0; i < twins->n_binds; i++) {
        WEIR_FORMS_TRY(cu.cuModuleGetGlobal_v2(&from, &bytes, set->original, twins->binds[i]));
        WEIR_FORMS_TRY(cu.cuMemcpyHtoD_v2(table + i * sizeof(from), &from, sizeof(from)));
    }
    for (uint32_t i = 0; i < twins->n_consts; i++) {
        WEIR_FORMS_TRY(cu.cuModuleGetGlobal_v2(&from, &bytes, set->original, twins->consts[i]));
        WEIR_FORMS_TRY(cu.cuModuleGetGlobal_v2(&to, &copy_bytes, module, twins->consts[i]));
        if (copy_bytes != bytes) {
            return weir_forms_fail("%s is of another size in the twins", twins->consts[i]);
        }
        WEIR_FORMS_TRY(cu.cuMemcpyDtoDAsync_v2(to, from, bytes, NULL));
        if (!weir_forms_wait_stream(NULL)) {
            return false;
        }
    }
    return true;
}

static enum weir_forms_build build_of(enum weir_ptx_form form, enum weir_forms_build loop)
{
    return form == WEIR_PTX_FORM_TICKET ? WEIR_FORMS_TICKET : loop;
}

static bool load_twins(struct weir_forms_set *set, const struct weir_ptx_module *module,
                       const struct weir_ptx_twins *twins, enum weir_forms_build loop)
{
    CUmodule *loaded = loop == WEIR_FORMS_CAPPED  ? &set->capped
                       : loop == WEIR_FORMS_ROOMY ? &set->roomy
                                                  : &set->twins;
    char *text = NULL;

    for (uint32_t i = 0; i < twins->n_infos; i++) {
        snprintf(set->facts[build_of(twins->infos[i].form, loop)].reason,
                 sizeof(set->facts[0].reason), "%s", twins->infos[i].reason);
    }
    if (twins->n_made == 0 || weir_ptx_print_buffer(module, &text, NULL) != WEIR_OK) {
        return false;
    }
    uint64_t begin = weir_forms_now_ns();
    bool ok =
        weir_forms_ok(cu.cuModuleLoadDataEx(loaded, text, 0, NULL, NULL), "cuModuleLoadDataEx") &&
        bind_variables(set, *loaded, twins);

    set->load_ms += (double)(weir_forms_now_ns() - begin) * 1e-6;
    free(text);
    for (uint32_t i = 0; ok && i < twins->n_infos; i++) {
        const struct weir_ptx_twin_info *info = &twins->infos[i];
        enum weir_forms_build build = build_of(info->form, loop);

        if (info->status != WEIR_OK) {
            continue;
        }
        set->dynamic_shared[build] = info->dynamic_shared_bytes;
        ok = weir_forms_ok(cu.cuModuleGetFunction(&set->functions[build], *loaded, info->name),
                           "cuModuleGetFunction") &&
             read_facts(set, build);
    }
    return ok;
}

/* Twins of some forms, in a module of their own; max_regs 0 for as many as they like. */
static bool make_twins(struct weir_forms_set *set, uint32_t forms, enum weir_forms_build loop,
                       uint32_t max_regs)
{
    const struct weir_forms_kernel *kernel = set->kernel;
    struct weir_ptx_twin_want want = {.kernel = kernel->name, .forms = forms, .max_regs = max_regs};
    struct weir_ptx_module *module = NULL;
    struct weir_ptx_twins twins;
    struct weir_diag diag = {0};
    uint64_t begin = weir_forms_now_ns();

    enum weir_status status = weir_ptx_parse(kernel->ptx, (size_t)(kernel->ptx_end - kernel->ptx),
                                             WEIR_PTX_DROP_DEBUG, &diag, &module);
    if (status == WEIR_OK) {
        status = weir_ptx_twins(module, &want, 1, &twins);
    }
    set->make_ms += (double)(weir_forms_now_ns() - begin) * 1e-6;
    bool ok = status == WEIR_OK ? load_twins(set, module, &twins, loop)
                                : weir_forms_fail("%s: %s", kernel->name, weir_status_text(status));

    weir_ptx_destroy(module);
    return ok;
}

/* The original's, where a build's own would be larger. */
static int carveout_of(const struct weir_forms_set *set, enum weir_forms_build build)
{
    const struct weir_forms_facts *original = &set->facts[WEIR_FORMS_ORIGINAL];
    const struct weir_forms_facts *facts = &set->facts[build];

    return weir_forms_carveout((uint32_t)original->shared_bytes, (uint32_t)original->per_sm,
                               (uint32_t)facts->shared_bytes + set->dynamic_shared[build],
                               (uint32_t)facts->per_sm, sm_shared_bytes);
}

/* With the original's carve-out, as the worker has it. */
static void make_limited(struct weir_forms_set *set, enum weir_forms_build build,
                         uint32_t registers)
{
    struct weir_forms_facts *facts = &set->facts[build];

    if (make_twins(set, WEIR_PTX_FORM_BIT(WEIR_PTX_FORM_PERSISTENT), build, registers) &&
        (!facts->there ||
         weir_forms_ok(cu.cuFuncSetAttribute(set->functions[build],
                                             CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                                             carveout_of(set, build)),
                       "cuFuncSetAttribute"))) {
        return;
    }
    facts->there = false;
    snprintf(facts->reason, sizeof(facts->reason), "%.150s", weir_forms_reason());
}

/* The persistent form once more, with its registers limited, and with more than it likes. */
static void make_other_registers(struct weir_forms_set *set)
{
    const struct weir_forms_facts *original = &set->facts[WEIR_FORMS_ORIGINAL];
    const struct weir_forms_facts *persistent = &set->facts[WEIR_FORMS_PERSISTENT];
    const uint32_t *block = set->kernel->block;

    if (persistent->there) {
        make_limited(
            set, WEIR_FORMS_CAPPED,
            weir_forms_register_limit(block[0] * block[1] * block[2], (uint32_t)original->registers,
                                      (uint32_t)original->per_sm, (uint32_t)persistent->per_sm));
        make_limited(set, WEIR_FORMS_ROOMY,
                     weir_forms_register_room((uint32_t)original->registers));
    }
}

/* The persistent form with the original's carve-out, where its own is larger. */
static void make_carved(struct weir_forms_set *set)
{
    const struct weir_forms_facts *persistent = &set->facts[WEIR_FORMS_PERSISTENT];
    int carveout = carveout_of(set, WEIR_FORMS_PERSISTENT);

    if (!persistent->there || carveout == WEIR_FORMS_NO_CARVEOUT) {
        return;
    }
    set->facts[WEIR_FORMS_CARVED] = *persistent;
    set->functions[WEIR_FORMS_CARVED] = set->functions[WEIR_FORMS_PERSISTENT];
    set->dynamic_shared[WEIR_FORMS_CARVED] = set->dynamic_shared[WEIR_FORMS_PERSISTENT];
    set->carveout[WEIR_FORMS_CARVED] = carveout;
}

bool weir_forms_set_init(struct weir_forms_set *set, const struct weir_forms_kernel *kernel)
{
    memset(set, 0, sizeof(*set));
    set->kernel = kernel;
    for (uint32_t build = 0; build < WEIR_FORMS_BUILD_COUNT; build++) {
        set->carveout[build] = WEIR_FORMS_NO_CARVEOUT;
    }
    WEIR_FORMS_TRY(cu.cuModuleLoadDataEx(&set->original, kernel->ptx, 0, NULL, NULL));
    WEIR_FORMS_TRY(
        cu.cuModuleGetFunction(&set->functions[WEIR_FORMS_ORIGINAL], set->original, kernel->name));
    if (!read_facts(set, WEIR_FORMS_ORIGINAL)) {
        return false;
    }
    if (make_twins(set, WEIR_PTX_FORM_TWINS, WEIR_FORMS_PERSISTENT, 0)) {
        make_other_registers(set);
        make_carved(set);
    } else {
        const char *why = weir_forms_reason();

        for (uint32_t build = WEIR_FORMS_TICKET; build < WEIR_FORMS_BUILD_COUNT; build++) {
            set->facts[build].there = false;
            if (set->facts[build].reason[0] == '\0') {
                snprintf(set->facts[build].reason, sizeof(set->facts[0].reason), "%.150s", why);
            }
        }
    }
    return true;
}

void weir_forms_set_finish(struct weir_forms_set *set)
{
    CUmodule modules[] = {set->original, set->twins, set->capped, set->roomy};

    for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++) {
        if (modules[i]) {
            cu.cuModuleUnload(modules[i]);
        }
    }
    memset(set, 0, sizeof(*set));
}

/* ------------------------------------------------------------ starting */

bool weir_forms_controls_init(uint32_t count)
{
    controls.count = count;
    WEIR_FORMS_TRY(cu.cuMemAlloc_v2(&controls.at, (size_t)count * CONTROL_STRIDE));
    return true;
}

CUdeviceptr weir_forms_control(uint32_t index)
{
    return controls.at + (CUdeviceptr)(index % controls.count) * CONTROL_STRIDE;
}

bool weir_forms_controls_clear(uint32_t count, CUstream stream)
{
    WEIR_FORMS_TRY(cu.cuMemsetD8Async(controls.at, 0, (size_t)count * CONTROL_STRIDE, stream));
    return true;
}

bool weir_forms_control_write(uint32_t index, size_t offset, uint32_t value, CUstream stream)
{
    WEIR_FORMS_TRY(
        cu.cuStreamWriteValue32_v2(stream, weir_forms_control(index) + offset, value, 0));
    return true;
}

CUdeviceptr weir_forms_control_word(uint32_t index, size_t offset)
{
    return weir_forms_control(index) + offset;
}

bool weir_forms_control_read(uint32_t index, struct weir_ptx_control *ret_control)
{
    WEIR_FORMS_TRY(
        cu.cuMemcpyDtoH_v2(ret_control, weir_forms_control(index), sizeof(*ret_control)));
    return true;
}

bool weir_forms_start(const struct weir_forms_set *set, enum weir_forms_build build,
                      struct weir_forms_work *work, struct weir_ptx_form_args *args,
                      uint32_t blocks, CUstream stream)
{
    const uint32_t *block = set->kernel->block;
    const uint32_t grid[3] = {blocks, 1, 1};
    const uint32_t *g = build == WEIR_FORMS_ORIGINAL ? work->grid : grid;

    if (set->started) {
        *set->started = build;
    }
    work->params[work->n_params] = args;
    /* The two are one function. */
    if (set->facts[WEIR_FORMS_CARVED].there &&
        (build == WEIR_FORMS_PERSISTENT || build == WEIR_FORMS_CARVED)) {
        WEIR_FORMS_TRY(cu.cuFuncSetAttribute(set->functions[build],
                                             CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                                             set->carveout[build]));
    }
    WEIR_FORMS_TRY(cu.cuLaunchKernel(set->functions[build], g[0], g[1], g[2], block[0], block[1],
                                     block[2], set->dynamic_shared[build], stream, work->params,
                                     NULL));
    return true;
}
