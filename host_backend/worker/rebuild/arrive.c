/* Sessions that arrive: a new session gets everything of a box. */
#include "host_backend/config/link.h"
#include "host_backend/worker/code/images.h"
#include "host_backend/worker/memory/tenant_window.h"
#include "host_backend/worker/rebuild/private.h"
#include "host_backend/worker/session/event_times.h"
#include "host_backend/worker/session/objects.h"
#include "host_backend/worker/state/platform.h"
#include "host_backend/worker/state/tenant.h"
#include "proto/wire/accept.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct weir_moved {
    struct weir_box box;
    struct weir_box_head head;
};

enum weir_status weir_moved_open(int box_fd, struct weir_moved **ret_moved)
{
    struct weir_moved *moved = calloc(1, sizeof *moved);
    const struct weir_box_head *head;
    enum weir_status status;

    if (!moved) {
        close(box_fd);
        return WEIR_ERR_NO_MEMORY;
    }
    status = weir_box_receive(box_fd, &moved->box);
    if (status != WEIR_OK) {
        free(moved);
        return status;
    }
    head = weir_box_get(&moved->box, sizeof *head);
    if (!head || head->version != WEIR_LINK_VERSION) {
        weir_moved_close(moved);
        return WEIR_ERR_VERSION;
    }
    moved->head = *head;
    moved->head.about.program[sizeof moved->head.about.program - 1] = 0;
    *ret_moved = moved;
    return WEIR_OK;
}

void weir_moved_close(struct weir_moved *moved)
{
    if (moved) {
        weir_box_finish(&moved->box, true);
        free(moved);
    }
}

const struct weir_session_carried *weir_moved_about(const struct weir_moved *moved)
{
    return &moved->head.about;
}

bool weir_moved_waits(const struct weir_moved *moved)
{
    return moved->head.waits != 0;
}

enum weir_status weir_moved_transport(struct weir_moved *moved,
                                      struct weir_transport **ret_transport)
{
    struct weir_transport_state state = {
        .segment_fd = weir_box_take_file(&moved->box, WEIR_BOX_SEGMENT, 0),
        .socket_fd = weir_box_take_file(&moved->box, WEIR_BOX_SOCKET, 0),
        .pid_fd = weir_box_take_file(&moved->box, WEIR_BOX_PROCESS, 0),
        .segment_bytes = moved->head.segment_bytes,
        .sent = moved->head.sent,
        .received = moved->head.received};
    const int fds[] = {state.segment_fd, state.socket_fd, state.pid_fd};
    enum weir_status status = state.segment_fd < 0 || state.socket_fd < 0
                                  ? WEIR_ERR_PEER
                                  : weir_accept_resume(&state, ret_transport);

    for (size_t i = 0; status != WEIR_OK && i < sizeof fds / sizeof fds[0]; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    return status;
}

/* ---------------------------------------------------------------- the session */

static CUresult use_devices(struct weir_session *s, uint32_t used)
{
    for (uint32_t i = 0; i < s->platform->n_devices; i++) {
        if ((used >> i & 1) != 0) {
            WEIR_TRY(weir_session_enter(s, i));
        }
    }
    return weir_session_enter(s, 0);
}

/* Store an image, unless the tenant has it here. */
static CUresult get_image(struct weir_session *s, struct weir_box *box)
{
    struct weir_host_image_store *store = &s->tenant->images;
    const struct weir_hash *hash = weir_box_get(box, sizeof *hash);
    const uint64_t *bytes = weir_box_get(box, sizeof *bytes);
    const void *data = bytes ? weir_box_get(box, *bytes) : NULL;
    struct weir_host_image *image = data ? weir_image_get(store, hash, *bytes) : NULL;
    uint8_t *copy;

    if (!data) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!image) {
        if (weir_image_reserve(store, *bytes) != WEIR_OK) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        copy = calloc(1, *bytes + WEIR_IMAGE_TAIL_BYTES);
        if (!copy) {
            weir_image_unreserve(store, *bytes);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        memcpy(copy, data, *bytes);
        if (weir_image_add(store, hash, copy, *bytes, &image) != WEIR_OK) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    weir_image_put(store, image);
    return CUDA_SUCCESS;
}

static CUresult get_record(struct weir_session *s, struct weir_box *box,
                           weir_moved_replay_fn *replay)
{
    const struct weir_record *record = (const void *)(box->bytes + box->at);
    const uint64_t *n_names, *names = NULL;

    if (box->n - box->at < sizeof *record || record->len_bytes < sizeof *record ||
        !weir_box_get(box, record->len_bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    n_names = weir_box_get(box, sizeof *n_names);
    if (!n_names || *n_names > UINT32_MAX ||
        (*n_names != 0 && !(names = weir_box_get(box, *n_names * sizeof *names)))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return replay(s, record, names, (uint32_t)*n_names);
}

static CUresult get_time(struct weir_session *s, struct weir_box *box)
{
    const uint64_t *handle = weir_box_get(box, sizeof *handle);
    const double *at_ms = handle ? weir_box_get(box, sizeof *at_ms) : NULL;
    struct weir_host_event *event =
        at_ms ? weir_host_object_get(s, WEIR_KIND_EVENT, *handle) : NULL;

    if (!event) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    event->at_ms = *at_ms;
    return weir_event_times_forget_capture(s, event);
}

CUresult weir_moved_rebuild(struct weir_moved *moved, struct weir_session *session,
                            weir_moved_replay_fn *replay, const char **ret_why)
{
    const struct weir_box_head *head = &moved->head;
    struct weir_session *s = session;

    *ret_why = "its window of addresses";
    if (head->window_base != weir_tenant_window_base(s->tenant) || !s->devices.book) {
        return CUDA_ERROR_ALREADY_MAPPED;
    }
    *ret_why = "its devices";
    WEIR_TRY(use_devices(s, head->devices_used));
    *ret_why = "its images";
    for (uint32_t i = 0; i < head->n_images; i++) {
        WEIR_TRY(get_image(s, &moved->box));
    }
    *ret_why = "its memory";
    WEIR_TRY(weir_rebuild_memory_get(s, &moved->box, &head->memory));
    *ret_why = "its objects";
    s->devices.book->capture_base = s->devices.book->capture_last = head->captures;
    for (uint32_t i = 0; i < head->n_records; i++) {
        WEIR_TRY(get_record(s, &moved->box, replay));
    }
    *ret_why = "its variables";
    for (uint32_t i = 0; i < head->n_variables; i++) {
        WEIR_TRY(weir_rebuild_variables_get(s, &moved->box));
    }
    *ret_why = "its arrays";
    for (uint32_t i = 0; i < head->n_arrays; i++) {
        WEIR_TRY(weir_rebuild_arrays_get(s, &moved->box, i));
    }
    *ret_why = "times of its events";
    for (uint32_t i = 0; i < head->n_times; i++) {
        WEIR_TRY(get_time(s, &moved->box));
    }
    s->devices.book->leaving.came = true;
    weir_session_continue(s, &head->about);
    return weir_session_enter(s, 0);
}
