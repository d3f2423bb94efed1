/*
 * Chooses which of a kernel's persistent twins is launched, and how. That depends on the code that
 * the driver's compiler made, and can only be measured.
 *
 * - The *carve-out*: a twin has a few bytes of shared memory more than its kernel. If these would
 *   take more of an SM's memory from the cache, the twin gets its kernel's carve-out.
 * - *Capped*: a twin with more registers than its kernel may fit on an SM fewer times. Then it is
 *   built once more, with so few registers that it fits as often. The twin of a kernel that is
 *   launched often is built once more, too, with as many registers as its kernel has: the compiler
 *   then orders instructions differently, which may gain 5 %.
 * - *Roomy*: for the same gain, a twin with eight registers more than its kernel, of which a
 *   quarter fewer may fit; also only for kernels that are launched often.
 * - The *size of tasks* follows from the time of a block, which is timed, too (fit.h).
 *
 * Each of these twins is tried, and the fastest is used. Until that is known, the twin that fits
 * most often on an SM is used, so that a kernel that is launched a few times does not pay for the
 * trial. A launch is timed by two events in the guest's stream, four of them for each twin and one
 * in AGAIN later; never two at a time for one kernel. A launch that was stopped or moved is not
 * counted. While a policy keeps the kernel to some SMs or to a number of blocks, no other twin is
 * tried: launches are not timed then, and fewer blocks of another twin may fit on an SM.
 *
 * Whether a twin is launched at all depends on its cost: the original and the twins are timed in
 * the same way, with the same number of blocks, and the shortest times are compared. A twin that
 * costs too much is not used until both are timed again.
 */
#include "host_backend/worker/code/images.h"
#include "host_backend/worker/twins/private.h"

#include "base/clock.h"
#include "host_backend/worker/twins/fit.h"
#include <string.h>

#define TRIAL 4u /* launches between two that only try a twin */
/* A twin that is often stopped may not get enough timings in this many tries: then it is not
 * chosen. */
#define TRIES  10u
#define AGAIN  32u /* launches between two timings after the choice */
#define FORGET 16u
/* How long measurements of a twin and its original hold. An H200's own speed changes by 15 % within
 * seconds, and so does its neighbours' load. A comparison needs four launches of the other form,
 * which is one in a hundred with kernels of 50 ms. */
#define JUDGED_NS (30 * WEIR_NS_PER_S)
/* What a twin may cost if its blocks shared SMs with another tenant's in the last PLACED_NS, since
 * the policy found that this raises the total throughput. gs, which costs 5 %, and rg together get
 * 1.25 times as much done as one alone; rg and spmv, which costs 7 to 15 %, 1.4 times (H200). */
#define DIVIDED_COST_PCT 20u
#define PLACED_NS        (2 * WEIR_NS_PER_S) /* also while a policy tries it */
/* On softgpu twins of most kernels take 1.3 times as long, and 1.8 to 2.5 times if blocks have only
 * a few instructions, on a busy machine (2026-11-29). */
#define SOFT_COST_PCT 60u

/* ---------------------------------------------------------------- functions */

CUfunction weir_forms_twin_function(const struct weir_forms_kernel *k, enum weir_ptx_form form,
                                    enum weir_forms_variant variant)
{
    return variant != WEIR_FORMS_PLAIN ? k->others[variant].twin : k->twins[form];
}

const struct weir_forms_twin *weir_forms_twin_info(const struct weir_forms_kernel *k,
                                                   enum weir_ptx_form form,
                                                   enum weir_forms_variant variant)
{
    return variant != WEIR_FORMS_PLAIN ? &k->others[variant].set->kernels[0].twins[form]
                                       : &k->info->twins[form];
}

uint32_t weir_forms_twin_shared(const struct weir_forms_twin *twin, uint32_t bytes)
{
    return twin->dynamic_shared_bytes != 0 ? ((bytes + 15u) & ~15u) + twin->dynamic_shared_bytes
                                           : bytes;
}

/* ---------------------------------------------------------------- other builds */

/* A3: acquires what the builder wrote; meets R3 in do_other(). */
static bool other_is_ready(const struct weir_forms_other *o)
{
    return atomic_load_explicit(&o->state, memory_order_acquire) == WEIR_FORMS_OTHER_READY;
}

void weir_forms_variant_ask(struct weir_forms_kernel *k, enum weir_forms_variant variant,
                            uint32_t max_regs)
{
    struct weir_forms_module *m = k->module;
    struct weir_forms_other *o = &k->others[variant];

    o->max_regs = max_regs;
    o->image = weir_image_get(m->store, &m->image_hash, m->image_bytes);
    atomic_store(&o->state, WEIR_FORMS_OTHER_PENDING);
    if (!o->image || !weir_forms_enqueue(m, k, variant)) {
        weir_image_put(m->store, o->image);
        o->image = NULL;
        atomic_store(&o->state, WEIR_FORMS_OTHER_NONE);
    }
}

/* Bind a variant to the original's variables, as other twins are bound. It must have no
 * constants. */
static void take_other(struct weir_session *s, struct weir_forms_kernel *k,
                       struct weir_forms_other *o)
{
    if (o->taken || !other_is_ready(o)) {
        return;
    }
    o->taken = true;
    if (!weir_forms_bind_globals(s, k->module, o->module, o->set)) {
        atomic_store(&o->state, WEIR_FORMS_OTHER_NONE);
        return;
    }
    k->attributes_seen = k->module->attributes_set - 1; /* the original's attributes apply, too */
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

/* Set the carve-out, unless the guest has asked for another. */
static void keep_cache(const struct weir_driver *d, const struct weir_forms_kernel *k,
                       CUfunction native, CUfunction twin, uint32_t twin_bytes,
                       uint32_t twin_blocks)
{
    uint32_t kernel_bytes = attribute(d, native, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
    int asked = WEIR_FORMS_NO_CARVEOUT;

    if (k->fit.native_blocks == 0 || twin_blocks == 0 ||
        d->cuFuncGetAttribute(&asked, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, native) !=
            CUDA_SUCCESS ||
        asked != WEIR_FORMS_NO_CARVEOUT) {
        return;
    }
    (void)d->cuFuncSetAttribute(twin, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                                weir_forms_carveout(kernel_bytes + k->fit.shared_bytes,
                                                    k->fit.native_blocks, twin_bytes, twin_blocks,
                                                    k->module->device->sm_shared_bytes));
}

/* Is the variant worth a try? Registers only matter on a GPU. A test with an even seed tries all
 * variants. */
static bool wants_other(const struct weir_forms_kernel *k, enum weir_forms_variant variant)
{
    const struct weir_forms *forms = k->module->device->forms;
    bool test = k->module->mode == WEIR_FORMS_EXPLORE && forms->config.seed % 2 == 0;
    bool fits_less = k->fit.per_sm[WEIR_FORMS_PLAIN] < k->fit.native_blocks;
    bool often = k->timing.n[WEIR_FORMS_PLAIN] >= WEIR_FORMS_TIMINGS;

    return atomic_load_explicit(&k->others[variant].state, memory_order_relaxed) ==
               WEIR_FORMS_OTHER_UNKNOWN &&
           k->fit.form == WEIR_PTX_FORM_PERSISTENT && k->fit.native_blocks != 0 &&
           (test || (forms->real && (often || (fits_less && variant == WEIR_FORMS_CAPPED))));
}

static void look_for_others(const struct weir_driver *d, struct weir_forms_kernel *k,
                            CUfunction native)
{
    if (wants_other(k, WEIR_FORMS_CAPPED)) {
        weir_forms_variant_ask(k, WEIR_FORMS_CAPPED,
                               weir_forms_register_limit(
                                   k->fit.threads, attribute(d, native, CU_FUNC_ATTRIBUTE_NUM_REGS),
                                   k->fit.native_blocks, k->fit.per_sm[WEIR_FORMS_PLAIN]));
    }
    if (wants_other(k, WEIR_FORMS_ROOMY)) {
        weir_forms_variant_ask(
            k, WEIR_FORMS_ROOMY,
            weir_forms_register_room(attribute(d, native, CU_FUNC_ATTRIBUTE_NUM_REGS)));
    }
}

void weir_forms_fit(struct weir_session *s, struct weir_forms_kernel *k, CUfunction native,
                    enum weir_ptx_form form, uint32_t threads, uint32_t shared_bytes)
{
    const struct weir_driver *d = s->driver;

    for (uint32_t v = WEIR_FORMS_PLAIN + 1;
         form == WEIR_PTX_FORM_PERSISTENT && v < WEIR_FORMS_VARIANTS; v++) {
        take_other(s, k, &k->others[v]);
    }
    if (k->fit.threads == threads && k->fit.shared_bytes == shared_bytes && k->fit.form == form) {
        look_for_others(d, k, native);
        return;
    }
    for (uint32_t v = 0; v < WEIR_FORMS_VARIANTS; v++) {
        weir_forms_carve_out_set(
            d, weir_forms_twin_function(k, k->fit.form, (enum weir_forms_variant)v),
            WEIR_FORMS_NO_CARVEOUT, &k->fit.carve_out[v]);
    }
    uint32_t native_blocks = blocks_on_sm(d, native, threads, shared_bytes);
    k->cost = (struct weir_forms_cost){0};
    k->fit = (struct weir_forms_fit){.threads = threads,
                                     .shared_bytes = shared_bytes,
                                     .form = form,
                                     .native_blocks = native_blocks};
    for (uint32_t v = 0; v < WEIR_FORMS_VARIANTS; v++) {
        enum weir_forms_variant variant = (enum weir_forms_variant)v;
        uint32_t dynamic_bytes, twin_bytes;

        if (v != WEIR_FORMS_PLAIN &&
            (form != WEIR_PTX_FORM_PERSISTENT || !other_is_ready(&k->others[v]))) {
            continue;
        }
        CUfunction twin = weir_forms_twin_function(k, form, variant);
        dynamic_bytes =
            weir_forms_twin_shared(weir_forms_twin_info(k, form, variant), shared_bytes);
        twin_bytes = attribute(d, twin, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES) + dynamic_bytes;
        k->fit.per_sm[v] = blocks_on_sm(d, twin, threads, dynamic_bytes);
        k->fit.block_bytes[v] = weir_forms_block_bytes(twin_bytes);
        if (v == WEIR_FORMS_ROOMY && !weir_forms_is_roomy_enough(k->fit.per_sm[v], native_blocks)) {
            k->fit.per_sm[v] = 0;
            continue;
        }
        keep_cache(d, k, native, twin, twin_bytes, k->fit.per_sm[v]);
    }
    look_for_others(d, k, native);
}

/* ---------------------------------------------------------------- timing */

static CUresult elapsed(const struct weir_driver *d, float *ret_ms, CUevent begin, CUevent end)
{
    return weir_driver_has(d, cuEventElapsedTime_v2) ? d->cuEventElapsedTime_v2(ret_ms, begin, end)
                                                     : d->cuEventElapsedTime(ret_ms, begin, end);
}

/* The shortest time that was seen. It is slowly forgotten, since neighbours make times longer. */
static uint64_t shortest(uint64_t before, uint64_t now)
{
    return before == 0 || now < before ? now : before + (now - before) / FORGET;
}

static void note_cost(struct weir_forms_kernel *k, uint64_t ns)
{
    struct weir_forms_cost *cost = &k->cost;
    uint32_t twin = k->timing.variant != WEIR_FORMS_ORIGINAL;

    if (k->timing.blocks == cost->blocks) {
        cost->ns[twin] = cost->n[twin]++ == 0 || ns < cost->ns[twin] ? ns : cost->ns[twin];
    }
}

static void note(struct weir_forms_kernel *k, double ns)
{
    struct weir_forms_timing *t = &k->timing;
    uint64_t now_ps = (uint64_t)(ns * 1e3 / (double)t->blocks) + 1;
    uint64_t waves = (t->blocks + t->workers - 1) / t->workers;
    uint64_t block_ns = (uint64_t)(ns / (double)waves) + 1;

    note_cost(k, (uint64_t)ns);
    if (t->variant == WEIR_FORMS_ORIGINAL) {
        return;
    }
    /* The first time, with tasks of any size, determines their size. */
    uint64_t *ps = &t->grid_ps[t->variant];
    *ps = t->n[t->variant] == 1 ? now_ps : shortest(*ps, now_ps);
    t->n[t->variant]++;
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

static bool is_due(const struct weir_forms_timing *t, uint32_t variant)
{
    return t->n[variant] < WEIR_FORMS_TIMINGS && t->tries[variant] < TRIES;
}

/* Is variant a better than b? The faster one is, if both times are known; else the one that fits
 * more often. */
static bool is_better(const struct weir_forms_kernel *k, uint32_t variant, uint32_t other)
{
    const struct weir_forms_timing *t = &k->timing;

    if (is_due(t, variant) || is_due(t, other)) {
        return k->fit.per_sm[variant] > k->fit.per_sm[other];
    }
    return t->n[variant] != 0 && (t->n[other] == 0 || t->grid_ps[variant] < t->grid_ps[other]);
}

/* Find a variant without enough timings; the one that was tried least. */
static bool is_to_try(const struct weir_forms_timing *t, uint32_t variant, uint32_t other)
{
    return is_due(t, variant) && (!is_due(t, other) || t->tries[variant] < t->tries[other]);
}

/* Is the kernel kept to a place, where launches are not timed? */
static bool is_placed(const struct weir_forms_kernel *k)
{
    return weir_clock_now_ns() < k->placed_until_ns;
}

enum weir_forms_variant weir_forms_variant_next(const struct weir_driver *d,
                                                struct weir_forms_kernel *k)
{
    uint32_t there[WEIR_FORMS_VARIANTS], n = 0, best = 0, try = 0;

    harvest(d, k);
    for (uint32_t v = 0; v < WEIR_FORMS_VARIANTS; v++) {
        if (k->fit.per_sm[v] != 0) {
            there[n++] = v;
        }
    }
    if (k->fit.form != WEIR_PTX_FORM_PERSISTENT || n == 0) {
        return WEIR_FORMS_PLAIN;
    }
    if (k->module->mode == WEIR_FORMS_EXPLORE) {
        return (enum weir_forms_variant)there[weir_forms_draw(k->module->device->forms) % n];
    }
    for (uint32_t i = 1; i < n; i++) {
        best = is_better(k, there[i], there[best]) ? i : best;
        try = is_to_try(&k->timing, there[i], there[try]) ? i : try;
    }
    if (is_due(&k->timing, there[try]) && !is_placed(k) && ++k->timing.launches % TRIAL == 0) {
        return (enum weir_forms_variant)there[try];
    }
    return (enum weir_forms_variant)there[best];
}

void weir_forms_placed(struct weir_forms_kernel *k, bool divided)
{
    k->placed_until_ns = weir_clock_now_ns() + PLACED_NS;
    k->divided_until_ns = divided ? k->placed_until_ns : k->divided_until_ns;
}

static bool costs_more(const struct weir_forms_cost *cost, uint32_t cost_pct)
{
    return (double)cost->ns[true] * 100 > (double)cost->ns[false] * (100.0 + cost_pct);
}

/* Was it timed often enough, or tried so often that no more timings are expected? */
static bool is_timed(const struct weir_forms_cost *cost, bool twin)
{
    return cost->n[twin] >= WEIR_FORMS_TIMINGS || cost->tries[twin] >= TRIES;
}

enum weir_forms_verdict weir_forms_judge(struct weir_forms_kernel *k, uint64_t blocks,
                                         uint32_t cost_pct)
{
    struct weir_forms_cost *cost = &k->cost;
    uint64_t now_ns = weir_clock_now_ns();
    bool placed = is_placed(k);

    if (cost_pct == UINT32_MAX) {
        return WEIR_FORMS_TAKES_TWIN;
    }
    if (!k->module->device->forms->real && cost_pct < SOFT_COST_PCT) {
        cost_pct = SOFT_COST_PCT;
    }
    if (now_ns < k->divided_until_ns && cost_pct < DIVIDED_COST_PCT) {
        cost_pct = DIVIDED_COST_PCT;
    }
    if (now_ns >= cost->until_ns && !placed) {
        *cost = (struct weir_forms_cost){.blocks = blocks, .until_ns = now_ns + JUDGED_NS};
    }
    if (!placed && blocks == cost->blocks && !is_timed(cost, false) &&
        ++cost->launches % TRIAL == 0) {
        return WEIR_FORMS_TIMES_ORIGINAL;
    }
    if (!is_timed(cost, false) || !is_timed(cost, true) || cost->n[false] == 0 ||
        cost->n[true] == 0) {
        return WEIR_FORMS_TAKES_TWIN;
    }
    return !costs_more(cost, cost_pct)          ? WEIR_FORMS_TAKES_TWIN
           : costs_more(cost, DIVIDED_COST_PCT) ? WEIR_FORMS_TAKES_ORIGINAL
                                                : WEIR_FORMS_TAKES_ORIGINAL_UNLESS_DIVIDED;
}

/* The time of a block of the variant, while as many run as fit; 0: not known. */
static uint64_t variant_block_ns(const struct weir_forms_kernel *k, enum weir_forms_variant variant)
{
    return k->timing.grid_ps[variant] * k->module->device->sms * k->fit.per_sm[variant] / 1000;
}

uint32_t weir_forms_task_next(const struct weir_forms_kernel *k, enum weir_forms_variant variant,
                              uint64_t blocks, uint64_t workers)
{
    return weir_forms_task_blocks(variant_block_ns(k, WEIR_FORMS_PLAIN),
                                  variant_block_ns(k, variant), blocks, workers);
}

bool weir_forms_tasks_are_long(const struct weir_forms_kernel *k, enum weir_forms_variant variant,
                               uint32_t task_blocks)
{
    return k->fit.form == WEIR_PTX_FORM_PERSISTENT &&
           weir_forms_looks_always(variant_block_ns(k, variant), task_blocks);
}

bool weir_forms_timing_begin(const struct weir_driver *d, struct weir_forms_kernel *k,
                             enum weir_forms_variant variant, uint64_t blocks, uint64_t workers,
                             CUstream stream)
{
    struct weir_forms_timing *t = &k->timing;
    bool twin = variant != WEIR_FORMS_ORIGINAL;
    bool compared = blocks == k->cost.blocks && !is_timed(&k->cost, twin);

    if ((!compared && (!twin || (!is_due(t, variant) && ++t->since < AGAIN))) || blocks < workers ||
        workers == 0 || atomic_load(&t->state) != WEIR_FORMS_TIMED_NOTHING) {
        return false;
    }
    if (!t->begin && d->cuEventCreate(&t->begin, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
        t->begin = NULL;
        return false;
    }
    if (!t->end && d->cuEventCreate(&t->end, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
        t->end = NULL;
        return false;
    }
    WEIR_FAIL_IF(d->cuEventRecord(t->begin, stream) != CUDA_SUCCESS, false);
    k->cost.tries[twin] += compared;
    if (twin) {
        t->since = 0;
        t->tries[variant]++;
    }
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
    /* R4: publishes that the launch has ended; meets A4 in harvest(). */
    atomic_store_explicit(&k->timing.state,
                          whole ? WEIR_FORMS_TIMED_WHOLE : WEIR_FORMS_TIMED_SPOILT,
                          memory_order_release);
}

void weir_forms_variant_finish(struct weir_forms_kernel *k)
{
    const struct weir_driver *d = k->module->device->forms->driver;

    if (k->timing.begin) {
        (void)d->cuEventDestroy_v2(k->timing.begin);
    }
    if (k->timing.end) {
        (void)d->cuEventDestroy_v2(k->timing.end);
    }
    for (uint32_t v = WEIR_FORMS_PLAIN + 1; v < WEIR_FORMS_VARIANTS; v++) {
        if (k->others[v].module) {
            (void)d->cuModuleUnload(k->others[v].module);
        }
        weir_forms_set_destroy(k->others[v].set);
        weir_image_put(k->module->store, k->others[v].image);
    }
}
