/* Node records, user objects, and reading copy parameters for nodes. See graph.h. */
#include "base/grow.h"
#include "base/thread.h"
#include "guest_lib/graph.h"

#include "guest_lib/register.h"
#include "proto/guest_hand.h"
#include <stdlib.h>
#include <string.h>

struct record {
    struct weir_graph_node node;
    struct record *next;
};

/* The nodes that were added to a graph, to be forgotten with it. */
struct family {
    uint64_t graph;
    uint64_t *nodes;
    size_t n, room;
    struct family *next;
};

#define BUCKETS 1024
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static struct record *buckets[BUCKETS];
static struct family *families[BUCKETS];

static struct record **bucket_of(uint64_t handle)
{
    return &buckets[weir_handle_index(handle) % BUCKETS];
}

static void free_params(struct weir_graph_node *node)
{
    if (node->type == CU_GRAPH_NODE_TYPE_KERNEL) {
        free(node->params.kernel.pointers);
        free(node->params.kernel.packed);
    } else if (node->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) {
        free(node->params.memops.paramArray);
    } else if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
        free(node->params.bodies);
    }
}

CUresult weir_graph_node_keep(const struct weir_graph_node *node)
{
    WEIR_LOCKED(&lock);
    struct record *record =
        WEIR_LINKED(r, *bucket_of(node->handle), r->node.handle == node->handle);
    if (record) {
        free_params(&record->node);
    } else if ((record = calloc(1, sizeof(*record)))) {
        record->next = *bucket_of(node->handle);
        *bucket_of(node->handle) = record;
    }
    if (record) {
        record->node = *node;
    }
    return record ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

bool weir_graph_node_find(uint64_t handle, struct weir_graph_node *ret_node)
{
    WEIR_LOCKED(&lock);
    struct record *record = WEIR_LINKED(r, *bucket_of(handle), r->node.handle == handle);
    if (record) {
        *ret_node = record->node;
    }
    return record != NULL;
}

void weir_graph_node_forget(uint64_t handle)
{
    WEIR_LOCKED(&lock);
    struct record **at = bucket_of(handle);
    while (*at && (*at)->node.handle != handle) {
        at = &(*at)->next;
    }
    struct record *record = *at;
    if (record) {
        *at = record->next;
        free_params(&record->node);
        free(record);
    }
}

/* ---------------------------------------------------------------- a graph's nodes */

static struct family **family_locked(uint64_t graph)
{
    struct family **at = &families[weir_handle_index(graph) % BUCKETS];
    while (*at && (*at)->graph != graph) {
        at = &(*at)->next;
    }
    return at;
}

void weir_graph_node_own(uint64_t graph, uint64_t node)
{
    WEIR_LOCKED(&lock);
    struct family **at = family_locked(graph);
    if (!*at && (*at = calloc(1, sizeof(**at)))) {
        (*at)->graph = graph;
    }
    if (*at && WEIR_GROW((*at)->nodes, (*at)->n, (*at)->room)) {
        (*at)->nodes[(*at)->n++] = node;
    }
}

void weir_graph_node_bodies_forget(uint64_t handle)
{
    struct weir_graph_node node;
    bool has = weir_graph_node_find(handle, &node) && node.type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
    for (uint32_t i = 0; has && i < node.n_bodies; i++) {
        weir_graph_nodes_forget((uintptr_t)node.params.bodies[i]);
    }
}

void weir_graph_nodes_forget(uint64_t graph)
{
    pthread_mutex_lock(&lock);
    struct family **at = family_locked(graph);
    struct family *family = *at;
    if (family) {
        *at = family->next;
    }
    pthread_mutex_unlock(&lock);
    for (size_t i = 0; family && i < family->n; i++) {
        weir_graph_node_bodies_forget(family->nodes[i]);
        weir_graph_node_forget(family->nodes[i]);
        weir_guest_drop(WEIR_KIND_NODE, family->nodes[i]);
    }
    free(family ? family->nodes : NULL);
    free(family);
}

/* ---------------------------------------------------------------- user objects */

struct weir_user_object {
    uint64_t handle;
    uint32_t references; /* atomic */
    CUhostFn destroy;
    void *user;
};

/* Add references; false if they would overflow. */
static bool retain(struct weir_user_object *object, uint32_t count)
{
    uint32_t now = __atomic_load_n(&object->references, __ATOMIC_RELAXED);
    do {
        WEIR_FAIL_IF(count > UINT32_MAX - now, false);
    } while (!__atomic_compare_exchange_n(&object->references, &now, now + count, false,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return true;
}

bool weir_user_object_release(struct weir_user_object *object, uint32_t count)
{
    uint32_t now = __atomic_load_n(&object->references, __ATOMIC_RELAXED);
    do {
        WEIR_FAIL_IF(count > now, false);
        /* U1: everything done with the object happens before its destructor (A in the winner). */
    } while (!__atomic_compare_exchange_n(&object->references, &now, now - count, false,
                                          __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
    if (now == count && count) {
        weir_guest_object_remove(WEIR_KIND_USEROBJ, object->handle);
        object->destroy(object->user);
        free(object);
    }
    return true;
}

CUresult weir_guest_cuUserObjectCreate(CUuserObject *object_out, void *ptr, CUhostFn destroy,
                                       unsigned int initialRefcount, unsigned int flags)
{
    if (!object_out || !destroy || !initialRefcount || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct weir_user_object *object = calloc(1, sizeof(*object));
    WEIR_FAIL_IF(!object, CUDA_ERROR_OUT_OF_MEMORY);
    object->references = initialRefcount;
    object->destroy = destroy;
    object->user = ptr;
    CUresult result = weir_guest_object_add(WEIR_KIND_USEROBJ, object, &object->handle);
    if (result != CUDA_SUCCESS) {
        free(object);
        return result;
    }
    *object_out = (CUuserObject)(uintptr_t)object->handle;
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuUserObjectRetain(CUuserObject object, unsigned int count)
{
    struct weir_user_object *found = weir_guest_object_get(WEIR_KIND_USEROBJ, object);
    bool good = found && count && retain(found, count);
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult weir_guest_cuUserObjectRelease(CUuserObject object, unsigned int count)
{
    struct weir_user_object *found = weir_guest_object_get(WEIR_KIND_USEROBJ, object);
    bool good = found && count && weir_user_object_release(found, count);
    return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult weir_guest_cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
                                            unsigned int flags)
{
    struct weir_user_object *found = weir_guest_object_get(WEIR_KIND_USEROBJ, object);
    WEIR_FAIL_IF(!found || !count || (flags & ~(unsigned int)CU_GRAPH_USER_OBJECT_MOVE),
                 CUDA_ERROR_INVALID_VALUE);
    WEIR_FAIL_IF(!weir_guest_object_get(WEIR_KIND_GRAPH, graph), CUDA_ERROR_INVALID_VALUE);
    bool move = flags & CU_GRAPH_USER_OBJECT_MOVE;
    WEIR_FAIL_IF(!move && !retain(found, count), CUDA_ERROR_INVALID_VALUE);
    struct weir_graph_set *set = weir_graph_set_of((uintptr_t)graph);
    if (!set || !weir_graph_set_user_object(set, found, count)) {
        if (!move) {
            (void)weir_user_object_release(found, count);
        }
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

CUresult weir_guest_cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count)
{
    struct weir_user_object *found = weir_guest_object_get(WEIR_KIND_USEROBJ, object);
    struct weir_graph_set *set = weir_graph_set_find((uintptr_t)graph);
    if (!found || !set || !count || !weir_graph_set_user_object(set, found, -(int64_t)count)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return weir_user_object_release(found, count) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---------------------------------------------------------------- copies */

/* Find where one side of a CUDA_MEMCPY3D begins, and its geometry. */
static CUresult read_side(CUmemorytype type, const void *host, CUdeviceptr device, CUarray array,
                          uint64_t extent, struct weir_guest_copy_side *side)
{
    uint64_t address = type == CU_MEMORYTYPE_HOST ? (uintptr_t)host : device;
    if (type == CU_MEMORYTYPE_ARRAY) {
        side->kind = WEIR_COPY_ARRAY;
        side->address = (uintptr_t)array;
        side->on_device = true;
        return CUDA_SUCCESS;
    }
    if (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE &&
        type != CU_MEMORYTYPE_UNIFIED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct weir_guest_copy_side found = {.kind = WEIR_COPY_GPU};
    (void)weir_register_reach(address); /* otherwise the graph copies the memory as pageable */
    WEIR_TRY(weir_copy_classify(address, extent, &found));
    side->kind = found.kind;
    side->address = found.address;
    side->on_device = found.on_device;
    return CUDA_SUCCESS;
}

/* Bytes from the first to the last one that a pitched side touches. */
static uint64_t extent_of(const struct weir_guest_copy_side *side,
                          const struct weir_graph_copy *copy)
{
    uint64_t pitch = side->pitch ? side->pitch : copy->width;
    uint64_t rows = side->height ? side->height : copy->height;
    return (side->z + copy->depth - 1) * rows * pitch + (side->y + copy->height - 1) * pitch +
           side->x + copy->width;
}

static CUresult stage(struct weir_guest_ctx *ctx, struct weir_graph_copy *copy,
                      struct weir_guest_copy_side *side, bool to_gpu)
{
    uint64_t pitch = side->pitch ? side->pitch : copy->width;
    uint64_t rows = side->height ? side->height : copy->height;
    copy->pageable = true;
    copy->host = (struct weir_stream_capture_copy){
        .to_gpu = to_gpu,
        .host = (uint8_t *)(uintptr_t)side->address + side->z * rows * pitch + side->y * pitch +
                side->x,
        .row_bytes = copy->width,
        .host_pitch = pitch,
        .host_slice = rows * pitch,
        .n_rows = copy->height,
        .n_slices = copy->depth,
    };
    WEIR_TRY(
        weir_graph_block_take(ctx, copy->width * copy->height * copy->depth, &copy->host.block));
    weir_graph_block_side(&copy->host.block, copy->width, copy->height, side);
    return CUDA_SUCCESS;
}

CUresult weir_graph_copy_read(struct weir_guest_ctx *ctx, const CUDA_MEMCPY3D *p,
                              struct weir_graph_copy *ret_copy)
{
    struct weir_graph_copy copy = {
        .width = p->WidthInBytes, .height = p->Height, .depth = p->Depth};
    copy.src = (struct weir_guest_copy_side){.x = p->srcXInBytes,
                                             .y = p->srcY,
                                             .z = p->srcZ,
                                             .lod = p->srcLOD,
                                             .pitch = p->srcPitch,
                                             .height = p->srcHeight};
    copy.dst = (struct weir_guest_copy_side){.x = p->dstXInBytes,
                                             .y = p->dstY,
                                             .z = p->dstZ,
                                             .lod = p->dstLOD,
                                             .pitch = p->dstPitch,
                                             .height = p->dstHeight};
    WEIR_FAIL_IF(!copy.width || !copy.height || !copy.depth, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(read_side(p->srcMemoryType, p->srcHost, p->srcDevice, p->srcArray,
                       extent_of(&copy.src, &copy), &copy.src));
    WEIR_TRY(read_side(p->dstMemoryType, p->dstHost, p->dstDevice, p->dstArray,
                       extent_of(&copy.dst, &copy), &copy.dst));
    bool from_host = copy.src.kind == WEIR_COPY_PAGEABLE;
    bool to_host = copy.dst.kind == WEIR_COPY_PAGEABLE;
    WEIR_FAIL_IF(from_host && to_host, CUDA_ERROR_NOT_SUPPORTED);
    if (from_host || to_host) {
        WEIR_TRY(stage(ctx, &copy, from_host ? &copy.src : &copy.dst, from_host));
    }
    *ret_copy = copy;
    return CUDA_SUCCESS;
}
