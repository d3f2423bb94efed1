/* Kernel launches, and queries of occupancy. */
#include "host_backend/worker/code/images.h"
#include "host_backend/worker/device/order.h"
#include "host_backend/worker/memory/managed.h"
#include "host_backend/worker/ops/ops.h"
#include "host_backend/worker/session/book.h"
#include "host_backend/worker/state/hooks.h"
#include "host_backend/worker/submit/submit.h"
#include "host_backend/worker/twins/forms.h"

#include "base/hash.h"
#include <string.h>

/* Convert a launch attribute. Attributes without addresses or handles pass; the two with events are
 * translated; the rest is refused. */
static CUresult translate(struct weir_session *s, CUlaunchAttribute *a)
{
    struct weir_host_event *event;
    CUevent *place;

    switch ((int)a->id) {
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY: /* the priority stays within the tenant's class */
        a->value.priority = weir_admission_stream_priority(s, a->value.priority);
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        return a->value.accessPolicyWindow.num_bytes == 0
                   ? CUDA_SUCCESS
                   : weir_session_check_dptr(s, (uintptr_t)a->value.accessPolicyWindow.base_ptr,
                                             a->value.accessPolicyWindow.num_bytes);
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
        place = &a->value.programmaticEvent.event;
        break;
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        place = &a->value.launchCompletionEvent.event;
        break;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    event = weir_ops_event(s, (uintptr_t)*place);
    WEIR_FAIL_IF(!event, CUDA_ERROR_INVALID_HANDLE);
    weir_session_book_needs(s, &event->o);
    *place = event->o.native;
    return CUDA_SUCCESS;
}

#define ATTRIBUTES_MAX WEIR_OP_launch_in_attributes_max
_Static_assert((int)ATTRIBUTES_MAX == (int)WEIR_OP_occupancy_clusters_in_attributes_max,
               "one struct config holds what either carries");

/* A launch in the driver's form; its attributes are in the struct itself. */
struct config {
    CUlaunchConfig config;
    CUlaunchAttribute attributes[ATTRIBUTES_MAX + 1];
};

static CUresult fill_config(struct weir_session *s, const uint32_t grid[3], const uint32_t block[3],
                            uint32_t shared_bytes, const CUlaunchAttribute *attributes, uint32_t n,
                            struct config *c)
{
    WEIR_FAIL_IF(n > ATTRIBUTES_MAX, CUDA_ERROR_INVALID_VALUE);
    memset(&c->config, 0, sizeof c->config);
    for (uint32_t i = 0; i < n; i++) {
        c->attributes[i] = attributes[i];
        WEIR_TRY(translate(s, &c->attributes[i]));
    }
    c->config.numAttrs = n;
    c->config.attrs = c->attributes;
    c->config.gridDimX = grid[0];
    c->config.gridDimY = grid[1];
    c->config.gridDimZ = grid[2];
    c->config.blockDimX = block[0];
    c->config.blockDimY = block[1];
    c->config.blockDimZ = block[2];
    c->config.sharedMemBytes = shared_bytes;
    return CUDA_SUCCESS;
}

static CUresult launch_ex(struct weir_session *s, const struct weir_op_launch_in *in, CUfunction f,
                          CUstream stream, void **extra)
{
    struct config c;

    WEIR_TRY(fill_config(s, in->grid, in->block, in->shared_bytes, in->attributes, in->n_attributes,
                         &c));
    if ((in->flags & WEIR_LAUNCH_COOPERATIVE) != 0) {
        CUlaunchAttribute *cooperative = &c.attributes[c.config.numAttrs++];

        memset(cooperative, 0, sizeof *cooperative);
        cooperative->id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        cooperative->value.cooperative = 1;
    }
    c.config.hStream = stream;
    return s->driver->cuLaunchKernelEx(&c.config, f, NULL, extra);
}

CUresult weir_host_occupancy_clusters(struct weir_session *s,
                                      const struct weir_op_occupancy_clusters_in *in,
                                      struct weir_op_occupancy_clusters_out *out)
{
    struct weir_host_function *f = weir_ops_function(s, in->f);
    CUfunction native;
    struct config c;

    WEIR_FAIL_IF(!f, CUDA_ERROR_INVALID_HANDLE);
    WEIR_TRY(weir_function_here(s, f, &native));
    WEIR_TRY(fill_config(s, in->grid, in->block, in->shared_bytes, in->attributes, in->n_attributes,
                         &c));
    return in->potential != 0
               ? s->driver->cuOccupancyMaxPotentialClusterSize(&out->value, native, &c.config)
               : s->driver->cuOccupancyMaxActiveClusters(&out->value, native, &c.config);
}

CUresult weir_ops_params(struct weir_session *s, const struct weir_host_function *f,
                         const void **params, size_t *bytes)
{
    if (!f->layout_known || *bytes >= f->param_bytes) {
        return CUDA_SUCCESS;
    }
    uint8_t *whole = weir_session_alloc(s, f->param_bytes);
    WEIR_FAIL_IF(!whole, CUDA_ERROR_OUT_OF_MEMORY);
    memset(whole, 0, f->param_bytes);
    if (*bytes != 0) {
        memcpy(whole, *params, *bytes);
    }
    *params = whole;
    *bytes = f->param_bytes;
    return CUDA_SUCCESS;
}

/*
 * The scheduler's key of a kernel, the same in other processes and on other hosts. It includes the
 * tenant: a kernel's time depends on its arguments, and tenants must not affect each other.
 */
static uint64_t kernel_key(struct weir_session *s, struct weir_host_function *f)
{
    const struct weir_host_module *m = (const struct weir_host_module *)f->o.owner;
    uint64_t of[3], key = 0;

    if (f->hint.kernel != 0) {
        return f->hint.kernel;
    }
    if (m && m->image && f->name) {
        memcpy(&of[0], m->image->hash.bytes, sizeof of[0]);
        of[1] = weir_hash64_of(f->name, strlen(f->name));
        of[2] = weir_hash64_of(s->tenant->name, strlen(s->tenant->name));
        key = weir_hash64_of(of, sizeof of);
    }
    if (key == 0) { /* build a unique name, which no later worker will find */
        of[0] = (uintptr_t)f->o.native;
        of[1] = s->id;
        of[2] = weir_session_started_ns(s);
        key = weir_hash64_of(of, sizeof of) | 1;
    }
    f->hint.kernel = key;
    return f->hint.kernel;
}

static struct weir_gate_work work_of(struct weir_session *s, struct weir_host_function *f,
                                     const struct weir_op_launch_in *in)
{
    uint64_t blocks = (uint64_t)in->grid[0] * in->grid[1] * in->grid[2];

    return (struct weir_gate_work){
        .class = WEIR_SCHED_KERNEL,
        .key = weir_gate_kernel_key(kernel_key(s, f), in->block, in->shared_bytes),
        .blocks = blocks < UINT32_MAX ? (uint32_t)blocks : UINT32_MAX,
        .hint = &f->hint};
}

/* A launch with the driver's handles and parameters. */
struct launch {
    const struct weir_op_launch_in *in;
    CUfunction native;
    const void *params;
    size_t bytes;
};

static CUresult call_launch(struct weir_session *s, CUstream at, const void *user)
{
    const struct launch *l = user;
    const struct weir_op_launch_in *in = l->in;
    size_t bytes = l->bytes;
    void *with[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, (void *)(uintptr_t)l->params,
                    CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    void **extra = bytes != 0 ? with : NULL;

    if (in->n_attributes != 0 || (in->flags & WEIR_LAUNCH_COOPERATIVE) != 0) {
        return launch_ex(s, in, l->native, at, extra);
    }
    return s->driver->cuLaunchKernel(l->native, in->grid[0], in->grid[1], in->grid[2], in->block[0],
                                     in->block[1], in->block[2], in->shared_bytes, at, NULL, extra);
}

CUresult weir_host_launch(struct weir_session *s, const struct weir_op_launch_in *in)
{
    struct weir_host_function *f = weir_ops_function(s, in->f);
    struct weir_host_stream *stream = weir_ops_stream(s, in->s);
    struct weir_submit_kernel kernel = {.function = f, .in = in};
    struct launch launch = {.in = in, .params = in->params, .bytes = in->n_params};
    struct weir_submission what = {.kernel = &kernel, .call = call_launch, .user = &launch};

    WEIR_FAIL_IF(!f || !stream, CUDA_ERROR_INVALID_HANDLE);
    WEIR_TRY(weir_ops_params(s, f, &launch.params, &launch.bytes));
    WEIR_TRY(weir_function_here(s, f, &launch.native));
    if (weir_worker_forms(s->worker)) {
        WEIR_TRY(weir_function_load(s, f, launch.native));
    }
    if (s->exposures) {
        weir_forms_arguments(s, in->params, in->n_params);
    }
    if (!weir_host_stream_capturing(s, stream)) {
        weir_managed_launches(s, launch.params, launch.bytes);
    }
    weir_managed_reached(s, 0, 0);
    kernel.native = launch.native;
    what.may_print = f->uses_printf;
    what.work = work_of(s, f, in);
    weir_ops_runs(f, s->n_captures != 0);
    return weir_submit(s, stream, &what);
}
