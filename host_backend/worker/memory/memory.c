#include "host_backend/worker/memory/memory.h"
#include "host_backend/worker/memory/access.h"

#include "host_backend/worker/memory/chunk.h"
#include "host_backend/worker/memory/holdings.h"
#include "host_backend/worker/memory/vmm.h"
#include "host_backend/worker/state/hooks.h"
#include "proto/wire/session_api.h"
#include <stdlib.h>
#include <string.h>

struct weir_holdings *weir_holdings_create(void)
{
    return calloc(1, sizeof(struct weir_holdings));
}

void weir_holdings_destroy(struct weir_holdings *holdings)
{
    if (holdings) {
        weir_host_range_finish(&holdings->ranges);
        weir_host_range_finish(&holdings->registered);
        free(holdings);
    }
}

/* ------------------------------------------------------------- memory that the session may name */

enum weir_status weir_session_admit(struct weir_session *session, uint64_t address, uint64_t bytes,
                                    const void *owner)
{
    return weir_host_range_add(&session->holdings->ranges, address, bytes, owner);
}

void weir_session_unadmit(struct weir_session *session, const void *owner)
{
    weir_host_range_remove(&session->holdings->ranges, owner);
}

void weir_session_unadmit_at(struct weir_session *session, uint64_t address, const void *owner)
{
    weir_host_range_remove_at(&session->holdings->ranges, address, owner);
}

static CUresult check_named(const struct weir_session *session, uint64_t address, uint64_t bytes)
{
    return weir_host_range_covers(&session->holdings->ranges, address, bytes)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

/* Note a range for the book, which finds out later whether the session still has it. */
static CUresult note_range(struct weir_session *session, uint64_t address, uint64_t bytes,
                           bool writes)
{
    struct weir_operation *op = &session->op;

    if ((op->n_ranges & (op->n_ranges - 1)) == 0) { /* the room is a power of 2 */
        struct weir_named_range *more =
            weir_session_alloc(session, (2 * op->n_ranges + 1u) * sizeof *more);

        WEIR_FAIL_IF(!more, CUDA_ERROR_OUT_OF_MEMORY);
        if (op->n_ranges != 0) {
            memcpy(more, op->ranges, op->n_ranges * sizeof *more);
        }
        op->ranges = more;
    }
    op->ranges[op->n_ranges++] = (struct weir_named_range){address, bytes, writes};
    return CUDA_SUCCESS;
}

CUresult weir_session_check_dptr(struct weir_session *session, uint64_t address, uint64_t bytes)
{
    WEIR_TRY(check_named(session, address, bytes));
    return session->op.notes_ranges ? note_range(session, address, bytes, false) : CUDA_SUCCESS;
}

/* Is any of this memory read-only? A write there would end the context of all tenants, as one to
 * read-only mappings would. */
static bool touches_read_only(const struct weir_session *session, uint64_t address, uint64_t bytes)
{
    const struct weir_range_set *set = &session->holdings->registered;

    for (size_t i = 0; i < set->n && session->holdings->n_read_only != 0; i++) {
        const struct weir_registration *r = set->ranges[i].owner;

        if (r->read_only && address < r->device + r->bytes && r->device < address + bytes) {
            return true;
        }
    }
    return weir_vmm_touches_read_only(&session->holdings->vmm, address, bytes);
}

CUresult weir_session_check_write(struct weir_session *session, uint64_t address, uint64_t bytes)
{
    if (__builtin_expect(session->exposures != NULL, 0)) {
        weir_worker_hooks(session->worker)->will_write(session, address, bytes);
    }
    WEIR_FAIL_IF(touches_read_only(session, address, bytes), CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(check_named(session, address, bytes));
    return session->op.notes_ranges ? note_range(session, address, bytes, true) : CUDA_SUCCESS;
}

CUresult weir_session_check_range(struct weir_session *session,
                                  const struct weir_named_range *range)
{
    return range->writes && touches_read_only(session, range->address, range->bytes)
               ? CUDA_ERROR_INVALID_VALUE
               : check_named(session, range->address, range->bytes);
}

bool weir_session_registered(const struct weir_session *session, uint64_t address)
{
    return weir_host_range_find(&session->holdings->registered, address) != NULL;
}

bool weir_session_awaited_place(struct weir_session *session, uint64_t address, uint64_t bytes,
                                bool *ret_here)
{
    *ret_here = weir_session_registered(session, address);
    return weir_session_check_dptr(session, address, bytes) == CUDA_SUCCESS &&
           weir_session_vmm_make_writable(session, address, bytes);
}

void weir_session_memory_reach(struct weir_session *session, uint32_t device)
{
    const struct weir_vmm_book *vmm = &session->holdings->vmm;

    for (const struct weir_grant *g = session->holdings->grants; g; g = g->next) {
        weir_chunk_reach(session, g->chunk, 1u << device);
    }
    for (size_t i = 0; i < vmm->n_maps; i++) {
        const struct weir_session_vmm_map *map = &vmm->maps[i];

        if (map->access != CU_MEM_ACCESS_FLAGS_PROT_NONE && !map->alloc->on_host) {
            weir_memory_reach(session->worker, map->alloc->device, 1u << device, map->base,
                              map->bytes, (CUmemAccess_flags)map->access);
        }
    }
}
