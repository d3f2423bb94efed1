/* Nodes of graphs whose parameters need more than forwarding. */
#include "host_backend/worker/device/prints.h"
#include "host_backend/worker/ops/graph_names.h"
#include "host_backend/worker/ops/ops.h"
#include "host_backend/worker/session/graph_holds.h"
#include "host_backend/worker/state/platform.h"
#include "host_backend/worker/twins/forms.h"

#include "host_backend/worker/state/host_calls.h"
#include <string.h>

CUresult weir_ops_node_begin(struct weir_session *s, uint64_t graph, uint64_t node,
                             const uint64_t *dependencies, uint32_t n, struct weir_ops_place *ret)
{
    WEIR_TRY(weir_session_use(s, WEIR_KIND_GRAPH, graph, (void **)&ret->graph));
    WEIR_TRY(weir_session_free_name(s, WEIR_KIND_NODE, node));
    ret->nodes = weir_session_alloc(s, (n + 1) * sizeof *ret->nodes);
    WEIR_FAIL_IF(!ret->nodes, CUDA_ERROR_OUT_OF_MEMORY);
    for (uint32_t i = 0; i < n; i++) {
        WEIR_TRY(weir_session_use(s, WEIR_KIND_NODE, dependencies[i], (void **)&ret->nodes[i]));
    }
    return CUDA_SUCCESS;
}

/* The executable graph whose parameters are to be set; NULL: those of the graph itself are. */
static CUresult exec_of(struct weir_session *s, uint64_t handle, CUgraphExec *ret)
{
    *ret = NULL;
    return handle == 0 ? CUDA_SUCCESS : weir_session_use(s, WEIR_KIND_EXEC, handle, (void **)ret);
}

static CUresult node_of(struct weir_session *s, uint64_t handle, CUgraphNode *ret)
{
    return weir_session_use(s, WEIR_KIND_NODE, handle, (void **)ret);
}

/* A node, or its copy in an executable graph (0: the node itself), is about to name an object. */
static CUresult node_holds(struct weir_session *s, uint64_t node, uint64_t exec,
                           struct weir_object *object)
{
    const struct weir_object *o = weir_host_object_get(s, WEIR_KIND_NODE, node);

    if (exec != 0) {
        return weir_graph_hold_exec(s, object, weir_host_object_get(s, WEIR_KIND_EXEC, exec));
    }
    return o->owner ? weir_graph_hold(s, object, o->owner->native) : CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- kernels */

struct kernel {
    CUDA_KERNEL_NODE_PARAMS params;
    size_t bytes;
    void *extra[5];
};

static CUresult fill_kernel(struct weir_session *s, uint64_t function, const uint32_t grid[3],
                            const uint32_t block[3], uint32_t shared_bytes, const void *params,
                            uint32_t n_params, struct kernel *k)
{
    struct weir_host_function *f = weir_ops_function(s, function);

    WEIR_FAIL_IF(!f, CUDA_ERROR_INVALID_HANDLE);
    memset(k, 0, sizeof *k);
    if (s->exposures) {
        weir_forms_arguments(s, params, n_params);
    }
    k->bytes = n_params;
    WEIR_TRY(weir_ops_params(s, f, &params, &k->bytes));
    k->extra[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
    k->extra[1] = (void *)(uintptr_t)params;
    k->extra[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
    k->extra[3] = &k->bytes;
    k->extra[4] = CU_LAUNCH_PARAM_END;
    WEIR_TRY(weir_function_here(s, f, &k->params.func));
    k->params.gridDimX = grid[0];
    k->params.gridDimY = grid[1];
    k->params.gridDimZ = grid[2];
    k->params.blockDimX = block[0];
    k->params.blockDimY = block[1];
    k->params.blockDimZ = block[2];
    k->params.sharedMemBytes = shared_bytes;
    k->params.extra = k->bytes != 0 ? k->extra : NULL;
    weir_ops_runs(f, true);
    weir_fault_kernel_in_graph(s, f->may_assert);
    return f->uses_printf ? weir_prints_expect(s) : CUDA_SUCCESS;
}

CUresult weir_host_graph_add_kernel(struct weir_session *s,
                                    const struct weir_op_graph_add_kernel_in *in)
{
    struct kernel k;
    struct weir_ops_place p;
    CUgraphNode node;

    WEIR_TRY(weir_ops_node_begin(s, in->g, in->n, in->dependencies, in->n_dependencies, &p));
    WEIR_TRY(
        fill_kernel(s, in->f, in->grid, in->block, in->shared_bytes, in->params, in->n_params, &k));
    WEIR_TRY(weir_graph_hold(s, &weir_ops_function(s, in->f)->o, p.graph));
    WEIR_TRY(
        s->driver->cuGraphAddKernelNode_v2(&node, p.graph, p.nodes, in->n_dependencies, &k.params));
    return weir_session_put(s, WEIR_KIND_NODE, in->n, node);
}

CUresult weir_host_graph_kernel_set(struct weir_session *s,
                                    const struct weir_op_graph_kernel_set_in *in)
{
    CUgraphExec exec;
    CUgraphNode node;
    struct kernel k;

    WEIR_TRY(exec_of(s, in->x, &exec));
    WEIR_TRY(node_of(s, in->n, &node));
    WEIR_TRY(
        fill_kernel(s, in->f, in->grid, in->block, in->shared_bytes, in->params, in->n_params, &k));
    WEIR_TRY(node_holds(s, in->n, in->x, &weir_ops_function(s, in->f)->o));
    struct weir_object *o = weir_host_object_get(s, WEIR_KIND_NODE, in->n);
    if (!exec) {
        o->altered = true;
        return s->driver->cuGraphKernelNodeSetParams_v2(node, &k.params);
    }
    WEIR_TRY(s->driver->cuGraphExecKernelNodeSetParams_v2(exec, node, &k.params));
    weir_ops_graph_sms_set(s, weir_host_object_get(s, WEIR_KIND_EXEC, in->x), o, &k.params);
    weir_graph_names_set(s, in->x, node, k.extra[1], k.bytes);
    return CUDA_SUCCESS;
}

CUresult weir_ops_node_params(struct weir_session *s, const struct weir_host_function *f,
                              const CUDA_KERNEL_NODE_PARAMS *params, uint8_t *room, uint32_t *ret_n)
{
    *ret_n = 0;
    if (params->extra) {
        const void *from = NULL;
        size_t bytes = 0;

        for (void **e = params->extra; *e != CU_LAUNCH_PARAM_END; e += 2) {
            if (*e == CU_LAUNCH_PARAM_BUFFER_POINTER) {
                from = e[1];
            } else {
                bytes = *(const size_t *)e[1];
            }
        }
        WEIR_FAIL_IF(!from || bytes > WEIR_OPS_PARAMS_BYTES, CUDA_ERROR_NOT_SUPPORTED);
        memcpy(room, from, bytes);
        *ret_n = (uint32_t)bytes;
        return CUDA_SUCCESS;
    }
    for (uint32_t i = 0; params->kernelParams && i < f->n_params; i++) {
        size_t offset, size;

        WEIR_TRY(f->kernel ? s->driver->cuKernelGetParamInfo(f->kernel, i, &offset, &size)
                           : s->driver->cuFuncGetParamInfo(f->o.native, i, &offset, &size));
        WEIR_FAIL_IF(offset + size > WEIR_OPS_PARAMS_BYTES, CUDA_ERROR_NOT_SUPPORTED);
        memcpy(room + offset, params->kernelParams[i], size);
        *ret_n = f->param_bytes;
    }
    return CUDA_SUCCESS;
}

struct kernel_search {
    const struct weir_session *session;
    CUfunction wanted;
    struct weir_object *found;
};

static void look_at_function(weir_handle handle, void *object, void *user)
{
    struct kernel_search *search = user;
    struct weir_host_function *f = object;

    (void)handle;
    for (uint32_t i = 0; f->elsewhere && i < search->session->platform->n_devices; i++) {
        if (f->elsewhere[i] == search->wanted) {
            search->found = &f->o;
        }
    }
}

/* Find the function of a node, by its handle on the device where it was looked up or on another. */
static struct weir_object *find_function(struct weir_session *s, CUfunction native)
{
    struct kernel_search search = {s, native, NULL};

    search.found = weir_host_object_find(s, WEIR_KIND_FUNCTION, native);
    if (!search.found && native && s->platform->n_devices > 1) {
        weir_host_objects_visit(s, WEIR_KIND_FUNCTION, look_at_function, &search);
    }
    return search.found;
}

static void node_shape(const CUDA_KERNEL_NODE_PARAMS *params, uint32_t ret_grid[3],
                       uint32_t ret_block[3])
{
    const uint32_t grid[3] = {params->gridDimX, params->gridDimY, params->gridDimZ};
    const uint32_t block[3] = {params->blockDimX, params->blockDimY, params->blockDimZ};

    memcpy(ret_grid, grid, sizeof grid);
    memcpy(ret_block, block, sizeof block);
}

struct weir_host_function *weir_ops_node_function(struct weir_session *s,
                                                  const CUDA_KERNEL_NODE_PARAMS *params)
{
    CUfunction native = params->func;

    if (!native && params->kern &&
        s->driver->cuKernelGetFunction(&native, params->kern) != CUDA_SUCCESS) {
        return NULL;
    }
    return (struct weir_host_function *)find_function(s, native);
}

CUresult weir_host_graph_kernel_get(struct weir_session *s,
                                    const struct weir_op_graph_kernel_get_in *in,
                                    struct weir_op_graph_kernel_get_out *out)
{
    CUDA_KERNEL_NODE_PARAMS params;
    CUgraphNode node;

    WEIR_TRY(node_of(s, in->n, &node));
    memset(&params, 0, sizeof params);
    WEIR_TRY(s->driver->cuGraphKernelNodeGetParams_v2(node, &params));
    struct weir_host_function *f = weir_ops_node_function(s, &params);
    uint8_t *room = weir_session_alloc(s, WEIR_OPS_PARAMS_BYTES);
    if (!f || !room) {
        return !f ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_OUT_OF_MEMORY;
    }
    WEIR_TRY(weir_ops_node_params(s, f, &params, room, &out->n_params));
    out->f = f->o.handle;
    node_shape(&params, out->grid, out->block);
    out->shared_bytes = params.sharedMemBytes;
    out->params = room;
    return CUDA_SUCCESS;
}

CUresult weir_host_graph_kernel_attribute(struct weir_session *s,
                                          const struct weir_op_graph_kernel_attribute_in *in,
                                          struct weir_op_graph_kernel_attribute_out *out)
{
    CUlaunchAttributeID id = (CUlaunchAttributeID)in->attribute;
    CUlaunchAttributeValue value = in->value;
    CUgraphNode node;

    WEIR_TRY(node_of(s, in->n, &node));
    if (id != CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW && id != CU_LAUNCH_ATTRIBUTE_COOPERATIVE &&
        id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION && id != CU_LAUNCH_ATTRIBUTE_PRIORITY &&
        id != CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE &&
        id != CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP &&
        id != CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN &&
        id != CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION &&
        id != CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING &&
        id != CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (in->write == 0) {
        WEIR_TRY(s->driver->cuGraphKernelNodeGetAttribute(node, id, &out->value));
        if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
            out->value.priority = weir_admission_asked_priority(s, out->value.priority);
        }
        return CUDA_SUCCESS;
    }
    if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY) { /* the priority stays within the tenant's class */
        value.priority = weir_admission_stream_priority(s, value.priority);
    }
    if (id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW && value.accessPolicyWindow.num_bytes != 0) {
        WEIR_TRY(weir_session_check_dptr(s, (uintptr_t)value.accessPolicyWindow.base_ptr,
                                         value.accessPolicyWindow.num_bytes));
    }
    return s->driver->cuGraphKernelNodeSetAttribute(node, id, &value);
}

/* ---------------------------------------------------------------- copies and fills */

CUresult weir_host_graph_add_copy(struct weir_session *s,
                                  const struct weir_op_graph_add_copy_in *in)
{
    struct weir_object *arrays[2];
    CUDA_MEMCPY3D copy;
    struct weir_ops_place p;
    CUgraphNode node;

    WEIR_FAIL_IF(!weir_ops_ctx(s, in->c), CUDA_ERROR_INVALID_CONTEXT);
    WEIR_TRY(weir_ops_node_begin(s, in->g, in->n, in->dependencies, in->n_dependencies, &p));
    WEIR_TRY(WEIR_HAND_COPY_3D(s, in, true, &copy));
    weir_ops_copy_arrays(s, &copy, arrays);
    for (int i = 0; i < 2; i++) {
        WEIR_TRY(arrays[i] ? weir_graph_hold(s, arrays[i], p.graph) : CUDA_SUCCESS);
    }
    WEIR_TRY(s->driver->cuGraphAddMemcpyNode(&node, p.graph, p.nodes, in->n_dependencies, &copy,
                                             weir_ops_context(s)));
    return weir_session_put(s, WEIR_KIND_NODE, in->n, node);
}

CUresult weir_host_graph_copy_set(struct weir_session *s,
                                  const struct weir_op_graph_copy_set_in *in)
{
    struct weir_object *arrays[2];
    CUDA_MEMCPY3D copy;
    CUgraphExec exec;
    CUgraphNode node;

    WEIR_TRY(exec_of(s, in->x, &exec));
    WEIR_TRY(node_of(s, in->n, &node));
    WEIR_TRY(WEIR_HAND_COPY_3D(s, in, true, &copy));
    weir_ops_copy_arrays(s, &copy, arrays);
    for (int i = 0; i < 2; i++) {
        WEIR_TRY(arrays[i] ? node_holds(s, in->n, in->x, arrays[i]) : CUDA_SUCCESS);
    }
    if (!exec) {
        return s->driver->cuGraphMemcpyNodeSetParams(node, &copy);
    }
    WEIR_TRY(s->driver->cuGraphExecMemcpyNodeSetParams(exec, node, &copy, weir_ops_context(s)));
    weir_graph_names_copy_set(s, in->x, node, &copy);
    return CUDA_SUCCESS;
}

static CUresult fill_memset(struct weir_session *s, uint64_t dst, uint64_t pitch, uint32_t value,
                            uint32_t element_bytes, uint64_t width, uint64_t height,
                            CUDA_MEMSET_NODE_PARAMS *ret)
{
    WEIR_TRY(weir_ops_check_fill(s, dst, pitch, element_bytes, width, height, true));
    memset(ret, 0, sizeof *ret);
    ret->dst = dst;
    ret->pitch = pitch;
    ret->value = value;
    ret->elementSize = element_bytes;
    ret->width = width;
    ret->height = height;
    return CUDA_SUCCESS;
}

CUresult weir_host_graph_add_memset(struct weir_session *s,
                                    const struct weir_op_graph_add_memset_in *in)
{
    CUDA_MEMSET_NODE_PARAMS params;
    struct weir_ops_place p;
    CUgraphNode node;

    WEIR_FAIL_IF(!weir_ops_ctx(s, in->c), CUDA_ERROR_INVALID_CONTEXT);
    WEIR_TRY(weir_ops_node_begin(s, in->g, in->n, in->dependencies, in->n_dependencies, &p));
    WEIR_TRY(fill_memset(s, in->dst, in->pitch, in->value, in->element_bytes, in->width, in->height,
                         &params));
    WEIR_TRY(s->driver->cuGraphAddMemsetNode(&node, p.graph, p.nodes, in->n_dependencies, &params,
                                             weir_ops_context(s)));
    return weir_session_put(s, WEIR_KIND_NODE, in->n, node);
}

CUresult weir_host_graph_memset_set(struct weir_session *s,
                                    const struct weir_op_graph_memset_set_in *in)
{
    CUDA_MEMSET_NODE_PARAMS params;
    CUgraphExec exec;
    CUgraphNode node;

    WEIR_TRY(exec_of(s, in->x, &exec));
    WEIR_TRY(node_of(s, in->n, &node));
    WEIR_TRY(fill_memset(s, in->dst, in->pitch, in->value, in->element_bytes, in->width, in->height,
                         &params));
    if (!exec) {
        return s->driver->cuGraphMemsetNodeSetParams(node, &params);
    }
    WEIR_TRY(s->driver->cuGraphExecMemsetNodeSetParams(exec, node, &params, weir_ops_context(s)));
    weir_graph_names_set(s, in->x, node, &params.dst, sizeof params.dst);
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- functions of the guest */

CUresult weir_host_graph_add_host(struct weir_session *s,
                                  const struct weir_op_graph_add_host_in *in)
{
    CUDA_HOST_NODE_PARAMS params;
    struct weir_ops_place p;
    CUgraphNode node;

    WEIR_TRY(weir_ops_node_begin(s, in->g, in->n, in->dependencies, in->n_dependencies, &p));
    struct weir_host_call *call = weir_host_call_create(s, in->token, false);
    WEIR_FAIL_IF(!call, CUDA_ERROR_OUT_OF_MEMORY);
    memset(&params, 0, sizeof params);
    params.fn = weir_host_call_run;
    params.userData = call;
    CUresult result =
        s->driver->cuGraphAddHostNode(&node, p.graph, p.nodes, in->n_dependencies, &params);
    if (result != CUDA_SUCCESS) {
        weir_host_call_cancel(call);
        return result;
    }
    weir_host_call_keep(call, p.graph);
    return weir_session_put(s, WEIR_KIND_NODE, in->n, node);
}

/* Replace the guest's function in a graph's node. */
static void replace_call(struct weir_session *s, uint64_t node, const CUDA_HOST_NODE_PARAMS *old,
                         struct weir_host_call *call)
{
    const struct weir_object *o = weir_host_object_get(s, WEIR_KIND_NODE, node);

    if (!o->owner || !o->owner->native) {
        return;
    }
    weir_host_call_keep(call, o->owner->native);
    if (old->fn == weir_host_call_run) {
        weir_host_call_let_go(old->userData, o->owner->native);
    }
}

CUresult weir_host_graph_host_set(struct weir_session *s,
                                  const struct weir_op_graph_host_set_in *in,
                                  struct weir_op_graph_host_set_out *out)
{
    CUDA_HOST_NODE_PARAMS params, old;
    CUgraphExec exec;
    CUgraphNode node;

    WEIR_TRY(exec_of(s, in->x, &exec));
    WEIR_TRY(node_of(s, in->n, &node));
    WEIR_TRY(s->driver->cuGraphHostNodeGetParams(node, &old));
    out->replaced = old.fn == weir_host_call_run ? weir_host_call_token(old.userData) : 0;
    struct weir_host_call *call = weir_host_call_create(s, in->token, false);
    WEIR_FAIL_IF(!call, CUDA_ERROR_OUT_OF_MEMORY);
    memset(&params, 0, sizeof params);
    params.fn = weir_host_call_run;
    params.userData = call;
    CUresult result = exec ? s->driver->cuGraphExecHostNodeSetParams(exec, node, &params)
                           : s->driver->cuGraphHostNodeSetParams(node, &params);
    if (result != CUDA_SUCCESS) {
        weir_host_call_cancel(call);
    } else if (!exec) {
        replace_call(s, in->n, &old, call);
    }
    return result;
}
