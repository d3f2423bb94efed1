/* The device's side of a managed chunk: see pieces.h. */
#include "host_backend/worker/memory/pieces.h"
#include "host_backend/worker/memory/access.h"

#include "host_backend/worker/state/limits.h"
#include "host_backend/worker/state/platform.h"
#include "host_backend/worker/state/tenant.h"
#include <stdlib.h>
#include <string.h>

/* Kernels' local memory, modules and the like need memory, too, which the driver takes for itself:
 * pieces leave this part of a device free (an H200: 560 MiB). */
#define DRIVER_PART 256

static struct weir_amounts cost_of(const struct weir_session *session, uint32_t device,
                                   uint64_t bytes, bool on_host)
{
    struct weir_amounts cost =
        weir_device_memory_cost(session->worker, device, on_host ? 0 : bytes);

    cost.of[WEIR_ACCOUNT_PINNED_MEMORY] = on_host ? bytes : 0;
    return cost;
}

static CUmemLocation host_location(const struct weir_session *session, uint32_t device)
{
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA};
    int node = 0;

    if (session->driver->cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID,
                                              session->platform->devices[device].cu) ==
            CUDA_SUCCESS &&
        node > 0) {
        location.id = node;
    }
    return location;
}

static bool has_room(const struct weir_session *session, uint64_t bytes)
{
    size_t free_bytes, total_bytes;

    return session->driver->cuMemGetInfo_v2(&free_bytes, &total_bytes) == CUDA_SUCCESS &&
           free_bytes >= bytes + total_bytes / DRIVER_PART;
}

static CUresult create(const struct weir_session *session, uint32_t device, uint64_t bytes,
                       struct weir_backing *backing)
{
    CUmemAllocationProp prop;

    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    if (backing->on_host) {
        prop.location = host_location(session, device);
    } else if (has_room(session, bytes)) {
        prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        prop.location.id = session->platform->devices[device].cu;
    } else {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return session->driver->cuMemCreate(&backing->memory, bytes, &prop, 0);
}

CUresult weir_backing_make(struct weir_session *session, uint32_t device, uint64_t bytes,
                           bool on_host, struct weir_backing *ret_backing)
{
    const struct weir_amounts cost = cost_of(session, device, bytes, on_host);
    struct weir_backing backing = {.on_host = on_host};
    struct weir_account *account = &session->tenant->account;
    enum weir_account_item refused;

    if ((!on_host && weir_session_device_left(session, device) < bytes) ||
        !weir_account_charge_all(account, &cost, &refused)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = create(session, device, bytes, &backing);
    if (result != CUDA_SUCCESS) {
        weir_account_release_all(account, &cost);
        return result;
    }
    if (on_host) {
        weir_session_pins(session, bytes);
    } else {
        weir_session_hold(session, device, bytes);
    }
    *ret_backing = backing;
    return CUDA_SUCCESS;
}

void weir_backing_drop(struct weir_session *session, uint32_t device, uint64_t bytes,
                       struct weir_backing backing)
{
    const struct weir_amounts cost = cost_of(session, device, bytes, backing.on_host);

    (void)session->driver->cuMemRelease(backing.memory);
    weir_account_release_all(&session->tenant->account, &cost);
    if (backing.on_host) {
        weir_session_unpins(session, bytes);
    } else {
        weir_session_let_go(session, device, bytes);
    }
}

CUresult weir_backing_map(struct weir_session *session, uint32_t device, uint64_t at,
                          uint64_t bytes, struct weir_backing backing)
{
    const CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

    WEIR_TRY(session->driver->cuMemMap(at, bytes, 0, backing.memory, 0));
    CUresult result =
        weir_memory_access(session->worker, device, session->devices.used, at, bytes, flags);
    if (result == CUDA_SUCCESS && backing.on_host) {
        /* Give this process access: the driver may copy between places of the host here. */
        const CUmemAccessDesc here = {host_location(session, device), flags};

        result = session->driver->cuMemSetAccess(at, bytes, &here, 1);
    }
    if (result != CUDA_SUCCESS) {
        (void)session->driver->cuMemUnmap(at, bytes);
    }
    return result;
}

/* ---------------------------------------------------------------- all pieces of a chunk */

/* Make a piece, which is zero once the stream's work is done. */
static CUresult make_piece(struct weir_session *session, struct weir_host_chunk *chunk, uint32_t i,
                           CUstream stream)
{
    uint64_t at = chunk->base + i * WEIR_PIECE_BYTES, bytes = weir_piece_bytes(chunk, i);
    struct weir_backing backing;
    CUresult result = weir_backing_make(session, chunk->device, bytes, false, &backing);

    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        result = weir_backing_make(session, chunk->device, bytes, true, &backing);
    }
    WEIR_TRY(result);
    result = weir_backing_map(session, chunk->device, at, bytes, backing);
    if (result != CUDA_SUCCESS) {
        weir_backing_drop(session, chunk->device, bytes, backing);
        return result;
    }
    chunk->pieces[i].now = backing;
    if (backing.on_host) {
        weir_session_lacks_room(session, (int64_t)bytes);
    }
    return session->driver->cuMemsetD8Async(at, 0, bytes, stream);
}

CUresult weir_pieces_make(struct weir_session *session, struct weir_host_chunk *chunk,
                          CUstream stream)
{
    CUresult result = CUDA_SUCCESS, cleared;

    chunk->pieces = calloc(chunk->bytes / WEIR_PIECE_BYTES + 1, sizeof *chunk->pieces);
    WEIR_FAIL_IF(!chunk->pieces, CUDA_ERROR_OUT_OF_MEMORY);
    for (uint32_t i = 0; i < weir_pieces_count(chunk) && result == CUDA_SUCCESS; i++) {
        result = make_piece(session, chunk, i, stream);
    }
    cleared = weir_memory_cleared(session->driver, stream);
    result = result == CUDA_SUCCESS ? cleared : result;
    if (result != CUDA_SUCCESS) {
        weir_pieces_drop(session, chunk);
    }
    return result;
}

void weir_pieces_drop(struct weir_session *session, struct weir_host_chunk *chunk)
{
    for (uint32_t i = 0; i < weir_pieces_count(chunk); i++) {
        uint64_t bytes = weir_piece_bytes(chunk, i);
        struct weir_backing backing = chunk->pieces[i].now;

        if (backing.memory != 0) {
            (void)session->driver->cuMemUnmap(chunk->base + i * WEIR_PIECE_BYTES, bytes);
            if (backing.on_host) {
                weir_session_lacks_room(session, -(int64_t)bytes);
            }
            weir_backing_drop(session, chunk->device, bytes, backing);
        }
    }
    free(chunk->pieces);
    chunk->pieces = NULL;
}
