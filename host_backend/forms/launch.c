/*
 * A launch: is there a twin, may it be used, is it wanted, and how?
 *
 * Whatever speaks against it, the answer is the original: the guest's errors are then the driver's
 * own about the guest's own launch.
 */
#include "host_backend/forms/private.h"

#include "base/clock.h"
#include "host_backend/worker/order.h"
#include <string.h>

#define TASK_NS          (10 * WEIR_NS_PER_US) /* what a worker should do between two looks */
#define TASKS_PER_WORKER 8u                    /* at least, so that the last ones end together */
#define TASK_UNKNOWN     4u /* of blocks of 1 us nothing is lost from there on (H200, 2026-11-21) */
#define TASK_MAX         32u
#define SHORT_NS         (100 * WEIR_NS_PER_US) /* not worth stopping */
#define FORGET           16u
#define GRID_YZ_MAX      65535u

/* ---------------------------------------------------------------- may it? */

/* Attributes that say nothing, or that it is an ordinary launch. */
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

static struct weir_forms_kernel *find_kernel(struct weir_forms_module *m, struct weir_function *f)
{
    if (f->form == NULL || f->form->module != m) {
        const struct weir_forms_kernel_info *info =
            f->name != NULL ? weir_forms_set_find(m->set, f->name) : NULL;

        f->form = info != NULL ? &m->kernels[info - m->set->kernels] : NULL;
    }
    return f->form;
}

static bool find_twins(const struct weir_driver *d, struct weir_forms_kernel *k)
{
    for (uint32_t form = 0; form < WEIR_PTX_FORM_COUNT; form++) {
        const char *name = k->info->twins[form].name;

        if (name != NULL &&
            d->cuModuleGetFunction(&k->twins[form], k->module->twins, name) != CUDA_SUCCESS) {
            return false;
        }
    }
    k->found = true;
    k->attributes_seen = k->module->attributes_set - 1; /* not seen yet */
    return true;
}

static uint32_t twin_shared(const struct weir_forms_twin *twin, uint32_t bytes)
{
    return twin->dynamic_shared_bytes != 0 ? ((bytes + 15u) & ~15u) + twin->dynamic_shared_bytes
                                           : bytes;
}

/* What the guest has set of the original holds for the twins. */
static bool mirror_attributes(const struct weir_driver *d, struct weir_forms_kernel *k,
                              CUfunction native)
{
    static const CUfunction_attribute ids[] = {CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                               CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT};

    if (k->attributes_seen == k->module->attributes_set) {
        return true;
    }
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        int value = 0, twins;

        if (d->cuFuncGetAttribute(&value, ids[i], native) != CUDA_SUCCESS) {
            continue; /* a driver that does not know it */
        }
        for (uint32_t form = 0; form < WEIR_PTX_FORM_COUNT; form++) {
            if (k->twins[form] == NULL) {
                continue;
            }
            twins = i == 0 ? (int)twin_shared(&k->info->twins[form], (uint32_t)value) : value;
            if (d->cuFuncSetAttribute(k->twins[form], ids[i], twins) != CUDA_SUCCESS && i == 0) {
                return false;
            }
        }
    }
    k->attributes_seen = k->module->attributes_set;
    k->fit_threads = 0;
    return true;
}

/* How many blocks of the twin an SM holds; 0: it does not fit, or the driver refuses. */
static uint32_t blocks_per_sm(const struct weir_driver *d, struct weir_forms_kernel *k,
                              enum weir_ptx_form form, uint32_t threads, uint32_t shared_bytes)
{
    if (k->fit_threads != threads || k->fit_shared_bytes != shared_bytes ||
        k->fit_form != (uint32_t)form) {
        k->blocks_per_sm = 0;
        if (d->cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &k->blocks_per_sm, k->twins[form], (int)threads, shared_bytes) != CUDA_SUCCESS) {
            k->blocks_per_sm = 0;
        }
        k->fit_threads = threads;
        k->fit_shared_bytes = shared_bytes;
        k->fit_form = (uint32_t)form;
    }
    return k->blocks_per_sm > 0 ? (uint32_t)k->blocks_per_sm : 0;
}

/* ---------------------------------------------------------------- is it wanted, and how? */

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

static uint32_t choose_task(struct weir_forms_kernel *k, uint64_t blocks, uint64_t workers)
{
    uint64_t block_ns = atomic_load_explicit(&k->block_ns, memory_order_relaxed);
    uint64_t task = block_ns == 0 ? TASK_UNKNOWN : TASK_NS / block_ns;
    uint64_t most = blocks / (workers * TASKS_PER_WORKER);

    task = task > TASK_MAX ? TASK_MAX : task;
    task = task > most ? most : task;
    return task != 0 ? (uint32_t)task : 1;
}

/* A grid of one wave ends as soon as it could stop; nor is what is short worth it. */
static bool worth_it(struct weir_forms_kernel *k, uint64_t blocks, uint64_t workers)
{
    uint64_t block_ns = atomic_load_explicit(&k->block_ns, memory_order_relaxed);

    return blocks > workers && (block_ns == 0 || block_ns * blocks / workers >= SHORT_NS);
}

/* ---------------------------------------------------------------- what becomes of it */

static void on_event(void *user, struct weir_run *run, enum weir_run_event event)
{
    struct weir_forms_kernel *k = user;
    struct weir_run_info info;
    uint64_t workers, block_ns, before;

    if (event == WEIR_RUN_DOES_NOT_STOP) {
        atomic_store(&k->never_stop, true);
    }
    if (event != WEIR_RUN_HAS_FINISHED) {
        return;
    }
    weir_run_query(run, &info);
    if (!info.plain) {
        return; /* says nothing about the kernel */
    }
    workers = (uint64_t)k->module->device->sms * info.blocks_per_sm;
    workers = info.total < workers ? info.total : workers;
    block_ns = (info.finished_ns - info.started_ns) * workers / info.total + 1;
    before = atomic_load_explicit(&k->block_ns, memory_order_relaxed);
    if (before != 0 && block_ns > before) {
        block_ns = before + (block_ns - before) / FORGET;
    }
    atomic_store_explicit(&k->block_ns, block_ns, memory_order_relaxed);
}

static void on_ended(void *user)
{
    weir_forms_module_put(((struct weir_forms_kernel *)user)->module);
}

/* The same of a launch that somebody looks after. */
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

static CUresult start(struct weir_session *s, const struct weir_forms_choice *choice,
                      CUstream stream, const struct weir_op_launch_in *in,
                      struct weir_forms_order *order)
{
    struct weir_forms_kernel *k = choice->kernel;
    enum weir_ptx_form form = choice->form;
    uint32_t per_sm = choice->blocks_per_sm;
    struct weir_forms_device *device = k->module->device;
    const struct weir_forms_twin *twin = &k->info->twins[form];
    uint64_t blocks = (uint64_t)in->grid[0] * in->grid[1] * in->grid[2];
    struct weir_run_params p = {.form = form,
                                .twin = k->twins[form],
                                .finish = k->module->finish,
                                .args_offset = twin->args_offset,
                                .param_bytes = twin->param_bytes,
                                .grid = {in->grid[0], in->grid[1], in->grid[2]},
                                .block = {in->block[0], in->block[1], in->block[2]},
                                .shared_bytes = twin_shared(twin, in->shared_bytes),
                                .blocks_per_sm = per_sm,
                                .arguments = in->params,
                                .argument_bytes = in->n_params,
                                .stream = stream,
                                .owner = s,
                                .user = k,
                                .notify = on_event,
                                .ended = on_ended};

    bool explore = k->module->mode == WEIR_FORMS_EXPLORE;
    struct weir_run *run;
    CUresult result;

    if (explore && form == WEIR_PTX_FORM_PERSISTENT) {
        p.place = weir_forms_draw_place(device, per_sm);
    } else {
        if (order != NULL && form == WEIR_PTX_FORM_PERSISTENT) {
            p.place = order->place;
        }
        p.place.task_blocks = choose_task(k, blocks, (uint64_t)device->sms * per_sm);
    }
    if (order != NULL) {
        order->kernel = k;
        p.user = order;
        p.notify = on_order_event;
        p.ended = on_order_ended;
    }
    atomic_fetch_add(&k->module->refs, 1);
    result = weir_run_start(atomic_load(&device->runs), &p, explore || order != NULL ? &run : NULL);
    if (explore && result == CUDA_SUCCESS) {
        weir_forms_explore_begun(device, run);
    }
    if (order != NULL && result == CUDA_SUCCESS) {
        order->run = run;
    } else if (explore && result == CUDA_SUCCESS) {
        weir_run_put(run);
    }
    return result;
}

/* The driver loads a kernel's code when it is first launched, and may wait for the device then. */
static CUresult start_calmly(struct weir_session *s, const struct weir_forms_choice *choice,
                             CUstream stream, const struct weir_op_launch_in *in,
                             struct weir_forms_order *order)
{
    struct weir_forms *forms = choice->kernel->module->device->forms;
    uint32_t calm = choice->kernel->launches[choice->form] == 0 ? weir_forms_calm_begin(forms) : 0;
    CUresult result = start(s, choice, stream, in, order);

    weir_forms_calm_end(forms, calm);
    return result;
}

static bool wanted(struct weir_forms_kernel *k, const struct weir_op_launch_in *in, uint32_t per_sm)
{
    uint64_t blocks = (uint64_t)in->grid[0] * in->grid[1] * in->grid[2];

    return k->module->mode != WEIR_FORMS_AUTO ||
           worth_it(k, blocks, (uint64_t)k->module->device->sms * per_sm);
}

bool weir_forms_is_auto(const struct weir_session *session, const struct weir_function *function)
{
    const struct weir_forms_module *m = function->forms;

    (void)session;
    return m != NULL && m->mode == WEIR_FORMS_AUTO;
}

bool weir_forms_choose(struct weir_session *session, struct weir_function *function,
                       CUfunction native, const struct weir_stream *stream,
                       const struct weir_op_launch_in *in, struct weir_forms_choice *ret_choice)
{
    struct weir_forms_module *m = weir_forms_here(session, function->forms);
    struct weir_forms_kernel *k = m != NULL && !m->refused ? find_kernel(m, function) : NULL;
    const struct weir_driver *d = session->driver;
    uint32_t threads, per_sm;
    enum weir_ptx_form form;

    if (k == NULL || k->useless || !attributes_ok(in) || !geometry_ok(in) ||
        atomic_load_explicit(&k->never_stop, memory_order_relaxed) ||
        weir_stream_capturing(session, stream) || !weir_forms_bind(session, m)) {
        return false;
    }
    if (!k->found && !find_twins(d, k)) {
        k->useless = true;
        return false;
    }
    if (!mirror_attributes(d, k, native)) {
        k->launches[WEIR_PTX_FORM_ORIGINAL]++;
        return false;
    }
    form = choose_form(m->device->forms, k, m->mode);
    threads = in->block[0] * in->block[1] * in->block[2];
    per_sm =
        blocks_per_sm(d, k, form, threads, twin_shared(&k->info->twins[form], in->shared_bytes));
    if (per_sm == 0 || !wanted(k, in, per_sm)) {
        k->launches[WEIR_PTX_FORM_ORIGINAL]++;
        return false;
    }
    *ret_choice = (struct weir_forms_choice){k, form, per_sm};
    return true;
}

bool weir_forms_launch(struct weir_session *session, const struct weir_forms_choice *choice,
                       struct weir_stream *stream, const struct weir_op_launch_in *in,
                       struct weir_forms_order *order)
{
    struct weir_forms_kernel *k = choice->kernel;

    if (start_calmly(session, choice, stream->o.native, in, order) != CUDA_SUCCESS) {
        k->launches[WEIR_PTX_FORM_ORIGINAL]++;
        return false;
    }
    k->launches[choice->form]++;
    return true;
}
