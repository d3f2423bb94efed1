#include "tests/fuzz/session/guest.h"

#include "base/memfd.h"
#include "proto/transport/segment_map.h"
#include "proto/wire/export.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define STEPS_MAX   64
#define ARENA_BYTES (512u << 10)
#define FILE_BYTES  (64u << 10)
#define PATIENCE    3 /* a guest that waits for itself is killed */

/* The word of a step: the operation's id, and beside it. */
#define STEP_OP      0x1ffu
#define STEP_SPECIAL 0x1f0u /* from here on: no operation, but a step of the guest's own */
#define STEP_POSTED  0x200u
#define STEP_DEVICE  0xc00u /* both: the second device */
#define STEP_BULK    0x1000u
#define STEP_DAMAGED 0xe000u /* all three */

enum special { SPECIAL_SCRIBBLE, SPECIAL_UPLOAD, SPECIAL_WORD, SPECIAL_COUNT };

uint64_t guest_take(struct guest_input *input, size_t bytes)
{
    uint64_t value = 0;
    size_t n = bytes < input->left ? bytes : input->left;

    if (n != 0) {
        memcpy(&value, input->at, n);
        input->at += n;
        input->left -= n;
    }
    return value;
}

static struct guest *guest_of(struct weir_transport *t)
{
    return (struct guest *)(void *)t;
}

void guest_see(struct guest *guest, uint64_t value)
{
    guest->seen[guest->n_seen++ % GUEST_SEEN] = value;
}

void guest_see_address(struct guest *guest, uint64_t address)
{
    guest->addresses[guest->n_addresses++ % GUEST_ADDRESSES] = address;
}

void guest_see_blob(struct guest *guest, const void *bytes, size_t len)
{
    memcpy(guest->blobs[guest->n_blobs++ % GUEST_BLOBS], bytes,
           len < GUEST_BLOB_BYTES ? len : GUEST_BLOB_BYTES);
}

/* ---------------------------------------------------------------- to the guest */

static void see_field(struct guest *guest, const struct weir_op_field *field, const void *message)
{
    const uint8_t *at = (const uint8_t *)message + field->offset;
    const uint8_t *elements;
    uint32_t n = field->count;

    if (field->shape == WEIR_FIELD_FIXED && field->elem_bytes == 1) {
        guest_see_blob(guest, at, n);
        return;
    }
    if (field->shape == WEIR_FIELD_ARRAY) {
        memcpy(&n, (const uint8_t *)message + field->count_offset, sizeof n);
        memcpy(&elements, at, sizeof elements);
        at = elements;
    }
    for (uint32_t i = 0; i < n && i < GUEST_SLOTS && field->elem_bytes == 8; i++) {
        uint64_t value;

        memcpy(&value, at + 8ull * i, sizeof value);
        guest_see(guest, value);
        if (strcmp(field->name, "base") == 0 || strstr(field->name, "address")) {
            guest_see_address(guest, value);
        }
    }
}

/* A reply must be one that a guest can read. */
static void see_reply(struct guest *guest, const struct weir_record *record)
{
    const struct weir_op_info *info = &weir_ops[record->op];
    union weir_op_any_out out;

    if (record->status != CUDA_SUCCESS) {
        return;
    }
    if (!info->out_decode(record + 1, record->len_bytes - sizeof *record, &out)) {
        abort();
    }
    for (uint32_t i = 0; i < info->n_out_fields; i++) {
        see_field(guest, &info->out_fields[i], &out);
    }
}

/* What a remote guest's record looks like to whoever reads it first. */
static void glance(struct guest *guest, enum weir_op op, const void *in)
{
    struct {
        struct weir_record record;
        _Alignas(8) uint8_t body[256];
    } room = {.record = {.op = (uint16_t)op, .flags = WEIR_RECORD_POSTED}};

    weir_ops[op].in_encode(in, room.body);
    room.record.len_bytes = (uint32_t)(sizeof room.record + weir_ops[op].in_bytes(in));
    guest->base.glance(guest->base.glance_user, &room.record);
}

static void tell_done(struct guest *guest)
{
    struct weir_op_host_func_done_in in = {.ticket = atomic_load(&guest->ticket)};

    glance(guest, WEIR_OP_host_func_done, &in);
}

/* The GPU has reached a function of the guest: its token says what the guest does then. */
static void run_function(struct guest *guest, const struct weir_op_host_func_call_in *call)
{
    struct weir_op_host_func_write_in write = {
        .ticket = call->ticket, .offset = call->token >> 2, .data = "data", .n_data = 4};
    struct weir_op_host_func_read_in read = {
        .ticket = call->ticket, .offset = call->token >> 2, .bytes = call->token >> 1};

    atomic_store(&guest->ticket, call->ticket);
    if ((call->token & 3) == 3) {
        atomic_store(&guest->gone, true);
    } else if (call->word != WEIR_WORD_NONE) {
        __atomic_store_n(&guest->view.words[call->word], (uint32_t)call->ticket, __ATOMIC_RELEASE);
    } else if ((call->token & 3) == 2) {
        glance(guest, WEIR_OP_host_func_read, &read);
    } else {
        if ((call->token & 3) == 1) {
            glance(guest, WEIR_OP_host_func_write, &write);
        }
        tell_done(guest);
    }
}

static void see_notice(struct guest *guest, const struct weir_record *record)
{
    union weir_op_any_in in;

    if (!weir_ops[record->op].in_decode(record + 1, record->len_bytes - sizeof *record, &in)) {
        abort();
    }
    if (record->op == WEIR_OP_host_func_call && in.host_func_call.ticket != 0) { /* 0: refused */
        run_function(guest, &in.host_func_call);
    } else if (record->op == WEIR_OP_host_func_data) {
        tell_done(guest);
    }
}

static enum weir_status guest_send(struct weir_transport *t, const struct weir_record *record,
                                   const void *bulk, size_t bulk_bytes, uint64_t timeout_ns)
{
    struct guest *guest = guest_of(t);
    static volatile uint8_t sink;

    (void)timeout_ns;
    if (record->len_bytes < sizeof *record || record->len_bytes > WEIR_RECORD_MAX_BYTES ||
        bulk_bytes > WEIR_BULK_MAX_BYTES || record->op >= WEIR_OP_COUNT) {
        abort();
    }
    for (size_t i = 0; i < bulk_bytes; i += 512) {
        sink = ((const uint8_t *)bulk)[i]; /* sanitizers judge */
    }
    (void)sink;
    if (record->flags == WEIR_RECORD_REPLY) {
        see_reply(guest, record);
    } else {
        see_notice(guest, record);
    }
    return WEIR_OK;
}

static enum weir_status guest_send_fd(struct weir_transport *t, int fd)
{
    struct weir_export_message message;

    if (fd < 0) {
        abort();
    }
    if (recv(fd, &message, sizeof message, MSG_DONTWAIT) == (ssize_t)sizeof message) {
        guest_see_blob(guest_of(t), message.token, sizeof message.token);
    }
    return WEIR_OK;
}

/* ---------------------------------------------------------------- from the guest */

/* The pages of a file that the guest registers: sealed as they should be, or not. */
static enum weir_status guest_receive_fd(struct weir_transport *t, uint64_t timeout_ns, int *ret_fd)
{
    int pair[2], fd = -1;

    (void)timeout_ns;
    switch (guest_take(&guest_of(t)->step, 1) & 7) {
    case 5: /* can be cut short */
        fd = memfd_create("pages", MFD_CLOEXEC);
        if (fd >= 0 && ftruncate(fd, FILE_BYTES) != 0) {
            close(fd);
            return WEIR_ERR_IO;
        }
        break;
    case 6: /* no file at all */
        if (pipe(pair) == 0) {
            close(pair[0]);
            fd = pair[1];
        }
        break;
    case 7:
        return WEIR_ERR_TIMED_OUT;
    default:
        fd = weir_memfd_sealed("pages", FILE_BYTES);
        break;
    }
    *ret_fd = fd;
    return fd >= 0 ? WEIR_OK : WEIR_ERR_IO;
}

static void scribble(struct guest *guest)
{
    uint64_t offset = guest_take(&guest->step, 2) * 16 % (ARENA_BYTES - 16);
    uint64_t value = guest_take(&guest->step, 8);

    memcpy(guest->view.arena + offset, &value, sizeof value);
}

static void set_word(struct guest *guest)
{
    uint32_t word = (uint32_t)guest_take(&guest->step, 1) % guest->view.n_words;

    __atomic_store_n(&guest->view.words[word], (uint32_t)guest_take(&guest->step, 1),
                     __ATOMIC_RELEASE);
}

static bool encode(struct guest *guest, enum weir_op op, const void *message, uint32_t step)
{
    size_t bytes = weir_ops[op].in_bytes(message);
    struct weir_record *record;

    if (bytes == WEIR_OP_BYTES_INVALID || bytes > WEIR_RECORD_MAX_BYTES - sizeof *record) {
        return false;
    }
    record = malloc(sizeof *record + bytes);
    if (!record) {
        return false;
    }
    *record = (struct weir_record){.len_bytes = (uint32_t)(sizeof *record + bytes),
                                   .op = (uint16_t)op,
                                   .flags = step & STEP_POSTED ? WEIR_RECORD_POSTED : 0,
                                   .device = (step & STEP_DEVICE) == STEP_DEVICE,
                                   .seq = ++guest->seq};
    weir_ops[op].in_encode(message, record + 1);
    if ((step & STEP_DAMAGED) == STEP_DAMAGED && bytes != 0) {
        ((uint8_t *)(record + 1))[guest_take(&guest->step, 2) % bytes] ^=
            (uint8_t)guest_take(&guest->step, 1);
    }
    guest->record = record;
    return true;
}

/* One step that is not a record, or false. */
static bool own_step(struct guest *guest, uint32_t step, bool *ret_record)
{
    struct weir_op_image_put_in put;

    if ((step & STEP_OP) < STEP_SPECIAL) {
        return false;
    }
    *ret_record = false;
    switch ((step & STEP_OP) % SPECIAL_COUNT) {
    case SPECIAL_SCRIBBLE:
        scribble(guest);
        break;
    case SPECIAL_UPLOAD:
        guest_upload(guest, (uint32_t)guest_take(&guest->step, 1) % GUEST_IMAGES, &put);
        *ret_record = encode(guest, WEIR_OP_image_put, &put, 0);
        break;
    default:
        set_word(guest);
        break;
    }
    return true;
}

static void begin_step(struct guest *guest)
{
    size_t bytes = guest->input.left < GUEST_STEP_BYTES ? guest->input.left : GUEST_STEP_BYTES;

    guest->step = (struct guest_input){guest->input.at, bytes};
    guest->input.at += bytes;
    guest->input.left -= bytes;
}

/* The next record; false: this step made none. */
static bool next_record(struct guest *guest)
{
    union weir_op_any_in message;
    enum weir_op op;
    uint32_t step;
    bool made;

    if (guest_prologue(guest, &op, &message)) {
        return encode(guest, op, &message, 0);
    }
    begin_step(guest);
    step = (uint32_t)guest_take(&guest->step, 2);
    if (own_step(guest, step, &made)) {
        return made;
    }
    op = (enum weir_op)((step & STEP_OP) % WEIR_OP_COUNT);
    if (!weir_ops[op].name) {
        return false;
    }
    memset(&message, 0, sizeof message);
    guest->room_used = 0;
    guest_make(guest, &weir_ops[op], &message);
    return encode(guest, op, &message, step);
}

/* Bulk data is as long as the guest says, or not. */
static void add_bulk(struct guest *guest, const void **ret_bulk, size_t *ret_bulk_bytes)
{
    size_t bytes = guest_take(&guest->step, 1);

    free(guest->bulk);
    guest->bulk = calloc(1, bytes + 1);
    *ret_bulk = guest->bulk;
    *ret_bulk_bytes = guest->bulk ? bytes : 0;
}

static enum weir_status guest_receive(struct weir_transport *t,
                                      const struct weir_record **ret_record, const void **ret_bulk,
                                      size_t *ret_bulk_bytes, uint64_t spin_ns, uint64_t timeout_ns)
{
    struct guest *guest = guest_of(t);

    (void)spin_ns;
    (void)timeout_ns;
    free(guest->record);
    guest->record = NULL;
    *ret_bulk = NULL;
    *ret_bulk_bytes = 0;
    guest_look_at_names(guest);
    if (atomic_load(&guest->n_asked) > PATIENCE) {
        return WEIR_ERR_CLOSED;
    }
    atomic_store(&guest->n_asked, 0);
    do {
        if (guest->input.left == 0 || guest->n_steps++ == STEPS_MAX) {
            atomic_store(&guest->gone, true);
            return WEIR_ERR_CLOSED;
        }
    } while (!next_record(guest));
    if (!guest->base.ops->receive_fd) {
        add_bulk(guest, ret_bulk, ret_bulk_bytes);
    }
    *ret_record = guest->record;
    return WEIR_OK;
}

/* ---------------------------------------------------------------- the rest */

static void *guest_segment(struct weir_transport *t)
{
    return guest_of(t)->view.base;
}

static const struct weir_segment_view *guest_view(struct weir_transport *t)
{
    return &guest_of(t)->view;
}

static bool guest_peer_gone(struct weir_transport *t)
{
    return atomic_load(&guest_of(t)->gone) ||
           atomic_fetch_add(&guest_of(t)->n_asked, 1) >= PATIENCE;
}

static void guest_destroy(struct weir_transport *t)
{
    struct guest *guest = guest_of(t);

    weir_segment_unmap(&guest->view);
    free(guest->record);
    free(guest->bulk);
    free(guest);
}

#define GUEST_OPS(transport)                                                                       \
    .name = (transport), .segment = guest_segment, .view = guest_view, .send = guest_send,         \
    .receive = guest_receive, .peer_gone = guest_peer_gone, .destroy = guest_destroy

static const struct weir_transport_ops local_ops = {GUEST_OPS("loop"), .send_fd = guest_send_fd,
                                                    .receive_fd = guest_receive_fd};
static const struct weir_transport_ops remote_ops = {GUEST_OPS("zmq")};

struct guest *guest_create(const uint8_t *data, size_t size)
{
    struct weir_segment_params sizes = {.n_words = 1024, .arena_bytes = ARENA_BYTES};
    struct guest *guest = calloc(1, sizeof *guest);

    if (!guest || weir_segment_create_private(&sizes, &guest->view) != WEIR_OK) {
        abort();
    }
    guest->input = (struct guest_input){data, size};
    guest->options = (uint32_t)guest_take(&guest->input, GUEST_OPTION_BYTES);
    guest->base.ops = guest->options & GUEST_REMOTE ? &remote_ops : &local_ops;
    for (uint32_t kind = 0; kind < WEIR_KIND_COUNT; kind++) {
        for (uint32_t slot = 0; slot < GUEST_SLOTS; slot++) {
            guest->names[kind][slot].generation = 1;
        }
    }
    return guest;
}
