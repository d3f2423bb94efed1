/*
 * A session's objects.
 *
 * A node must be known to belong to its graph: it is destroyed with the graph, and a destroyed
 * CUgraphNode would crash the driver. The handlers of nodes do not tell the graph, but every
 * operation first names its graph, or a node of it; op.first remembers that.
 */
#include "host_backend/worker/session/objects.h"

#include "base/clock.h"
#include "base/log.h"
#include "host_backend/worker/code/images.h"
#include "host_backend/worker/code/variables.h"
#include "host_backend/worker/device/device_idle.h"
#include "host_backend/worker/device/order.h"
#include "host_backend/worker/device/prints.h"
#include "host_backend/worker/device/put_off.h"
#include "host_backend/worker/memory/ipc.h"
#include "host_backend/worker/memory/managed.h"
#include "host_backend/worker/memory/memory.h"
#include "host_backend/worker/memory/vmm.h"
#include "host_backend/worker/session/arrays.h"
#include "host_backend/worker/session/book.h"
#include "host_backend/worker/session/capture.h"
#include "host_backend/worker/session/conditions.h"
#include "host_backend/worker/session/graph_holds.h"
#include "host_backend/worker/session/graph_nesting.h"
#include "host_backend/worker/state/about.h"
#include "host_backend/worker/state/handles.h"
#include "host_backend/worker/state/hooks.h"
#include "host_backend/worker/state/tenant.h"
#include "host_backend/worker/state/worker.h"
#include "proto/ops.h"
#include <stdlib.h>
#include <string.h>

#define DESTROY_WAIT_NS (10 * WEIR_NS_PER_S)

/* Most objects of a kind that one session may have. */
static uint32_t capacity(int kind)
{
    switch (kind) {
    case WEIR_KIND_CONTEXT:
        return 1024;
    case WEIR_KIND_STREAM:
        return 16384;
    case WEIR_KIND_NODE:
    case WEIR_KIND_EVENT:
    case WEIR_KIND_FUNCTION:
        return 1u << 20;
    default:
        return 65536;
    }
}

struct weir_handles *weir_handles_create(void)
{
    struct weir_handles *h = calloc(1, sizeof *h);

    for (int kind = 1; h && kind < WEIR_KIND_COUNT; kind++) {
        if (weir_id_table_create((uint8_t)kind, true, capacity(kind), &h->tables[kind]) !=
            WEIR_OK) {
            weir_handles_destroy(h);
            return NULL;
        }
    }
    return h;
}

void weir_handles_destroy(struct weir_handles *handles)
{
    if (!handles) {
        return;
    }
    for (int kind = 1; kind < WEIR_KIND_COUNT; kind++) {
        weir_id_table_destroy(handles->tables[kind]);
    }
    weir_native_finish(&handles->natives);
    free(handles);
}

static struct weir_object *make(const struct weir_session *session, enum weir_kind kind,
                                size_t bytes, void *native, struct weir_host_ctx *ctx)
{
    struct weir_object *o = calloc(1, bytes);

    if (o) {
        o->kind = (uint8_t)kind;
        o->device = (uint8_t)session->device;
        o->native = native;
        o->ctx = ctx;
    }
    return o;
}

/* @param status  result of naming the object, which is freed if that failed. */
static CUresult enter(struct weir_session *session, struct weir_object *o, enum weir_status status,
                      struct weir_object **ret_object)
{
    if (status != WEIR_OK) {
        free(o);
        return status == WEIR_ERR_NO_MEMORY || status == WEIR_ERR_QUOTA ? CUDA_ERROR_OUT_OF_MEMORY
                                                                        : CUDA_ERROR_INVALID_HANDLE;
    }
    /* After two look-ups of a kernel two objects have one native handle: it finds the first. */
    if (o->native && weir_native_add(&session->handles->natives, o) == WEIR_ERR_NO_MEMORY) {
        (void)weir_id_table_remove(session->handles->tables[o->kind], o->handle);
        free(o);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    atomic_fetch_add(&session->about->objects, 1);
    atomic_fetch_add(&session->worker->counts.objects, 1);
    *ret_object = o;
    return CUDA_SUCCESS;
}

CUresult weir_host_object_create(struct weir_session *session, enum weir_kind kind, size_t bytes,
                                 uint64_t handle, void *native, struct weir_host_ctx *ctx,
                                 struct weir_object **ret_object)
{
    struct weir_object *o = make(session, kind, bytes, native, ctx);

    WEIR_FAIL_IF(!o, CUDA_ERROR_OUT_OF_MEMORY);
    o->handle = handle;
    return enter(session, o, weir_id_table_put(session->handles->tables[kind], handle, o),
                 ret_object);
}

CUresult weir_host_object_create_own(struct weir_session *session, enum weir_kind kind,
                                     size_t bytes, void *native, struct weir_host_ctx *ctx,
                                     struct weir_object **ret_object)
{
    struct weir_object *o = make(session, kind, bytes, native, ctx);
    struct weir_id_table *table = session->handles->tables[kind];

    WEIR_FAIL_IF(!o, CUDA_ERROR_OUT_OF_MEMORY);
    o->handle = weir_session_book_next_name(session);
    WEIR_TRY(enter(session, o,
                   o->handle != 0 ? weir_id_table_put_own(table, o->handle, o)
                                  : weir_id_table_add(table, o, &o->handle),
                   ret_object));
    weir_session_book_named(session, o->handle);
    return CUDA_SUCCESS;
}

void *weir_host_object_get(struct weir_session *session, enum weir_kind kind, uint64_t handle)
{
    return handle == 0 ? NULL : weir_id_table_get(session->handles->tables[kind], handle);
}

struct weir_object *weir_host_object_find(const struct weir_session *session, enum weir_kind kind,
                                          const void *native)
{
    return weir_native_find(&session->handles->natives, (int)kind, native);
}

CUresult weir_host_object_bind(struct weir_session *session, struct weir_object *object,
                               void *native)
{
    struct weir_account *account = &session->tenant->account;

    object->native = native;
    if (object->charged_bytes != 0 && object->device != session->device) {
        if (!weir_account_charge(account, WEIR_ACCOUNT_OF_DEVICE + session->device,
                                 object->charged_bytes)) {
            return weir_session_over_quota(session, WEIR_ACCOUNT_OF_DEVICE + session->device,
                                           object->charged_bytes);
        }
        weir_account_release(account, WEIR_ACCOUNT_OF_DEVICE + object->device,
                             object->charged_bytes);
        weir_session_let_go(session, object->device, object->charged_bytes);
        weir_session_hold(session, session->device, object->charged_bytes);
    }
    object->device = (uint8_t)session->device;
    return weir_native_add(&session->handles->natives, object) == WEIR_ERR_NO_MEMORY
               ? CUDA_ERROR_OUT_OF_MEMORY
               : CUDA_SUCCESS;
}

void weir_host_object_hide(struct weir_session *session, const struct weir_object *object)
{
    weir_native_remove(&session->handles->natives, object);
}

void weir_host_objects_visit(struct weir_session *session, enum weir_kind kind,
                             void (*visit)(weir_handle handle, void *object, void *user),
                             void *user)
{
    weir_id_table_visit(session->handles->tables[kind], visit, user);
}

void weir_host_objects_visit_kept(struct weir_session *session,
                                  void (*visit)(weir_handle handle, void *object, void *user),
                                  void *user)
{
    for (struct weir_object *o = session->handles->kept; o; o = o->next_kept) {
        visit(o->handle, o, user);
    }
}

struct dependents {
    struct weir_session *session;
    const struct weir_object *owner;
};

static void forget_dependent(weir_handle handle, void *object, void *user)
{
    struct dependents *d = user;

    (void)handle;
    if (((struct weir_object *)object)->owner == d->owner) {
        weir_host_object_forget(d->session, object);
    }
}

static void forget_dependents(struct weir_session *session, const struct weir_object *owner)
{
    struct dependents d = {session, owner};

    switch (owner->kind) {
    case WEIR_KIND_MODULE:
    case WEIR_KIND_LIBRARY:
        weir_id_table_visit(session->handles->tables[WEIR_KIND_FUNCTION], forget_dependent, &d);
        weir_id_table_visit(session->handles->tables[WEIR_KIND_MODULE], forget_dependent, &d);
        break;
    case WEIR_KIND_GRAPH:
        weir_id_table_visit(session->handles->tables[WEIR_KIND_NODE], forget_dependent, &d);
        weir_id_table_visit(session->handles->tables[WEIR_KIND_GRAPH], forget_dependent, &d);
        break;
    case WEIR_KIND_NODE:
        weir_id_table_visit(session->handles->tables[WEIR_KIND_GRAPH], forget_dependent, &d);
        break;
    case WEIR_KIND_MIPMAP:
        weir_id_table_visit(session->handles->tables[WEIR_KIND_ARRAY], forget_dependent, &d);
        break;
    default:
        break;
    }
}

static bool is_code(const struct weir_object *o)
{
    return o->kind == WEIR_KIND_MODULE || o->kind == WEIR_KIND_LIBRARY;
}

/* The driver's object is gone: release what the object used and its charge, and free it. */
static void finish(struct weir_session *session, struct weir_object *o)
{
    if (is_code(o)) {
        struct weir_host_module *m = (struct weir_host_module *)o;

        weir_image_put(&session->tenant->images, m->image);
        weir_variables_forget(m);
        free(m->options);
    }
    if ((o->kind == WEIR_KIND_ARRAY || o->kind == WEIR_KIND_MIPMAP) && !o->borrowed) {
        weir_array_drop_copy((struct weir_host_array *)o);
    }
    if (o->charged_bytes != 0) {
        weir_tenant_release(session->tenant, o->device, o->charged_bytes);
        weir_session_let_go(session, o->device, o->charged_bytes);
    }
    weir_graph_holds_drop(session, o);
    free(o);
}

/* Release the object's parts besides the driver's handle. */
static void release_parts(struct weir_session *session, struct weir_object *o)
{
    if (is_code(o)) {
        weir_managed_remove_variables(session, o);
        weir_session_unadmit(session, o);
    }
    if (o->kind == WEIR_KIND_FUNCTION) {
        free(((struct weir_host_function *)o)->name);
        free(((struct weir_host_function *)o)->elsewhere);
    }
    if (o->kind == WEIR_KIND_GRAPH) {
        weir_conditions_graph_gone(session, o);
        session->handles->graphs_gone++;
    }
    if (o->kind == WEIR_KIND_NODE) {
        weir_graph_nest_node_gone(o);
    }
    if (o->kind == WEIR_KIND_EXEC) {
        weir_exec_gone(session->driver, (struct weir_exec *)o);
    }
    if (o->kind == WEIR_KIND_STREAM && o->ctx) {
        struct weir_host_stream **at = &o->ctx->streams;

        while (*at && &(*at)->o != o) {
            at = &(*at)->next;
        }
        if (*at) {
            *at = (*at)->next;
        }
        if (o->ctx->legacy == (struct weir_host_stream *)o) {
            o->ctx->legacy = NULL;
        }
    }
}

/* Take the object out of the guest's names, without freeing it. */
static void take_out(struct weir_session *session, struct weir_object *object)
{
    forget_dependents(session, object);
    (void)weir_id_table_remove(session->handles->tables[object->kind], object->handle);
    weir_native_remove(&session->handles->natives, object);
    if (session->devices.book) {
        weir_session_book_forget(session, object);
    }
    release_parts(session, object);
    if (session->op.first == object) {
        session->op.first = NULL;
    }
    if (session->op.last == object) {
        session->op.last = NULL;
    }
    atomic_fetch_sub(&session->about->objects, 1);
    atomic_fetch_sub(&session->worker->counts.objects, 1);
}

void weir_host_object_forget(struct weir_session *session, struct weir_object *object)
{
    take_out(session, object);
    finish(session, object);
}

static CUresult destroy_stream(struct weir_session *session, struct weir_host_stream *s)
{
    const struct weir_driver *driver = session->driver;

    if (s->capturing) {
        weir_capture_abandon(session, s);
    }
    weir_awaited_stream_gone(session, s); /* asks whether the stream is captured */
    weir_fault_stream_gone(session, s);
    weir_admission_stream_gone(session, s);
    weir_prints_forget(session, s->o.native);
    if (!weir_host_stream_capturing(session, s)) {
        (void)weir_order_leave(session, s);
    }
    if (session->worker->hooks) {
        session->worker->hooks->stream_gone(session, s);
    }
    if (s->join) {
        (void)driver->cuEventDestroy_v2(s->join);
    }
    weir_part_stream_gone(driver, s);
    return driver->cuStreamDestroy_v2(s->o.native);
}

/* The last reference to a shared event destroys the event. */
static CUresult destroy_event(struct weir_session *session, struct weir_host_event *e)
{
    return e->shared ? weir_ipc_event_put(session, e->shared)
                     : session->driver->cuEventDestroy_v2(e->o.native);
}

/* Destroy an object that has only the driver's handle. */
static CUresult destroy_handle(const struct weir_driver *driver, int kind, void *native)
{
    switch (kind) {
    case WEIR_KIND_MODULE:
        return driver->cuModuleUnload(native);
    case WEIR_KIND_LIBRARY:
        return driver->cuLibraryUnload(native);
    case WEIR_KIND_GRAPH:
        return driver->cuGraphDestroy(native);
    case WEIR_KIND_EXEC:
        return driver->cuGraphExecDestroy(native);
    case WEIR_KIND_ARRAY:
        return driver->cuArrayDestroy(native);
    case WEIR_KIND_MIPMAP:
        return driver->cuMipmappedArrayDestroy(native);
    case WEIR_KIND_TEXTURE:
        return driver->cuTexObjectDestroy((CUtexObject)(uintptr_t)native);
    case WEIR_KIND_SURFACE:
        return driver->cuSurfObjectDestroy((CUsurfObject)(uintptr_t)native);
    case WEIR_KIND_LINK:
        return driver->cuLinkDestroy(native);
    default: /* functions and nodes are destroyed with their owner */
        return CUDA_SUCCESS;
    }
}

static CUresult destroy_native(struct weir_session *session, struct weir_object *o)
{
    if (o->kind == WEIR_KIND_CHUNK) { /* a handle of shared memory has no native object */
        weir_vmm_handle_drop(session, (struct weir_host_vmm_handle *)o);
    }
    if (!o->native || o->borrowed) {
        return CUDA_SUCCESS;
    }
    (void)weir_session_enter(session, o->device);
    switch (o->kind) {
    case WEIR_KIND_STREAM:
        return destroy_stream(session, (struct weir_host_stream *)o);
    case WEIR_KIND_EVENT:
        return destroy_event(session, (struct weir_host_event *)o);
    default:
        return destroy_handle(session->driver, o->kind, o->native);
    }
}

/* Does the driver wait for the device to destroy the object? */
static bool needs_idle_device(const struct weir_object *o)
{
    return (is_code(o) || o->kind == WEIR_KIND_ARRAY || o->kind == WEIR_KIND_MIPMAP) && o->native &&
           !o->borrowed;
}

static bool is_left_to_its_runs(struct weir_session *session, struct weir_object *o)
{
    const struct weir_session_hooks *hooks = session->worker->hooks;

    return is_code(o) && hooks && hooks->module_unloading(session, (struct weir_host_module *)o);
}

static void destroy_put_off(struct weir_session *session, void *object)
{
    struct weir_object *o = object;

    (void)weir_session_enter(session, o->device);
    (void)destroy_handle(session->driver, o->kind, o->native);
    finish(session, o);
}

/* @param kept  the guest has destroyed the object already */
static CUresult destroy_when_idle(struct weir_session *session, struct weir_object *o, bool kept)
{
    CUresult result = CUDA_SUCCESS;
    uint32_t idle;

    (void)weir_session_enter(session, o->device);
    if (is_code(o)) {
        weir_managed_remove_variables(session, o); /* nobody copies them once they are unloaded */
        weir_session_device_idle(session);
    }
    if (is_left_to_its_runs(session, o)) {
        if (!kept) {
            take_out(session, o);
        }
        finish(session, o);
        return CUDA_SUCCESS;
    }
    if (weir_put_off_begin(session, &idle) == CUDA_SUCCESS) {
        result = destroy_handle(session->driver, o->kind, o->native);
        weir_device_idle_end(session->worker, idle);
        if (!kept) {
            take_out(session, o);
        }
        finish(session, o);
    } else {
        if (!kept) {
            take_out(session, o);
        }
        weir_put_off(session, destroy_put_off, o, 0, 0);
    }
    return result;
}

/* ---------------------------------------------------------------- objects that graphs name */

/* Keep an object that a graph may use. At the session's end nothing is kept, since all its graphs
 * are destroyed. */
static bool keep(struct weir_session *session, struct weir_object *o)
{
    if (!o->hold || !o->native || o->borrowed || weir_session_is_unloading(session) ||
        !weir_graph_holds(session, o)) {
        return false;
    }
    take_out(session, o);
    o->next_kept = session->handles->kept;
    session->handles->kept = o;
    session->handles->n_kept++;
    return true;
}

static void destroy_kept(struct weir_session *session, struct weir_object *o)
{
    if (needs_idle_device(o)) {
        (void)destroy_when_idle(session, o, true);
        return;
    }
    (void)destroy_native(session, o);
    finish(session, o);
}

void weir_host_objects_kept_try(struct weir_session *session)
{
    for (struct weir_object **at = &session->handles->kept, *o; (o = *at);) {
        if (!weir_session_is_unloading(session) && weir_graph_holds(session, o)) {
            at = &o->next_kept;
            continue;
        }
        *at = o->next_kept;
        session->handles->n_kept--;
        destroy_kept(session, o);
    }
}

CUresult weir_host_object_destroy(struct weir_session *session, struct weir_object *object)
{
    CUresult result;

    if (keep(session, object)) {
        return CUDA_SUCCESS;
    }
    if (needs_idle_device(object)) {
        return destroy_when_idle(session, object, false);
    }
    result = destroy_native(session, object);
    weir_host_object_forget(session, object);
    return result;
}

struct sweep {
    struct weir_session *session;
    const struct weir_host_ctx *ctx;
    struct weir_object *found;
};

static void find_one(weir_handle handle, void *object, void *user)
{
    struct sweep *sweep = user;
    struct weir_object *o = object;

    (void)handle;
    if (!sweep->found && (!sweep->ctx || o->ctx == sweep->ctx)) {
        sweep->found = o;
    }
}

static void destroy_one(weir_handle handle, void *object, void *user)
{
    struct sweep *sweep = user;
    struct weir_object *o = object;

    (void)handle;
    if (!sweep->ctx || o->ctx == sweep->ctx) {
        enum weir_kind kind = o->kind;
        CUresult result = weir_host_object_destroy(sweep->session, o);

        if (result != CUDA_SUCCESS) {
            weir_log_debug("session: clean-up session=%llu kind=%s result=%d",
                           (unsigned long long)sweep->session->id, weir_kind_name(kind),
                           (int)result);
        }
    }
}

void weir_host_objects_destroy_all(struct weir_session *session, enum weir_kind kind,
                                   const struct weir_host_ctx *ctx)
{
    struct sweep sweep = {session, ctx, NULL};

    weir_id_table_visit(session->handles->tables[kind], destroy_one, &sweep);
    /* Repeat until nothing is left: a visit may miss objects. */
    do {
        sweep.found = NULL;
        weir_id_table_visit(session->handles->tables[kind], find_one, &sweep);
        if (sweep.found) {
            (void)weir_host_object_destroy(session, sweep.found);
        }
    } while (sweep.found);
}

/* Show the program in lists of processes (ops/nvml.c) while it has a context. */
static void show_program(const struct weir_session *session, bool has_context)
{
    weir_programs_show(session->tenant->programs, session->about->number,
                       has_context ? session->about->guest_pid : 0);
}

void weir_ctx_destroy(struct weir_session *session, struct weir_host_ctx *ctx)
{
    static const enum weir_kind kinds[] = {WEIR_KIND_TEXTURE, WEIR_KIND_SURFACE, WEIR_KIND_ARRAY,
                                           WEIR_KIND_MIPMAP,  WEIR_KIND_LINK,    WEIR_KIND_MODULE,
                                           WEIR_KIND_EVENT,   WEIR_KIND_STREAM};

    if (session->worker->hooks) { /* otherwise the streams would wait for stopped runs */
        session->worker->hooks->streams_end(session);
    }
    (void)weir_session_enter(session, ctx->o.device);
    for (struct weir_host_stream *s = ctx->streams; s; s = s->next) {
        (void)weir_host_stream_wait(session->driver, weir_host_stream_at(s), DESTROY_WAIT_NS);
    }
    for (size_t i = 0; i < WEIR_COUNT(kinds); i++) {
        weir_host_objects_destroy_all(session, kinds[i], ctx);
    }
    (void)weir_session_enter(session, ctx->o.device);
    if (ctx->legacy_event) {
        (void)session->driver->cuEventDestroy_v2(ctx->legacy_event);
    }
    for (struct weir_host_ctx **at = &session->handles->contexts; *at; at = &(*at)->next) {
        if (*at == ctx) {
            *at = ctx->next;
            if (atomic_fetch_sub(&session->about->n_contexts, 1) == 1) {
                show_program(session, false);
            }
            break;
        }
    }
    weir_host_object_forget(session, &ctx->o);
}

void weir_ctx_list(struct weir_session *session, struct weir_host_ctx *ctx)
{
    WEIR_PUSH(session->handles->contexts, ctx);
    if (atomic_fetch_add(&session->about->n_contexts, 1) == 0) {
        show_program(session, true);
    }
}

/* ------------------------------------------------------------- functions for generated handlers */

/* Operations on an executable graph change it, or destroy it, except for these. */
static bool only_reads_exec(uint16_t code)
{
    return code == WEIR_OP_graph_exec_flags || code == WEIR_OP_cuGraphNodeGetEnabled;
}

/* May the operation make a graph need more SMs? Other such operations ask in their own handlers. */
static bool changes_kernels(uint16_t code)
{
    return code == WEIR_OP_cuGraphNodeSetEnabled ||
           code == WEIR_OP_cuGraphExecChildGraphNodeSetParams;
}

static struct weir_object *get_any(struct weir_session *session, enum weir_kind kind,
                                   uint64_t handle)
{
    struct weir_object *o = kind > WEIR_KIND_NONE && kind < WEIR_KIND_COUNT
                                ? weir_host_object_get(session, kind, handle)
                                : NULL;

    if (o) {
        session->op.first = !session->op.first ? o : session->op.first;
        session->op.last = o;
    }
    if (o && kind == WEIR_KIND_EXEC && !only_reads_exec(session->op.code)) {
        weir_exec_changes(session->driver, (struct weir_exec *)o);
        if (changes_kernels(session->op.code)) {
            ((struct weir_exec *)o)->sms = ((struct weir_exec *)o)->works = 0;
        }
    }
    return o;
}

CUresult weir_session_use(struct weir_session *session, enum weir_kind kind, uint64_t handle,
                          void **ret_object)
{
    const struct weir_object *first = session->op.first;
    struct weir_object *o = get_any(session, kind, handle);

    WEIR_FAIL_IF(!o || (!o->native && kind != WEIR_KIND_CONTEXT), CUDA_ERROR_INVALID_HANDLE);
    if (kind == WEIR_KIND_GRAPH && first && session->op.code == WEIR_OP_cuGraphAddChildGraphNode) {
        WEIR_TRY(weir_graph_nest_check(session, first, o));
    }
    *ret_object = o->native;
    WEIR_FAIL_IF(session->op.code == WEIR_OP_cuGraphDestroyNode && weir_capture_within(session, o),
                 CUDA_ERROR_ILLEGAL_STATE);
    if (kind == WEIR_KIND_EVENT) {
        return weir_graph_hold_event(session, o);
    }
    if (kind == WEIR_KIND_CONTEXT) {
        *ret_object = session->platform->devices[o->device].context;
    } else if (kind == WEIR_KIND_FUNCTION) {
        return weir_function_here(session, (struct weir_host_function *)o,
                                  (CUfunction *)ret_object);
    }
    return CUDA_SUCCESS;
}

CUresult weir_session_free_name(struct weir_session *session, enum weir_kind kind, uint64_t handle)
{
    return weir_handle_kind(handle) == kind && !weir_handle_origin_host(handle) &&
                   !weir_host_object_get(session, kind, handle)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_HANDLE;
}

/* Find the graph of a node that this operation made or found. */
static struct weir_object *owner_of_node(const struct weir_session *session)
{
    const struct weir_object *o =
        session->op.code == WEIR_OP_cuGraphNodeFindInClone ? session->op.last : session->op.first;

    if (o && o->kind == WEIR_KIND_NODE) {
        return o->owner;
    }
    return o && o->kind == WEIR_KIND_GRAPH ? (struct weir_object *)(uintptr_t)o : NULL;
}

/* Does the kind have only struct weir_object? The driver may make such objects, like a mipmap's
 * level. */
static bool is_plain(enum weir_kind kind)
{
    return kind == WEIR_KIND_GRAPH || kind == WEIR_KIND_NODE || kind == WEIR_KIND_ARRAY ||
           kind == WEIR_KIND_MIPMAP || kind == WEIR_KIND_POOL;
}

CUresult weir_session_put(struct weir_session *session, enum weir_kind kind, uint64_t handle,
                          void *object)
{
    struct weir_object *o;
    CUresult result = CUDA_ERROR_INVALID_HANDLE;

    if (is_plain(kind)) {
        result = weir_host_object_create(session, kind, sizeof *o, handle, object, NULL, &o);
    }
    if (result != CUDA_SUCCESS) {
        if (object) {
            (void)destroy_handle(session->driver, (int)kind, object);
        }
        return result;
    }
    if (kind == WEIR_KIND_NODE) {
        o->owner = owner_of_node(session);
        weir_graph_nest_node_made(o);
    }
    if (session->op.code == WEIR_OP_cuGraphAddChildGraphNode) {
        weir_graph_nested(session, o, session->op.last);
    } else if (session->op.code == WEIR_OP_cuGraphClone) {
        weir_graph_nest_copy(session, o, session->op.first);
    }
    return CUDA_SUCCESS;
}

CUresult weir_session_name(struct weir_session *session, enum weir_kind kind, void *object,
                           uint64_t *ret_handle)
{
    struct weir_object *o;

    if (!object) {
        *ret_handle = 0;
        return CUDA_SUCCESS;
    }
    o = weir_native_find(&session->handles->natives, kind, object);
    if (!o) {
        WEIR_FAIL_IF(!is_plain(kind),
                     CUDA_ERROR_INVALID_HANDLE); /* the object was not made in this session */
        WEIR_TRY(weir_host_object_create_own(session, kind, sizeof *o, object, NULL, &o));
        o->borrowed = true;
        o->owner = kind == WEIR_KIND_NODE ? owner_of_node(session) : session->op.first;
        if (kind == WEIR_KIND_GRAPH) {
            weir_graph_nest_named(o);
        }
    }
    *ret_handle = o->handle;
    return CUDA_SUCCESS;
}

void weir_session_drop(struct weir_session *session, enum weir_kind kind, uint64_t handle)
{
    struct weir_object *o = weir_host_object_get(session, kind, handle);

    if (o) {
        weir_host_object_forget(session, o);
    }
}

CUresult weir_session_remove(struct weir_session *session, enum weir_kind kind, uint64_t handle)
{
    struct weir_object *o = get_any(session, kind, handle);
    CUresult result;

    WEIR_FAIL_IF(!o || !o->native, CUDA_ERROR_INVALID_HANDLE);
    WEIR_FAIL_IF(kind == WEIR_KIND_GRAPH && weir_capture_within(session, o),
                 CUDA_ERROR_ILLEGAL_STATE);
    if (kind == WEIR_KIND_GRAPH && o->owner && o->owner->native == o->native) {
        o = o->owner; /* a captured graph's name from before its capture ended */
    }
    if (!o->borrowed) {
        return weir_host_object_destroy(session, o);
    }
    result = destroy_handle(session->driver, (int)kind, o->native); /* will refuse */
    if (result == CUDA_SUCCESS) {
        weir_host_object_forget(session, o);
    }
    return result;
}
