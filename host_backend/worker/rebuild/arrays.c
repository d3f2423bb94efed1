/*
 * What is in a session's arrays. It lies where only copies reach, so at rest the bytes of each
 * array that may have changed are copied to a file in the host's memory, on a stream of the
 * worker's own, as variables are. Another worker gets the file, and copies it to the array that it
 * has made.
 *
 * An array changes by copies, by graphs that name it, and by kernels while it has a surface. One
 * that nothing has written to holds anything, there as here.
 */
#include "host_backend/worker/rebuild/private.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memfd.h"
#include "host_backend/worker/device/streams.h"
#include "host_backend/worker/memory/chunk.h"
#include "host_backend/worker/session/arrays.h"
#include "host_backend/worker/session/objects.h"
#include "host_backend/worker/state/tenant.h"
#include <unistd.h>

struct array { /* as the box has it; its file has the number of the array's place in the box */
    uint64_t handle, bytes;
    uint32_t kind, unused;
};

struct visit {
    struct weir_session *session;
    const char *why;
    struct weir_box *box;
    struct weir_amounts *charged;
    uint32_t n; /* arrays */
    uint64_t bytes;
};

static void visit_arrays(struct weir_session *s,
                         void (*visit)(weir_handle handle, void *object, void *user), void *user)
{
    weir_host_objects_visit(s, WEIR_KIND_ARRAY, visit, user);
    weir_host_objects_visit(s, WEIR_KIND_MIPMAP, visit, user);
}

/* ---------------------------------------------------------------- the driver's side */

static CUresult count_part(struct weir_session *s, CUarray part, const size_t extent[3], void *user)
{
    (void)s;
    (void)part;
    *(uint64_t *)user += (uint64_t)extent[0] * extent[1] * extent[2];
    return CUDA_SUCCESS;
}

struct copying {
    CUstream stream;
    uint8_t *at; /* of the next part */
    bool back;
};

static CUresult copy_part(struct weir_session *s, CUarray part, const size_t extent[3], void *user)
{
    struct copying *c = user;
    CUDA_MEMCPY3D copy = {.srcMemoryType = c->back ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_ARRAY,
                          .srcHost = c->at,
                          .srcArray = part,
                          .srcPitch = extent[0],
                          .srcHeight = extent[1],
                          .dstMemoryType = c->back ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_HOST,
                          .dstHost = c->at,
                          .dstArray = part,
                          .dstPitch = extent[0],
                          .dstHeight = extent[1],
                          .WidthInBytes = extent[0],
                          .Height = extent[1],
                          .Depth = extent[2]};

    c->at += extent[0] * extent[1] * extent[2];
    return s->driver->cuMemcpy3DAsync_v2(&copy, c->stream);
}

/* Copy an array, there or back. Its device is current. */
static CUresult copy_array(struct weir_session *s, const struct weir_host_array *a, bool back)
{
    struct copying c = {.at = a->copy, .back = back};
    CUresult result, waited;

    WEIR_TRY(weir_session_work_stream(s, &c.stream));
    result = weir_array_visit(s, &a->o, copy_part, &c);
    waited = s->driver->cuStreamSynchronize(c.stream); /* the copies use the bytes until then */
    return result == CUDA_SUCCESS ? waited : result;
}

/* ---------------------------------------------------------------- at rest */

static bool may_have_changed(const struct weir_session *s, const struct weir_host_array *a)
{
    return a->unsaved || (s->devices.book->ran && (a->on_surface || a->o.hold));
}

static const char *take_room(struct weir_session *s, struct weir_host_array *a, uint64_t bytes)
{
    int fd;

    if (a->copy) {
        return NULL;
    }
    fd = weir_memfd_sealed("weir-array", bytes);
    if (fd >= 0 && !weir_memory_holds_file(s->worker, fd)) {
        close(fd);
        return "arrays without a descriptor";
    }
    return fd >= 0 && weir_array_take_copy(s, a, bytes, fd) == CUDA_SUCCESS
               ? NULL
               : "no host memory for arrays";
}

static const char *save_array(struct weir_session *s, struct weir_host_array *a,
                              uint64_t *ret_bytes)
{
    CUresult result = weir_session_enter(s, a->o.device);
    const char *why;

    *ret_bytes = 0;
    result = result == CUDA_SUCCESS ? weir_array_visit(s, &a->o, count_part, ret_bytes) : result;
    if (result != CUDA_SUCCESS) {
        return result == CUDA_ERROR_NOT_SUPPORTED ? "arrays of such a format" : "arrays";
    }
    why = take_room(s, a, *ret_bytes);
    return why ? why : copy_array(s, a, false) == CUDA_SUCCESS ? NULL : "arrays";
}

static void save(weir_handle handle, void *object, void *user)
{
    struct weir_host_array *a = object;
    struct visit *visit = user;
    uint64_t bytes;

    (void)handle;
    if (visit->why || a->o.borrowed || !may_have_changed(visit->session, a)) {
        return;
    }
    visit->why = save_array(visit->session, a, &bytes);
    if (!visit->why) {
        a->unsaved = false;
        visit->n++;
        visit->bytes += bytes;
    }
}

const char *weir_rebuild_arrays_save(struct weir_session *session, uint64_t begin_ns)
{
    struct weir_session_book *book = session->devices.book;
    struct visit visit = {.session = session};
    uint32_t device = session->device;

    visit_arrays(session, save, &visit);
    (void)weir_session_enter(session, device);
    if (visit.n != 0) {
        book->copy_ns = weir_clock_now_ns() - begin_ns;
        weir_log_debug("session: arrays copied session=%llu tenant=%s arrays=%u bytes=%llu us=%llu",
                       (unsigned long long)session->id, session->tenant->name, visit.n,
                       (unsigned long long)visit.bytes,
                       (unsigned long long)(book->copy_ns / WEIR_NS_PER_US));
    }
    book->ran &= visit.why != NULL;
    return visit.why;
}

static void look(weir_handle handle, void *object, void *user)
{
    const struct weir_host_array *a = object;
    struct visit *visit = user;

    (void)handle;
    if (!a->o.borrowed && may_have_changed(visit->session, a)) {
        visit->why = "arrays";
    }
}

const char *weir_rebuild_arrays_why(struct weir_session *session)
{
    struct visit visit = {.session = session};

    visit_arrays(session, look, &visit);
    return visit.why;
}

static void note_any(weir_handle handle, void *object, void *user)
{
    (void)handle;
    (void)object;
    *(bool *)user = true;
}

bool weir_rebuild_textures_any(struct weir_session *session)
{
    bool any = false;

    weir_host_objects_visit(session, WEIR_KIND_TEXTURE, note_any, &any);
    weir_host_objects_visit(session, WEIR_KIND_SURFACE, note_any, &any);
    return any;
}

/* ---------------------------------------------------------------- boxes */

static void put(weir_handle handle, void *object, void *user)
{
    const struct weir_host_array *a = object;
    struct visit *visit = user;

    if (!a->o.borrowed && a->copy) {
        const struct array array = {handle, a->copy_bytes, a->o.kind, 0};

        (void)weir_box_put(visit->box, &array, sizeof array);
        weir_box_put_file(visit->box, WEIR_BOX_ARRAY, visit->n++, a->copy_file);
        visit->charged->of[WEIR_ACCOUNT_HOST_MEMORY] += a->copy_bytes;
    }
}

void weir_rebuild_arrays_put(struct weir_session *session, struct weir_box *box, uint32_t *ret_n,
                             struct weir_amounts *charged)
{
    struct visit visit = {.session = session, .box = box, .charged = charged};

    visit_arrays(session, put, &visit);
    *ret_n = visit.n;
}

static void forget_charge(weir_handle handle, void *object, void *user)
{
    struct weir_host_array *a = object;

    (void)handle;
    (void)user;
    if (!a->o.borrowed) {
        a->account = NULL;
    }
}

void weir_rebuild_arrays_are_lent(struct weir_session *session)
{
    visit_arrays(session, forget_charge, NULL);
}

CUresult weir_rebuild_arrays_get(struct weir_session *session, struct weir_box *box,
                                 uint32_t number)
{
    const struct array *array = weir_box_get(box, sizeof *array);
    struct weir_session *s = session;
    struct weir_host_array *a =
        array && (array->kind == WEIR_KIND_ARRAY || array->kind == WEIR_KIND_MIPMAP)
            ? weir_host_object_get(s, (enum weir_kind)array->kind, array->handle)
            : NULL;
    uint64_t bytes = 0;
    int fd;

    WEIR_FAIL_IF(!a || a->o.borrowed || a->copy, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_session_enter(s, a->o.device));
    WEIR_TRY(weir_array_visit(s, &a->o, count_part, &bytes));
    fd = bytes == array->bytes ? weir_box_take_file(box, WEIR_BOX_ARRAY, number) : -1;
    WEIR_FAIL_IF(fd < 0, CUDA_ERROR_INVALID_VALUE);
    WEIR_TRY(weir_array_take_copy(s, a, bytes, fd));
    return copy_array(s, a, true);
}
