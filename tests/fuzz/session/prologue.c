/* What most programs begin with, so that a fuzzer need not find it out. */
#include "tests/fuzz/session/guest.h"

#include "proto/wire/op_kinds.h"
#include <string.h>

#define CHUNK_BYTES (2u << 20)

#define PIECE_NODES 4 /* kernels of the graph of GUEST_PIECES, in slots 4 to 7 */

#define CONTEXT  guest_name(guest, WEIR_KIND_CONTEXT, 0)
#define GRAPH    guest_name(guest, WEIR_KIND_GRAPH, 0)
#define NODE(at) guest_name(guest, WEIR_KIND_NODE, (at))

static uint32_t length(const struct guest *guest)
{
    return guest->options >> GUEST_LENGTH & 15;
}

static uint32_t image_index(const struct guest *guest)
{
    return length(guest) == GUEST_PIECES ? GUEST_QUIET_IMAGE : 0;
}

typedef enum weir_op (*step_fn)(struct guest *guest, union weir_op_any_in *m);

static enum weir_op context(struct guest *guest, union weir_op_any_in *m)
{
    m->ctx_create.c = CONTEXT;
    m->ctx_create.legacy = guest_name(guest, WEIR_KIND_STREAM, 0);
    m->ctx_create.legacy_word = 1;
    return WEIR_OP_ctx_create;
}

static enum weir_op memory(struct guest *guest, union weir_op_any_in *m)
{
    m->mem_grant.c = CONTEXT;
    m->mem_grant.bytes = CHUNK_BYTES;
    m->mem_grant.kind = WEIR_GRANT_DEVICE;
    return WEIR_OP_mem_grant;
}

static enum weir_op pinned(struct guest *guest, union weir_op_any_in *m)
{
    (void)memory(guest, m);
    m->mem_grant.kind = WEIR_GRANT_PINNED;
    return WEIR_OP_mem_grant;
}

static enum weir_op stream(struct guest *guest, union weir_op_any_in *m)
{
    m->stream_create.s = guest_name(guest, WEIR_KIND_STREAM, 1);
    m->stream_create.c = CONTEXT;
    m->stream_create.word = 2;
    return WEIR_OP_stream_create;
}

static enum weir_op event(struct guest *guest, union weir_op_any_in *m)
{
    m->event_create.e = guest_name(guest, WEIR_KIND_EVENT, 0);
    m->event_create.c = CONTEXT;
    return WEIR_OP_event_create;
}

static enum weir_op image(struct guest *guest, union weir_op_any_in *m)
{
    guest_upload(guest, image_index(guest), &m->image_put);
    return WEIR_OP_image_put;
}

static enum weir_op module(struct guest *guest, union weir_op_any_in *m)
{
    const struct guest_image *kernels = guest_image(image_index(guest));

    m->module_load.m = guest_name(guest, WEIR_KIND_MODULE, 0);
    m->module_load.c = CONTEXT;
    memcpy(m->module_load.hash, kernels->hash, sizeof kernels->hash);
    m->module_load.bytes = kernels->bytes;
    m->module_load.kind = WEIR_IMAGE_PLAIN;
    m->module_load.want_logs = 1;
    return WEIR_OP_module_load;
}

static enum weir_op function(struct guest *guest, union weir_op_any_in *m, uint32_t slot)
{
    m->module_function.m = guest_name(guest, WEIR_KIND_MODULE, 0);
    m->module_function.f = guest_name(guest, WEIR_KIND_FUNCTION, slot);
    m->module_function.name = guest_symbol(slot);
    return WEIR_OP_module_function;
}

static enum weir_op nothing(struct guest *guest, union weir_op_any_in *m)
{
    return function(guest, m, 0);
}

static enum weir_op store(struct guest *guest, union weir_op_any_in *m)
{
    return function(guest, m, 1);
}

static enum weir_op count(struct guest *guest, union weir_op_any_in *m)
{
    return function(guest, m, 2);
}

static enum weir_op talk(struct guest *guest, union weir_op_any_in *m)
{
    return function(guest, m, 3);
}

static const step_fn usual[] = {context, memory,  pinned, stream, event, image,
                                module,  nothing, store,  count,  talk};
#define N_USUAL (sizeof usual / sizeof usual[0])

/* ---------------------------------------------------------------- sets */

static enum weir_op reserve(struct guest *guest, union weir_op_any_in *m)
{
    (void)guest;
    m->vmm_reserve.bytes = 2 * CHUNK_BYTES;
    return WEIR_OP_vmm_reserve;
}

static enum weir_op create(struct guest *guest, union weir_op_any_in *m)
{
    m->vmm_create.h = guest_name(guest, WEIR_KIND_CHUNK, 0);
    m->vmm_create.bytes = CHUNK_BYTES;
    m->vmm_create.handle_types = 1;
    return WEIR_OP_vmm_create;
}

/* What was reserved is the newest address. */
static enum weir_op map(struct guest *guest, union weir_op_any_in *m)
{
    m->vmm_map.address = guest->addresses[(guest->n_addresses - 1) % GUEST_ADDRESSES];
    m->vmm_map.bytes = CHUNK_BYTES;
    m->vmm_map.h = guest_name(guest, WEIR_KIND_CHUNK, 0);
    return WEIR_OP_vmm_map;
}

static enum weir_op allow(struct guest *guest, union weir_op_any_in *m)
{
    m->vmm_access.address = guest->addresses[(guest->n_addresses - 1) % GUEST_ADDRESSES];
    m->vmm_access.bytes = CHUNK_BYTES;
    m->vmm_access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return WEIR_OP_vmm_access;
}

static enum weir_op array(struct guest *guest, union weir_op_any_in *m)
{
    m->array_create.c = CONTEXT;
    m->array_create.a = guest_name(guest, WEIR_KIND_ARRAY, 0);
    m->array_create.desc = (CUDA_ARRAY3D_DESCRIPTOR){16, 16, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0};
    return WEIR_OP_array_create;
}

static enum weir_op graph(struct guest *guest, union weir_op_any_in *m)
{
    m->cuGraphCreate.phGraph = GRAPH;
    return WEIR_OP_cuGraphCreate;
}

static enum weir_op kernel_node(struct guest *guest, union weir_op_any_in *m)
{
    m->graph_add_kernel.g = GRAPH;
    m->graph_add_kernel.n = NODE(0);
    m->graph_add_kernel.f = guest_name(guest, WEIR_KIND_FUNCTION, 0);
    for (int i = 0; i < 3; i++) {
        m->graph_add_kernel.grid[i] = m->graph_add_kernel.block[i] = 1;
    }
    return WEIR_OP_graph_add_kernel;
}

static enum weir_op host_node(struct guest *guest, union weir_op_any_in *m)
{
    m->graph_add_host.g = GRAPH;
    m->graph_add_host.n = NODE(1);
    return WEIR_OP_graph_add_host;
}

static enum weir_op executable(struct guest *guest, union weir_op_any_in *m)
{
    m->graph_instantiate.x = guest_name(guest, WEIR_KIND_EXEC, 0);
    m->graph_instantiate.g = GRAPH;
    return WEIR_OP_graph_instantiate;
}

static enum weir_op capture(struct guest *guest, union weir_op_any_in *m)
{
    m->capture_begin.s = guest_name(guest, WEIR_KIND_STREAM, 1);
    m->capture_begin.mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    return WEIR_OP_capture_begin;
}

static enum weir_op second_context(struct guest *guest, union weir_op_any_in *m)
{
    m->ctx_create.c = guest_name(guest, WEIR_KIND_CONTEXT, 1);
    m->ctx_create.legacy = guest_name(guest, WEIR_KIND_STREAM, 2);
    m->ctx_create.legacy_word = 4;
    m->ctx_create.device = 1;
    return WEIR_OP_ctx_create;
}

static enum weir_op library(struct guest *guest, union weir_op_any_in *m)
{
    const struct guest_image *kernels = guest_image(0);

    m->library_load.l = guest_name(guest, WEIR_KIND_LIBRARY, 0);
    memcpy(m->library_load.hash, kernels->hash, sizeof kernels->hash);
    m->library_load.bytes = kernels->bytes;
    m->library_load.kind = WEIR_IMAGE_PLAIN;
    return WEIR_OP_library_load;
}

static enum weir_op kernel(struct guest *guest, union weir_op_any_in *m)
{
    m->library_kernel.l = guest_name(guest, WEIR_KIND_LIBRARY, 0);
    m->library_kernel.f = guest_name(guest, WEIR_KIND_FUNCTION, 4);
    m->library_kernel.name = guest_symbol(2);
    return WEIR_OP_library_kernel;
}

static enum weir_op global(struct guest *guest, union weir_op_any_in *m)
{
    m->module_global.m = guest_name(guest, WEIR_KIND_MODULE, 0);
    m->module_global.name = "buffer";
    return WEIR_OP_module_global;
}

static enum weir_op context_gone(struct guest *guest, union weir_op_any_in *m)
{
    m->ctx_destroy.c = CONTEXT;
    return WEIR_OP_ctx_destroy;
}

/* A graph of kernels: one, two behind it that may run side by side, and one behind those. */
static enum weir_op plain_graph(struct guest *guest, union weir_op_any_in *m)
{
    m->cuGraphCreate.phGraph = guest_name(guest, WEIR_KIND_GRAPH, 1);
    return WEIR_OP_cuGraphCreate;
}

static enum weir_op plain_node(struct guest *guest, union weir_op_any_in *m, uint32_t at,
                               uint32_t first, uint32_t behind)
{
    static uint64_t dependencies[PIECE_NODES];

    m->graph_add_kernel.g = guest_name(guest, WEIR_KIND_GRAPH, 1);
    m->graph_add_kernel.n = NODE(PIECE_NODES + at);
    m->graph_add_kernel.f = guest_name(guest, WEIR_KIND_FUNCTION, at % 2 * 2);
    for (uint32_t i = first; i < behind; i++) {
        dependencies[m->graph_add_kernel.n_dependencies++] = NODE(PIECE_NODES + i);
    }
    m->graph_add_kernel.dependencies = dependencies;
    for (int i = 0; i < 3; i++) {
        m->graph_add_kernel.grid[i] = m->graph_add_kernel.block[i] = 1;
    }
    return WEIR_OP_graph_add_kernel;
}

static enum weir_op first_node(struct guest *guest, union weir_op_any_in *m)
{
    return plain_node(guest, m, 0, 0, 0);
}

static enum weir_op left_node(struct guest *guest, union weir_op_any_in *m)
{
    return plain_node(guest, m, 1, 0, 1);
}

static enum weir_op right_node(struct guest *guest, union weir_op_any_in *m)
{
    return plain_node(guest, m, 2, 0, 1);
}

static enum weir_op last_node(struct guest *guest, union weir_op_any_in *m)
{
    return plain_node(guest, m, 3, 1, 3);
}

static enum weir_op plain_executable(struct guest *guest, union weir_op_any_in *m)
{
    m->graph_instantiate.x = guest_name(guest, WEIR_KIND_EXEC, 1);
    m->graph_instantiate.g = guest_name(guest, WEIR_KIND_GRAPH, 1);
    return WEIR_OP_graph_instantiate;
}

static enum weir_op launch(struct guest *guest, union weir_op_any_in *m)
{
    m->graph_launch.x = guest_name(guest, WEIR_KIND_EXEC, 1);
    m->graph_launch.s = guest_name(guest, WEIR_KIND_STREAM, 1);
    return WEIR_OP_graph_launch;
}

#define AGAIN  7 /* the set that GUEST_AGAIN asks for */
#define PIECES 8 /* the set that GUEST_PIECES asks for */

/* By bit of the options; a set's steps come in this order. */
static const struct {
    uint32_t set;
    step_fn step;
} sets[] = {{0, reserve},
            {0, create},
            {0, map},
            {0, allow},
            {1, array},
            {2, graph},
            {2, kernel_node},
            {2, host_node},
            {2, executable},
            {3, capture},
            {4, second_context},
            {5, library},
            {5, kernel},
            {6, global},
            {AGAIN, context_gone},
            {AGAIN, context},
            {PIECES, plain_graph},
            {PIECES, first_node},
            {PIECES, left_node},
            {PIECES, right_node},
            {PIECES, last_node},
            {PIECES, plain_executable},
            {PIECES, launch},
            {PIECES, launch},
            {PIECES, launch}};
#define N_SETS (sizeof sets / sizeof sets[0])

static bool has_set(const struct guest *guest, uint32_t set)
{
    if (set == AGAIN || set == PIECES) {
        return length(guest) == (set == AGAIN ? GUEST_AGAIN : GUEST_PIECES);
    }
    return (guest->options >> GUEST_SETS >> set & 1) != 0;
}

bool guest_prologue(struct guest *guest, enum weir_op *ret_op, union weir_op_any_in *message)
{
    uint32_t last = length(guest);

    memset(message, 0, sizeof *message);
    if (guest->prologue < N_USUAL && guest->prologue < last) {
        *ret_op = usual[guest->prologue++](guest, message);
        return true;
    }
    guest->prologue = guest->prologue < N_USUAL ? N_USUAL : guest->prologue;
    while (guest->prologue < N_USUAL + N_SETS) {
        uint32_t i = guest->prologue++ - N_USUAL;

        if (has_set(guest, sets[i].set)) {
            *ret_op = sets[i].step(guest, message);
            return true;
        }
    }
    return false;
}
