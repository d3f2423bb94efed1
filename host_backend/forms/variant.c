/*
 * Which of a kernel's persistent twins is launched, and how: what the driver's compiler made of it
 * decides, and that can only be measured.
 *
 * - The *carve-out*: a twin has a few bytes of shared memory more than its kernel. Where these
 * would take more of an SM's memory off the cache, the twin is told to leave it as the kernel has
 * it.
 * - *Capped*: a twin with more registers than its kernel may fit on an SM fewer times. Then it is
 *   built once more, with so few registers that it fits as often. Which of the two is faster is
 *   found out by timing launches of both in turn.
 * - The *size of tasks* follows from the time of a block, which is timed too.
 *
 * A launch is timed by two events in the guest's stream, TIMINGS of them for each twin and one in
 * AGAIN later; never two at a time for one kernel. What was stopped or moved meanwhile says
 * nothing.
 */
#include "host_backend/forms/private.h"

#include "base/log.h"
#include "host_backend/forms/fit.h"
#include <string.h>

#define TIMINGS 4u  /* of each twin before one is chosen */
#define AGAIN   32u /* launches from one timing to the next, afterwards */
#define FORGET  16u

/* ---------------------------------------------------------------- functions */

CUfunction weir_forms_twin_function(const struct weir_forms_kernel *k, enum weir_ptx_form form,
                                    enum weir_forms_variant variant)
{
    return variant == WEIR_FORMS_CAPPED ? k->capped.twin : k->twins[form];
}

const struct weir_forms_twin *weir_forms_twin_info(const struct weir_forms_kernel *k,
                                                   enum weir_ptx_form form,
                                                   enum weir_forms_variant variant)
{
    return variant == WEIR_FORMS_CAPPED ? &k->capped.set->kernels[0].twins[form]
                                        : &k->info->twins[form];
}

uint32_t weir_forms_twin_shared(const struct weir_forms_twin *twin, uint32_t bytes)
{
    return twin->dynamic_shared_bytes != 0 ? ((bytes + 15u) & ~15u) + twin->dynamic_shared_bytes
                                           : bytes;
}

/* ---------------------------------------------------------------- the other build */

/* A3: acquires what the builder wrote; meets R3 in do_capped(). */
static bool capped_is_ready(const struct weir_forms_kernel *k)
{
    return atomic_load_explicit(&k->capped.state, memory_order_acquire) == WEIR_FORMS_CAPPED_READY;
}

static void ask_for_capped(struct weir_forms_kernel *k, uint32_t max_regs)
{
    struct weir_forms_module *m = k->module;

    k->capped.max_regs = max_regs;
    k->capped.image = weir_image_get(m->store, &m->image_hash, m->image_bytes);
    atomic_store(&k->capped.state, WEIR_FORMS_CAPPED_PENDING);
    if (k->capped.image == NULL || !weir_forms_enqueue(m, k)) {
        weir_image_put(m->store, k->capped.image);
        k->capped.image = NULL;
        atomic_store(&k->capped.state, WEIR_FORMS_CAPPED_NONE);
    }
}

/* Its variables are the original's, as those of the other twins; constants it must not have. */
static void take_capped(struct weir_session *s, struct weir_forms_kernel *k)
{
    if (k->capped.taken || !capped_is_ready(k)) {
        return;
    }
    k->capped.taken = true;
    if (!weir_forms_bind_globals(s, k->module, k->capped.module, k->capped.set)) {
        atomic_store(&k->capped.state, WEIR_FORMS_CAPPED_NONE);
        return;
    }
    k->attributes_seen = k->module->attributes_set - 1; /* those of the original hold for it, too */
    k->fit.threads = 0;
}

/* ---------------------------------------------------------------- what fits */

static uint32_t attribute(const struct weir_driver *d, CUfunction f, CUfunction_attribute id)
{
    int value = 0;

    return d->cuFuncGetAttribute(&value, id, f) == CUDA_SUCCESS && value > 0 ? (uint32_t)value : 0;
}

static uint32_t blocks_on_sm(const struct weir_driver *d, CUfunction f, uint32_t threads,
                             uint32_t shared_bytes)
{
    int blocks = 0;

    return d->cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, (int)threads, shared_bytes) ==
                       CUDA_SUCCESS &&
                   blocks > 0
               ? (uint32_t)blocks
               : 0;
}

/* What the guest has asked for goes before. */
static void keep_cache(const struct weir_driver *d, struct weir_forms_kernel *k, CUfunction native,
                       uint32_t native_blocks, uint32_t shared_bytes,
                       enum weir_forms_variant variant)
{
    CUfunction twin = weir_forms_twin_function(k, k->fit.form, variant);
    const struct weir_forms_twin *info = weir_forms_twin_info(k, k->fit.form, variant);
    uint32_t kernel_bytes = attribute(d, native, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
    uint32_t twin_bytes = attribute(d, twin, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
    int asked = WEIR_FORMS_NO_CARVEOUT;

    if (native_blocks == 0 || k->fit.per_sm[variant] == 0 ||
        d->cuFuncGetAttribute(&asked, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, native) !=
            CUDA_SUCCESS ||
        asked != WEIR_FORMS_NO_CARVEOUT) {
        return;
    }
    (void)d->cuFuncSetAttribute(
        twin, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
        weir_forms_carveout(kernel_bytes + shared_bytes, native_blocks,
                            twin_bytes + weir_forms_twin_shared(info, shared_bytes),
                            k->fit.per_sm[variant], k->module->device->sm_shared_bytes));
}

/* Registers mean something where they are; a test with an even seed takes both twins in any case.
 */
static bool wants_capped(const struct weir_forms_kernel *k, CUfunction native,
                         uint32_t native_blocks)
{
    const struct weir_forms *forms = k->module->device->forms;
    const struct weir_driver *d = &forms->worker->driver;

    return k->fit.form == WEIR_PTX_FORM_PERSISTENT &&
           atomic_load(&k->capped.state) == WEIR_FORMS_CAPPED_UNKNOWN &&
           ((k->module->mode == WEIR_FORMS_EXPLORE && forms->config.seed % 2 == 0) ||
            (forms->worker->real && k->fit.per_sm[WEIR_FORMS_PLAIN] < native_blocks &&
             attribute(d, k->twins[k->fit.form], CU_FUNC_ATTRIBUTE_NUM_REGS) >
                 attribute(d, native, CU_FUNC_ATTRIBUTE_NUM_REGS)));
}

void weir_forms_fit(struct weir_session *s, struct weir_forms_kernel *k, CUfunction native,
                    enum weir_ptx_form form, uint32_t threads, uint32_t shared_bytes)
{
    const struct weir_driver *d = s->driver;
    uint32_t native_blocks;

    if (form == WEIR_PTX_FORM_PERSISTENT) {
        take_capped(s, k);
    }
    if (k->fit.threads == threads && k->fit.shared_bytes == shared_bytes && k->fit.form == form) {
        return;
    }
    k->fit = (struct weir_forms_fit){threads, shared_bytes, form, {0}};
    native_blocks = blocks_on_sm(d, native, threads, shared_bytes);
    for (uint32_t v = 0; v < WEIR_FORMS_VARIANTS; v++) {
        enum weir_forms_variant variant = (enum weir_forms_variant)v;

        if (v == WEIR_FORMS_CAPPED && (form != WEIR_PTX_FORM_PERSISTENT || !capped_is_ready(k))) {
            continue;
        }
        k->fit.per_sm[v] = blocks_on_sm(
            d, weir_forms_twin_function(k, form, variant), threads,
            weir_forms_twin_shared(weir_forms_twin_info(k, form, variant), shared_bytes));
        keep_cache(d, k, native, native_blocks, shared_bytes, variant);
    }
    if (native_blocks != 0 && wants_capped(k, native, native_blocks)) {
        ask_for_capped(k, weir_forms_registers_for(threads, native_blocks));
    }
}

/* ---------------------------------------------------------------- timing */

static CUresult elapsed(const struct weir_driver *d, float *ret_ms, CUevent begin, CUevent end)
{
    return weir_driver_has(d, cuEventElapsedTime_v2) ? d->cuEventElapsedTime_v2(ret_ms, begin, end)
                                                     : d->cuEventElapsedTime(ret_ms, begin, end);
}

/* The shortest time that was seen, slowly forgotten: neighbours make it longer. */
static uint64_t shortest(uint64_t before, uint64_t now)
{
    return before == 0 || now < before ? now : before + (now - before) / FORGET;
}

static void note(struct weir_forms_kernel *k, double ns)
{
    struct weir_forms_timing *t = &k->timing;
    uint32_t v = t->variant;
    uint64_t waves = (t->blocks + t->workers - 1) / t->workers;
    uint64_t block_ns = (uint64_t)(ns / (double)waves) + 1;

    t->grid_ps[v] = shortest(t->grid_ps[v], (uint64_t)(ns * 1e3 / (double)t->blocks) + 1);
    t->n[v]++;
    atomic_store_explicit(
        &k->block_ns, shortest(atomic_load_explicit(&k->block_ns, memory_order_relaxed), block_ns),
        memory_order_relaxed);
}

static void harvest(const struct weir_driver *d, struct weir_forms_kernel *k)
{
    struct weir_forms_timing *t = &k->timing;
    int state = atomic_load_explicit(&t->state, memory_order_acquire);
    float ms = 0;

    if (state == WEIR_FORMS_TIMED_WHOLE && d->cuEventQuery(t->end) == CUDA_SUCCESS) {
        if (elapsed(d, &ms, t->begin, t->end) == CUDA_SUCCESS && ms > 0) {
            note(k, (double)ms * 1e6);
        }
        atomic_store(&t->state, WEIR_FORMS_TIMED_NOTHING);
    } else if (state == WEIR_FORMS_TIMED_SPOILT) {
        atomic_store(&t->state, WEIR_FORMS_TIMED_NOTHING);
    }
}

enum weir_forms_variant weir_forms_variant_next(const struct weir_driver *d,
                                                struct weir_forms_kernel *k)
{
    struct weir_forms_timing *t = &k->timing;
    uint32_t plain = WEIR_FORMS_PLAIN, capped = WEIR_FORMS_CAPPED;

    harvest(d, k);
    if (k->fit.form != WEIR_PTX_FORM_PERSISTENT || k->fit.per_sm[capped] == 0) {
        return WEIR_FORMS_PLAIN;
    }
    if (k->module->mode == WEIR_FORMS_EXPLORE) {
        return weir_forms_draw(k->module->device->forms) % 2 == 0 ? WEIR_FORMS_PLAIN
                                                                  : WEIR_FORMS_CAPPED;
    }
    if (t->n[plain] < TIMINGS || t->n[capped] < TIMINGS) {
        return t->n[capped] < t->n[plain] ? WEIR_FORMS_CAPPED : WEIR_FORMS_PLAIN;
    }
    return t->grid_ps[capped] < t->grid_ps[plain] ? WEIR_FORMS_CAPPED : WEIR_FORMS_PLAIN;
}

bool weir_forms_timing_begin(const struct weir_driver *d, struct weir_forms_kernel *k,
                             enum weir_forms_variant variant, uint64_t blocks, uint64_t workers,
                             CUstream stream)
{
    struct weir_forms_timing *t = &k->timing;
    bool due = t->n[variant] < TIMINGS || ++t->since >= AGAIN;

    if (!due || blocks < workers || workers == 0 ||
        atomic_load(&t->state) != WEIR_FORMS_TIMED_NOTHING) {
        return false;
    }
    if (t->begin == NULL && d->cuEventCreate(&t->begin, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
        t->begin = NULL;
        return false;
    }
    if (t->end == NULL && d->cuEventCreate(&t->end, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
        t->end = NULL;
        return false;
    }
    if (d->cuEventRecord(t->begin, stream) != CUDA_SUCCESS) {
        return false;
    }
    t->since = 0;
    t->variant = variant;
    t->blocks = blocks;
    t->workers = workers;
    atomic_store(&t->state, WEIR_FORMS_TIMED_FLYING);
    return true;
}

void weir_forms_timing_end(const struct weir_driver *d, struct weir_forms_kernel *k, bool started,
                           CUstream stream)
{
    int flying = WEIR_FORMS_TIMED_FLYING;

    if (!started) {
        atomic_store(&k->timing.state, WEIR_FORMS_TIMED_NOTHING);
    } else if (d->cuEventRecord(k->timing.end, stream) != CUDA_SUCCESS) {
        (void)atomic_compare_exchange_strong(&k->timing.state, &flying, WEIR_FORMS_TIMED_SPOILT);
    }
}

void weir_forms_timing_over(struct weir_forms_kernel *k, bool whole)
{
    /* R4: the watcher's word that it has ended; meets A4 in harvest(). */
    atomic_store_explicit(&k->timing.state,
                          whole ? WEIR_FORMS_TIMED_WHOLE : WEIR_FORMS_TIMED_SPOILT,
                          memory_order_release);
}

void weir_forms_variant_finish(struct weir_forms_kernel *k)
{
    const struct weir_driver *d = &k->module->device->forms->worker->driver;

    if (k->timing.begin != NULL) {
        (void)d->cuEventDestroy_v2(k->timing.begin);
    }
    if (k->timing.end != NULL) {
        (void)d->cuEventDestroy_v2(k->timing.end);
    }
    if (k->capped.module != NULL) {
        (void)d->cuModuleUnload(k->capped.module);
    }
    weir_forms_set_destroy(k->capped.set);
    weir_image_put(k->module->store, k->capped.image);
}
