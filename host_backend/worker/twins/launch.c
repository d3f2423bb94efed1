/*
 * Decides whether a launch uses a twin, and which one, and launches it.
 *
 * If anything is unusual, the original is launched, so that the guest gets the driver's own errors
 * about its own kernel.
 */
#include "host_backend/worker/twins/private.h"

#include "base/log.h"
#include "host_backend/worker/device/order.h"
#include <string.h>

#define SHORT_NS    (100 * WEIR_NS_PER_US) /* a shorter kernel is not worth stopping */
#define GRID_YZ_MAX 65535u

/* ---------------------------------------------------------------- may it? */

/* Are there only attributes without effect, or of ordinary launches? */
static bool attributes_ok(const struct weir_op_launch_in *in)
{
    for (uint32_t i = 0; i < in->n_attributes; i++) {
        const CUlaunchAttribute *a = &in->attributes[i];

        switch ((int)a->id) {
        case CU_LAUNCH_ATTRIBUTE_IGNORE:
            break;
        case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
            if (a->value.cooperative != 0) {
                return false;
            }
            break;
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
            if (a->value.programmaticStreamSerializationAllowed != 0) {
                return false;
            }
            break;
        default:
            return false;
        }
    }
    return (in->flags & 1) == 0;
}

static bool geometry_ok(const struct weir_op_launch_in *in)
{
    uint64_t blocks = (uint64_t)in->grid[0] * in->grid[1];

    return in->grid[0] != 0 && in->grid[0] < WEIR_PTX_FORM_MAX_BLOCKS && in->grid[1] != 0 &&
           in->grid[2] != 0 && in->grid[1] <= GRID_YZ_MAX && in->grid[2] <= GRID_YZ_MAX &&
           blocks < WEIR_PTX_FORM_MAX_BLOCKS && blocks * in->grid[2] < WEIR_PTX_FORM_MAX_BLOCKS &&
           in->block[0] != 0 && in->block[1] != 0 && in->block[2] != 0;
}

/* ---------------------------------------------------------------- the kernel */

static struct weir_forms_kernel *find_kernel(struct weir_forms_module *m,
                                             struct weir_host_function *f)
{
    if (!f->form || f->form->module != m) {
        const struct weir_forms_kernel_info *info =
            f->name ? weir_forms_set_find(m->set, f->name) : NULL;

        f->form = info ? &m->kernels[info - m->set->kernels] : NULL;
    }
    return f->form;
}

static bool mirror_one(const struct weir_driver *d, const struct weir_forms_kernel *k,
                       enum weir_ptx_form form, enum weir_forms_variant variant,
                       CUfunction_attribute id, int value)
{
    bool shared = id == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    CUfunction twin = variant != WEIR_FORMS_PLAIN && !k->others[variant].taken
                          ? NULL
                          : weir_forms_twin_function(k, form, variant);

    if (!twin) {
        return true;
    }
    if (shared) {
        value =
            (int)weir_forms_twin_shared(weir_forms_twin_info(k, form, variant), (uint32_t)value);
    }
    return d->cuFuncSetAttribute(twin, id, value) == CUDA_SUCCESS || !shared;
}

/* Copy the attributes that the guest has set for the original to the twins. */
static bool mirror_attributes(const struct weir_driver *d, struct weir_forms_kernel *k,
                              CUfunction native)
{
    static const CUfunction_attribute ids[] = {CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                               CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT};

    if (k->attributes_mirrored && k->attributes_seen == k->module->attributes_set) {
        return true;
    }
    for (size_t i = 0; i < WEIR_COUNT(ids); i++) {
        int value = 0;

        if (d->cuFuncGetAttribute(&value, ids[i], native) != CUDA_SUCCESS) {
            continue; /* an older driver does not know the attribute */
        }
        for (uint32_t form = 0; form < WEIR_PTX_FORM_COUNT; form++) {
            WEIR_FAIL_IF(
                !mirror_one(d, k, (enum weir_ptx_form)form, WEIR_FORMS_PLAIN, ids[i], value),
                false);
        }
        for (uint32_t v = WEIR_FORMS_PLAIN + 1; v < WEIR_FORMS_VARIANTS; v++) {
            if (!mirror_one(d, k, WEIR_PTX_FORM_PERSISTENT, (enum weir_forms_variant)v, ids[i],
                            value)) {
                return false;
            }
        }
    }
    k->attributes_seen = k->module->attributes_set;
    k->attributes_mirrored = true;
    k->fit.threads = 0;
    memset(k->fit.carve_out, 0, sizeof k->fit.carve_out); /* the copies replaced their carve-outs */
    return true;
}

/* ---------------------------------------------------------------- whether to use a twin */

static enum weir_ptx_form choose_form(struct weir_forms *forms, const struct weir_forms_kernel *k,
                                      enum weir_forms_mode mode)
{
    bool persistent = k->twins[WEIR_PTX_FORM_PERSISTENT] != NULL;
    bool ticket = k->twins[WEIR_PTX_FORM_TICKET] != NULL;

    if (persistent && ticket && mode == WEIR_FORMS_EXPLORE) {
        persistent = weir_forms_draw(forms) % 2 == 0;
    }
    return persistent ? WEIR_PTX_FORM_PERSISTENT : WEIR_PTX_FORM_TICKET;
}

/* Is the kernel worth a twin? Not if it is short, or if its grid is one wave, which ends as soon as
 * it could stop. */
static bool worth_it(struct weir_forms_kernel *k, uint64_t blocks, uint64_t workers)
{
    uint64_t block_ns = atomic_load_explicit(&k->block_ns, memory_order_relaxed);

    return blocks > workers && (block_ns == 0 || block_ns * blocks / workers >= SHORT_NS);
}

/* ---------------------------------------------------------------- events of runs */

static void on_event(void *user, struct weir_run *run, enum weir_run_event event)
{
    struct weir_forms_kernel *k = user;
    struct weir_run_info info;

    if (event == WEIR_RUN_DOES_NOT_STOP) {
        atomic_store(&k->never_stop, true);
    }
    if (event != WEIR_RUN_HAS_FINISHED) {
        return;
    }
    weir_run_query(run, &info);
    if (info.timed) {
        weir_forms_timing_over(k, info.plain);
    }
}

/* Called by the watcher, which must not wait, or by a thread that could not start a run. */
static void on_ended(void *user)
{
    weir_forms_module_put_later(((struct weir_forms_kernel *)user)->module);
}

/* Like on_event(), for a launch that an order controls. */
static void on_order_event(void *user, struct weir_run *run, enum weir_run_event event)
{
    struct weir_forms_order *order = user;

    on_event(order->kernel, run, event);
    order->notify(order->item, run, event);
}

static void on_order_ended(void *user)
{
    struct weir_forms_order *order = user;

    on_ended(order->kernel);
    order->ended(order->item);
}

/* Take the run's place and callbacks from the order. */
static void take_order(struct weir_forms_kernel *k, struct weir_forms_order *order,
                       struct weir_run_params *p)
{
    if (p->form == WEIR_PTX_FORM_PERSISTENT) {
        uint32_t task = p->place.task_blocks;

        p->place = order->place;
        p->place.task_blocks = task;
    }
    order->kernel = k;
    p->user = order;
    p->notify = on_order_event;
    p->ended = on_order_ended;
}

/* Set the carve-out: other tenants' blocks may be on its SMs. @param beside_bytes shared memory
 * that they need */
static void set_carveout(struct weir_session *s, const struct weir_forms_choice *c,
                         const struct weir_run_params *p, uint32_t beside_bytes)
{
    struct weir_forms_carve_out *carve_out = &c->kernel->fit.carve_out[c->variant];
    uint64_t blocks = WEIR_MIN(p->place.block_limit, c->blocks_per_sm);
    uint64_t own_bytes = blocks * c->block_bytes;
    uint32_t sm_bytes = c->kernel->module->device->sm_shared_bytes;
    uint32_t kib = weir_forms_aside_kib(own_bytes + beside_bytes);
    bool shares = p->place.block_limit != 0 && p->place.sm_count == 0;
    int set = carve_out->shares ? carve_out->set : WEIR_FORMS_NO_CARVEOUT;

    weir_forms_carve_out_set(
        s->driver, p->twin,
        shares ? weir_forms_carveout_percent(kib, sm_bytes) : WEIR_FORMS_NO_CARVEOUT, carve_out);
    if (carve_out->shares && carve_out->set != set) {
        weir_log_debug("forms: shares SMs kernel=%s block_limit=%u own_bytes=%llu beside_bytes=%u "
                       "carve_out_pct=%d",
                       c->kernel->info->name, p->place.block_limit, (unsigned long long)own_bytes,
                       beside_bytes, carve_out->set);
    }
}

void weir_forms_granted(const struct weir_forms_choice *choice, uint32_t sm_count,
                        uint32_t block_limit)
{
    if (sm_count != 0 || block_limit != 0) {
        weir_forms_placed(choice->kernel, block_limit != 0 && block_limit < choice->blocks_per_sm);
    }
}

static CUresult start(struct weir_session *s, const struct weir_forms_choice *c, CUstream stream,
                      const struct weir_op_launch_in *in, struct weir_forms_order *order)
{
    enum weir_forms_variant variant = (enum weir_forms_variant)c->variant;
    struct weir_forms_kernel *k = c->kernel;
    struct weir_forms_device *device = k->module->device;
    const struct weir_forms_twin *twin = weir_forms_twin_info(k, c->form, variant);
    bool explore = k->module->mode == WEIR_FORMS_EXPLORE;
    struct weir_run_params p = {.form = c->form,
                                .twin = weir_forms_twin_function(k, c->form, variant),
                                .finish = k->module->finish,
                                .args_offset = twin->args_offset,
                                .param_bytes = twin->param_bytes,
                                .grid = {in->grid[0], in->grid[1], in->grid[2]},
                                .block = {in->block[0], in->block[1], in->block[2]},
                                .look_always = c->look_always,
                                .shared_bytes = weir_forms_twin_shared(twin, in->shared_bytes),
                                .blocks_per_sm = c->blocks_per_sm,
                                .arguments = in->params,
                                .argument_bytes = in->n_params,
                                .stream = stream,
                                .owner = s,
                                .user = k,
                                .notify = on_event,
                                .ended = on_ended};
    struct weir_run *run;

    if (explore && c->form == WEIR_PTX_FORM_PERSISTENT) {
        p.place = weir_forms_draw_place(device, c->blocks_per_sm);
        p.look_always = weir_forms_draw(device->forms) % 2 == 0;
    } else {
        p.place.task_blocks = c->task_blocks;
    }
    if (order && !explore) {
        take_order(k, order, &p);
    } else if (order) { /* the explorer chose the order's place */
        struct weir_run_place drawn = p.place;

        take_order(k, order, &p);
        p.place = drawn;
    }
    weir_forms_granted(c, p.place.sm_count, p.place.block_limit);
    set_carveout(s, c, &p, order ? order->beside_bytes : 0);
    /* Not timed beside others on the same SMs, where it takes longer. */
    p.timed = !explore && p.place.sm_count == 0 && p.place.block_limit == 0 &&
              weir_forms_timing_begin(s->driver, k, variant, c->blocks, c->workers, stream);
    atomic_fetch_add(&k->module->refs, 1);
    CUresult result =
        weir_run_start(atomic_load(&device->runs), &p, explore || order ? &run : NULL);
    if (p.timed) {
        weir_forms_timing_end(s->driver, k, result == CUDA_SUCCESS, stream);
    }
    if (explore && result == CUDA_SUCCESS) {
        weir_forms_explore_begun(device, run);
    }
    if (order && result == CUDA_SUCCESS) {
        order->run = run;
    } else if (explore && result == CUDA_SUCCESS) {
        weir_run_put(run);
    }
    return result;
}

static enum weir_forms_launched start_as(struct weir_session *s, const struct weir_forms_choice *c,
                                         CUstream stream, const struct weir_op_launch_in *in,
                                         struct weir_forms_order *order)
{
    return start(s, c, stream, in, order) != CUDA_SUCCESS ? WEIR_FORMS_LAUNCHED_DRIVER
           : c->form == WEIR_PTX_FORM_PERSISTENT          ? WEIR_FORMS_LAUNCHED_PERSISTENT
                                                          : WEIR_FORMS_LAUNCHED_TICKET;
}

bool weir_forms_is_auto(const struct weir_session *session,
                        const struct weir_host_function *function)
{
    const struct weir_forms_module *m = function->forms;

    (void)session;
    return m && m->mode == WEIR_FORMS_AUTO;
}

/* Find the kernel of a launch, or why only the original can be launched. */
static struct weir_forms_kernel *find(struct weir_session *session,
                                      struct weir_host_function *function,
                                      const struct weir_host_stream *stream,
                                      const struct weir_op_launch_in *in,
                                      enum weir_forms_launched *ret_why)
{
    if (weir_host_stream_capturing(session, stream)) {
        *ret_why = WEIR_FORMS_LAUNCHED_CAPTURED;
        return NULL;
    }
    struct weir_forms_module *m = weir_forms_here(session, function->forms);
    struct weir_forms_kernel *k = m && !m->refused ? find_kernel(m, function) : NULL;
    *ret_why = !m                   ? WEIR_FORMS_LAUNCHED_NOT_YET
               : !k || k->useless   ? WEIR_FORMS_LAUNCHED_NO_TWIN
               : !attributes_ok(in) ? WEIR_FORMS_LAUNCHED_ATTRIBUTES
               : !geometry_ok(in)   ? WEIR_FORMS_LAUNCHED_GRID
               : atomic_load_explicit(&k->never_stop, memory_order_relaxed)
                   ? WEIR_FORMS_LAUNCHED_NEVER
               : !weir_forms_bind(session, m) ? WEIR_FORMS_LAUNCHED_NOT_YET
                                              : WEIR_FORMS_LAUNCHED_PERSISTENT;
    return *ret_why == WEIR_FORMS_LAUNCHED_PERSISTENT ? k : NULL;
}

/* Choose the form of a twin; PERSISTENT, or the reason against it. */
static enum weir_forms_launched choose(struct weir_session *session, struct weir_forms_kernel *k,
                                       CUfunction native, const struct weir_op_launch_in *in,
                                       uint32_t cost_pct, struct weir_forms_choice *c)
{
    const struct weir_driver *d = session->driver;
    struct weir_forms_module *m = k->module;
    uint32_t threads = in->block[0] * in->block[1] * in->block[2];

    c->kernel = k;
    if (!mirror_attributes(d, k, native)) {
        return WEIR_FORMS_LAUNCHED_ROOM;
    }
    c->form = choose_form(m->device->forms, k, m->mode);
    weir_forms_fit(session, k, native, c->form, threads, in->shared_bytes);
    if (!mirror_attributes(d, k, native)) { /* a twin more */
        return WEIR_FORMS_LAUNCHED_ROOM;
    }
    c->variant = (int)weir_forms_variant_next(d, k);
    c->blocks_per_sm = k->fit.per_sm[c->variant];
    c->block_bytes = k->fit.block_bytes[c->variant];
    c->blocks = (uint64_t)in->grid[0] * in->grid[1] * in->grid[2];
    c->workers = (uint64_t)m->device->sms * c->blocks_per_sm;
    if (c->blocks_per_sm == 0) {
        return WEIR_FORMS_LAUNCHED_ROOM;
    }
    if (m->mode == WEIR_FORMS_AUTO && !worth_it(k, c->blocks, c->workers)) {
        return WEIR_FORMS_LAUNCHED_SHORT;
    }
    enum weir_forms_verdict verdict = weir_forms_judge(k, c->blocks, cost_pct);
    if (verdict != WEIR_FORMS_TAKES_TWIN) {
        c->times_original = verdict == WEIR_FORMS_TIMES_ORIGINAL;
        c->divisible = verdict == WEIR_FORMS_TAKES_ORIGINAL_UNLESS_DIVIDED;
        return WEIR_FORMS_LAUNCHED_COSTS;
    }
    c->task_blocks =
        weir_forms_task_next(k, (enum weir_forms_variant)c->variant, c->blocks, c->workers);
    c->look_always =
        weir_forms_tasks_are_long(k, (enum weir_forms_variant)c->variant, c->task_blocks);
    return WEIR_FORMS_LAUNCHED_PERSISTENT;
}

bool weir_forms_choose(struct weir_session *session, struct weir_host_function *function,
                       CUfunction native, const struct weir_host_stream *stream,
                       const struct weir_op_launch_in *in, uint32_t cost_pct,
                       struct weir_forms_choice *ret_choice)
{
    enum weir_forms_launched why;
    struct weir_forms_kernel *k = find(session, function, stream, in, &why);

    *ret_choice = (struct weir_forms_choice){.kernel = k};
    if (k) {
        why = choose(session, k, native, in, cost_pct, ret_choice);
        k->launches[WEIR_PTX_FORM_ORIGINAL] += why != WEIR_FORMS_LAUNCHED_PERSISTENT;
    }
    if (why != WEIR_FORMS_LAUNCHED_PERSISTENT) {
        weir_forms_note(session, why);
    }
    return why == WEIR_FORMS_LAUNCHED_PERSISTENT;
}

bool weir_forms_launch(struct weir_session *session, const struct weir_forms_choice *choice,
                       struct weir_host_stream *stream, const struct weir_op_launch_in *in,
                       struct weir_forms_order *order)
{
    struct weir_forms_kernel *k = choice->kernel;
    enum weir_forms_launched launched =
        start_as(session, choice, weir_host_stream_at(stream), in, order);

    weir_forms_note(session, launched);
    if (launched != WEIR_FORMS_LAUNCHED_PERSISTENT && launched != WEIR_FORMS_LAUNCHED_TICKET) {
        k->launches[WEIR_PTX_FORM_ORIGINAL]++;
        return false;
    }
    k->launches[choice->form]++;
    return true;
}

bool weir_forms_original_begins(struct weir_session *session,
                                const struct weir_forms_choice *choice,
                                struct weir_host_stream *stream)
{
    return choice->times_original &&
           weir_forms_timing_begin(session->driver, choice->kernel, WEIR_FORMS_ORIGINAL,
                                   choice->blocks, choice->workers, weir_host_stream_at(stream));
}

void weir_forms_original_given(struct weir_session *session, const struct weir_forms_choice *choice,
                               struct weir_host_stream *stream, bool given)
{
    struct weir_forms_kernel *k = choice->kernel;

    weir_forms_timing_end(session->driver, k, given, weir_host_stream_at(stream));
    if (atomic_load(&k->timing.state) == WEIR_FORMS_TIMED_FLYING) {
        weir_forms_timing_over(k, true); /* it is never stopped, so only its end is needed */
    }
}
