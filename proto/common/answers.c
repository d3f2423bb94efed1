#include "proto/common/answers.h"
#include "base/status.h"
#include "proto/errors.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PITCH_BYTES 512u
#define PITCH_MAX   0x7fffffffu /* CU_DEVICE_ATTRIBUTE_MAX_PITCH */

CUresult weir_answer_text(const char *text, char *buffer, int room)
{
    (void)snprintf(buffer, (size_t)room, "%s", text);
    return CUDA_SUCCESS;
}

CUresult weir_answer_no_atomics(unsigned int *capabilities, unsigned int count)
{
    memset(capabilities, 0, count * sizeof(*capabilities));
    return CUDA_SUCCESS;
}

CUresult weir_answer_properties(CUresult (*attribute)(int *value, CUdevice_attribute id,
                                                      CUdevice dev),
                                CUdevice dev, CUdevprop *ret_properties)
{
    CUdevprop p = {0};
    const struct {
        CUdevice_attribute id;
        int *value;
    } rows[] = {
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &p.maxThreadsPerBlock},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, &p.maxThreadsDim[0]},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, &p.maxThreadsDim[1]},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, &p.maxThreadsDim[2]},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, &p.maxGridSize[0]},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, &p.maxGridSize[1]},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, &p.maxGridSize[2]},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, &p.sharedMemPerBlock},
        {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, &p.totalConstantMemory},
        {CU_DEVICE_ATTRIBUTE_WARP_SIZE, &p.SIMDWidth},
        {CU_DEVICE_ATTRIBUTE_MAX_PITCH, &p.memPitch},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, &p.regsPerBlock},
        {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, &p.clockRate},
        {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, &p.textureAlign},
    };
    for (size_t i = 0; i < WEIR_COUNT(rows); i++) {
        (void)attribute(rows[i].value, rows[i].id, dev);
    }
    *ret_properties = p;
    return CUDA_SUCCESS;
}

CUresult weir_answer_error_name(CUresult error, const char **ret_text)
{
    *ret_text = weir_cuda_error_name(error);
    return *ret_text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult weir_answer_error_string(CUresult error, const char **ret_text)
{
    *ret_text = weir_cuda_error_string(error);
    return *ret_text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---------------------------------------------------------------- memory */

CUresult weir_answer_range_attributes(CUresult (*attribute)(void *data, size_t bytes,
                                                            CUmem_range_attribute id,
                                                            CUdeviceptr at, size_t count),
                                      void **data, const size_t *sizes,
                                      const CUmem_range_attribute *ids, size_t n, CUdeviceptr at,
                                      size_t count)
{
    WEIR_FAIL_IF(!data || !sizes || !ids || !n, CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < n; i++) {
        WEIR_TRY(attribute(data[i], sizes[i], ids[i], at, count));
    }
    return CUDA_SUCCESS;
}

static CUresult check_device(const CUmemLocation *location, CUmemAllocationType type)
{
    WEIR_FAIL_IF(!location, CUDA_ERROR_INVALID_VALUE);
    return location->type == CU_MEM_LOCATION_TYPE_DEVICE && type == CU_MEM_ALLOCATION_TYPE_PINNED
               ? CUDA_SUCCESS
               : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult weir_answer_pool_at(CUresult (*pool_of)(CUmemoryPool *ret_pool, CUdevice device),
                             CUmemoryPool *ret_pool, const CUmemLocation *location,
                             CUmemAllocationType type)
{
    WEIR_TRY(check_device(location, type));
    return pool_of(ret_pool, location->id);
}

CUresult weir_answer_pool_set_at(CUresult (*set)(CUdevice device, CUmemoryPool pool),
                                 const CUmemLocation *location, CUmemAllocationType type,
                                 CUmemoryPool pool)
{
    WEIR_TRY(check_device(location, type));
    return set(location->id, pool);
}

CUresult weir_answer_pitch(CUresult (*alloc)(CUdeviceptr *ret_at, size_t bytes),
                           CUdeviceptr *ret_at, size_t *ret_pitch, size_t row_bytes, size_t rows,
                           unsigned int element_bytes)
{
    if (!ret_at || !ret_pitch || !row_bytes || !rows || row_bytes > PITCH_MAX ||
        (element_bytes != 4 && element_bytes != 8 && element_bytes != 16)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    size_t pitch = (row_bytes + PITCH_BYTES - 1) & ~(size_t)(PITCH_BYTES - 1), bytes;
    WEIR_FAIL_IF(__builtin_mul_overflow(pitch, rows, &bytes), CUDA_ERROR_OUT_OF_MEMORY);
    WEIR_TRY(alloc(ret_at, bytes));
    *ret_pitch = pitch;
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- devices and contexts */

/* "domain:bus:device.function"; for the driver, domain and function are optional. */
static bool parse_pci(const char *text, int ret[3])
{
    unsigned int domain = 0, bus, slot;
    if (sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3) {
        domain = 0;
        WEIR_FAIL_IF(sscanf(text, "%x:%x", &bus, &slot) != 2, false);
    }
    ret[0] = (int)domain;
    ret[1] = (int)bus;
    ret[2] = (int)slot;
    return true;
}

CUresult weir_answer_by_pci_bus_id(CUresult (*count)(int *ret_count),
                                   CUresult (*attribute)(int *value, CUdevice_attribute id,
                                                         CUdevice dev),
                                   CUdevice *ret_device, const char *text)
{
    static const CUdevice_attribute ids[] = {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID,
                                             CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
                                             CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID};
    int want[3], is[3], n;
    WEIR_FAIL_IF(!ret_device || !text || !parse_pci(text, want), CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(count(&n));
    for (CUdevice device = 0; device < n; device++) {
        for (int i = 0; i < 3; i++) {
            WEIR_TRY(attribute(&is[i], ids[i], device));
        }
        if (memcmp(is, want, sizeof is) == 0) {
            *ret_device = device;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

CUresult weir_answer_ctx_create_v3(CUresult (*create)(CUcontext *ret_ctx, unsigned int flags,
                                                      CUdevice dev),
                                   CUcontext *ret_ctx, const CUexecAffinityParam *params, int n,
                                   unsigned int flags, CUdevice dev)
{
    WEIR_FAIL_IF(n < 0 || (n > 0 && !params), CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(n > 0, CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    return create(ret_ctx, flags, dev);
}

CUresult weir_answer_ctx_create_v4(CUresult (*create)(CUcontext *ret_ctx, unsigned int flags,
                                                      CUdevice dev),
                                   CUcontext *ret_ctx, const CUctxCreateParams *params,
                                   unsigned int flags, CUdevice dev)
{
    WEIR_FAIL_IF(params && (params->numExecAffinityParams || params->cigParams),
                 CUDA_ERROR_NOT_SUPPORTED);
    return create(ret_ctx, flags, dev);
}

/* ---------------------------------------------------------------- graphs */

CUresult weir_answer_instantiate(CUresult (*instantiate)(CUgraphExec *ret_exec, CUgraph graph,
                                                         unsigned long long flags),
                                 CUgraphExec *ret_exec, CUgraph graph, CUgraphNode *ret_failed,
                                 char *log, size_t log_bytes)
{
    WEIR_GIVE(ret_failed, NULL);
    if (log && log_bytes) {
        log[0] = '\0';
    }
    return instantiate(ret_exec, graph, 0);
}

CUresult weir_answer_exec_update(CUresult (*update)(CUgraphExec exec, CUgraph graph,
                                                    CUgraphExecUpdateResultInfo *ret_info),
                                 CUgraphExec exec, CUgraph graph, CUgraphNode *ret_failed,
                                 CUgraphExecUpdateResult *ret_result)
{
    CUgraphExecUpdateResultInfo info = {.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    WEIR_FAIL_IF(!ret_result, CUDA_ERROR_INVALID_VALUE);
    CUresult result = update(exec, graph, &info);
    *ret_result = info.result;
    WEIR_GIVE(ret_failed, info.errorNode);
    return result;
}

static const char *type_name(CUgraphNodeType type)
{
    static const char *const names[] = {
        "KERNEL",    "MEMCPY",     "MEMSET",       "HOST",           "GRAPH",
        "EMPTY",     "WAIT_EVENT", "EVENT_RECORD", "EXT_SEM_SIGNAL", "EXT_SEM_WAIT",
        "MEM_ALLOC", "MEM_FREE",   "BATCH_MEM_OP", "CONDITIONAL"};
    return (unsigned int)type < WEIR_COUNT(names) ? names[type] : "UNKNOWN";
}

/* A graph's nodes, and behind them the beginnings and ends of its edges. */
struct dot {
    CUgraphNode *nodes, *from, *to;
    size_t n_nodes, n_edges;
};

static CUresult dot_print(FILE *file, const struct dot *dot,
                          CUresult (*get_type)(CUgraphNode node, CUgraphNodeType *ret_type))
{
    (void)fprintf(file, "digraph dot {\nsubgraph cluster_0 {\n");
    for (size_t i = 0; i < dot->n_nodes; i++) {
        CUgraphNodeType type;
        WEIR_TRY(get_type(dot->nodes[i], &type));
        (void)fprintf(file, "\"%p\" [shape=\"rectangle\" label=\"%zu\\n%s\"];\n",
                      (void *)dot->nodes[i], i, type_name(type));
    }
    for (size_t i = 0; i < dot->n_edges; i++) {
        (void)fprintf(file, "\"%p\" -> \"%p\";\n", (void *)dot->from[i], (void *)dot->to[i]);
    }
    (void)fprintf(file, "}\n}\n");
    return CUDA_SUCCESS;
}

static CUresult dot_write(const char *path, const struct dot *dot,
                          CUresult (*get_type)(CUgraphNode node, CUgraphNodeType *ret_type))
{
    int saved_errno = errno;
    FILE *file = fopen(path, "we");
    CUresult result = file ? dot_print(file, dot, get_type) : CUDA_ERROR_OPERATING_SYSTEM;
    if (file && fclose(file) != 0 && result == CUDA_SUCCESS) {
        result = CUDA_ERROR_OPERATING_SYSTEM;
    }
    errno = saved_errno;
    return result;
}

CUresult weir_answer_dot(CUresult (*get_nodes)(CUgraph graph, CUgraphNode *nodes, size_t *n),
                         CUresult (*get_edges)(CUgraph graph, CUgraphNode *from, CUgraphNode *to,
                                               size_t *n),
                         CUresult (*get_type)(CUgraphNode node, CUgraphNodeType *ret_type),
                         CUgraph graph, const char *path)
{
    struct dot dot = {0};
    WEIR_FAIL_IF(!path, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(get_nodes(graph, NULL, &dot.n_nodes));
    WEIR_TRY(get_edges(graph, NULL, NULL, &dot.n_edges));
    dot.nodes = calloc(dot.n_nodes + 2 * dot.n_edges + 1, sizeof(CUgraphNode));
    WEIR_FAIL_IF(!dot.nodes, CUDA_ERROR_OUT_OF_MEMORY);
    dot.from = dot.nodes + dot.n_nodes;
    dot.to = dot.from + dot.n_edges;
    CUresult result = dot.n_nodes ? get_nodes(graph, dot.nodes, &dot.n_nodes) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS && dot.n_edges) {
        result = get_edges(graph, dot.from, dot.to, &dot.n_edges);
    }
    WEIR_THEN(result, dot_write(path, &dot, get_type));
    free(dot.nodes);
    return result;
}
