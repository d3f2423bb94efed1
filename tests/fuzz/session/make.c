/* Messages made up field by field: mostly of what the session has, sometimes of anything. */
#include "tests/fuzz/session/guest.h"

#include "host_backend/worker/session/objects.h"
#include <string.h>

#define ELEMENTS_MAX 15u

uint64_t guest_name(struct guest *guest, uint32_t kind, uint32_t slot)
{
    return weir_handle_make((uint8_t)kind, false, guest->names[kind][slot].generation, slot + 1);
}

void guest_look_at_names(struct guest *guest)
{
    for (uint32_t kind = 1; kind < WEIR_KIND_COUNT; kind++) {
        for (uint32_t slot = 0; slot < GUEST_SLOTS; slot++) {
            bool live = weir_host_object_get(guest->session, (enum weir_kind)kind,
                                             guest_name(guest, kind, slot)) != NULL;

            if (guest->names[kind][slot].live && !live) {
                guest->names[kind][slot].generation++; /* a name is used once */
            }
            guest->names[kind][slot].live = live;
        }
    }
}

/* Most ways to be a plausible number. */
static uint64_t make_number(struct guest *guest)
{
    uint32_t c = (uint32_t)guest_take(&guest->step, 1), low = c & 31;

    switch (c >> 5) {
    case 0:
        return low;
    case 1:
        return guest->seen[low];
    case 2:
        return guest->seen[low] + guest_take(&guest->step, 2);
    case 3:
        return guest_name(guest, 1 + (uint32_t)guest_take(&guest->step, 1) % (WEIR_KIND_COUNT - 1),
                          c % GUEST_SLOTS);
    case 4:
        return UINT64_C(1) << low;
    case 5:
        return guest_take(&guest->step, 2) * 16;
    case 6:
        return guest_take(&guest->step, 8);
    default:
        return ~(uint64_t)low;
    }
}

static uint64_t make_address(struct guest *guest)
{
    uint32_t c = (uint32_t)guest_take(&guest->step, 1);
    uint64_t address = guest->addresses[c % GUEST_ADDRESSES];

    if (c < 0x80) {
        return address;
    }
    return c < 0xd0 ? address + 16 * guest_take(&guest->step, 1) : make_number(guest);
}

#define GRID_MASK                                                                                  \
    31u /* a grid of millions of blocks is legal, and nothing ends it for being long */

/* Of memory: widths, heights and so on are small, chunks are large. */
static uint64_t make_size(struct guest *guest)
{
    static const uint64_t sizes[] = {1,       4,       16,      64,       256,      4096,
                                     1 << 16, 1 << 18, 1 << 21, 2u << 21, 16 << 20, 3};
    uint32_t c = (uint32_t)guest_take(&guest->step, 1);

    if (c < 0x80) {
        return sizes[c % (sizeof sizes / sizeof sizes[0])];
    }
    return c < 0xd0 ? c - 0x80 : make_number(guest);
}

static bool is_any_of(const char *name, const char *const *words)
{
    for (; *words; words++) {
        if (strstr(name, *words)) {
            return true;
        }
    }
    return false;
}

static uint64_t make_wide(struct guest *guest, const char *name)
{
    static const char *const addresses[] = {"addr", "dst", "src", "base", "hint", "Device", NULL};
    static const char *const sizes[] = {"bytes", "width", "height", "depth", "pitch",
                                        "_x",    "_y",    "_z",     "_lod",  "offset",
                                        "Bytes", "Width", "Height", "arena", NULL};

    if (is_any_of(name, sizes)) {
        return make_size(guest);
    }
    return is_any_of(name, addresses) ? make_address(guest) : make_number(guest);
}

static uint64_t make_handle(struct guest *guest, uint32_t kind)
{
    uint32_t c = (uint32_t)guest_take(&guest->step, 1);

    if (c < 0xc0) {
        return guest_name(guest, kind, c % GUEST_SLOTS);
    }
    return c < 0xe0 ? 0 : make_number(guest);
}

/* Most 32-bit fields are kinds, flags, ordinals, or numbers of attributes. */
static uint32_t make_small(struct guest *guest)
{
    uint32_t c = (uint32_t)guest_take(&guest->step, 1);

    if (c < 0x60) {
        return c & 7;
    }
    if (c < 0xf0) {
        return c - 0x60;
    }
    return c < 0xf8 ? 1u << (guest_take(&guest->step, 1) & 31)
                    : (uint32_t)guest_take(&guest->step, 4);
}

static void *make_room(struct guest *guest, size_t bytes)
{
    size_t at = (guest->room_used + 15) & ~(size_t)15;

    if (bytes > GUEST_ROOM_BYTES - at) {
        return NULL;
    }
    guest->room_used = at + bytes;
    memset(guest->room + at, 0, bytes);
    return guest->room + at;
}

/* What structs of a name mostly are. */
static void make_usual(struct guest *guest, const char *name, uint8_t *at, size_t bytes)
{
    static const CUDA_ARRAY_DESCRIPTOR plane = {16, 16, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    static const CUDA_ARRAY3D_DESCRIPTOR solid = {16, 16, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0};
    CUstreamBatchMemOpParams op = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32};

    if (strcmp(name, "ops") == 0 && bytes == sizeof op) {
        op.writeValue.address = make_address(guest);
        memcpy(at, &op, sizeof op);
    } else if (strstr(name, "Array") && bytes == sizeof plane) {
        memcpy(at, &plane, sizeof plane);
    } else if (strstr(name, "Array") && bytes == sizeof solid) {
        memcpy(at, &solid, sizeof solid);
    }
}

/* Usual but for a few words. */
static void make_struct(struct guest *guest, const char *name, uint8_t *at, size_t bytes)
{
    uint32_t n = (uint32_t)guest_take(&guest->step, 1) & 7;

    make_usual(guest, name, at, bytes);
    while (n-- != 0) {
        uint32_t c = (uint32_t)guest_take(&guest->step, 1);
        size_t offset = 4u * (c & 63) % (bytes & ~(size_t)3);
        uint64_t value = c & 64 ? make_number(guest) : make_small(guest);
        size_t width = c & 64 && bytes - offset >= 8 ? 8 : 4;

        memcpy(at + offset, &value, width);
    }
}

static void make_element(struct guest *guest, const struct weir_op_field *field, uint8_t *at)
{
    uint64_t value;

    if (field->elem_bytes == 8) {
        bool image = guest->image && strcmp(field->name, "bytes") == 0;

        value = field->kind != 0 ? make_handle(guest, field->kind) : make_wide(guest, field->name);
        value = image ? guest->image->bytes : value;
    } else if (field->elem_bytes == 4) {
        value = make_small(guest);
        if (strcmp(field->name, "grid") == 0 && value <= INT32_MAX) {
            value &= GRID_MASK;
        }
    } else if (field->elem_bytes < 4) {
        value = guest_take(&guest->step, field->elem_bytes);
    } else {
        make_struct(guest, field->name, at, field->elem_bytes);
        return;
    }
    memcpy(at, &value, field->elem_bytes);
}

/* Hashes of images, and handles and tokens that replies had. */
static void make_blob(struct guest *guest, const struct weir_op_field *field, uint8_t *at)
{
    uint32_t c = (uint32_t)guest_take(&guest->step, 1);

    if (strcmp(field->name, "hash") == 0) {
        guest->image = guest_image(c % GUEST_IMAGES);
        memcpy(at, guest->image->hash, sizeof guest->image->hash);
    } else {
        memcpy(at, guest->blobs[c % GUEST_BLOBS],
               field->count < GUEST_BLOB_BYTES ? field->count : GUEST_BLOB_BYTES);
    }
    if (c >= 0xf0) {
        at[c % field->count] ^= 1;
        guest->image = NULL;
    }
}

static void make_array(struct guest *guest, const struct weir_op_field *field, uint8_t *message)
{
    uint32_t n = (uint32_t)guest_take(&guest->step, 1) & ELEMENTS_MAX;
    uint8_t *elements;

    n = n < field->max ? n : field->max;
    n *= field->shape == WEIR_FIELD_BYTES && field->max > 8 * ELEMENTS_MAX ? 8 : 1;
    elements = make_room(guest, (size_t)n * field->elem_bytes);
    if (!elements) {
        return;
    }
    if (field->shape == WEIR_FIELD_BYTES) { /* parameters of kernels, for instance */
        for (uint32_t i = 0; i + 8 <= n; i += 8) {
            uint64_t value = make_number(guest);

            memcpy(elements + i, &value, sizeof value);
        }
    } else {
        for (uint32_t i = 0; i < n; i++) {
            make_element(guest, field, elements + (size_t)i * field->elem_bytes);
        }
    }
    memcpy(message + field->offset, &elements, sizeof elements);
    memcpy(message + field->count_offset, &n, sizeof n);
}

static void make_text(struct guest *guest, const struct weir_op_field *field, uint8_t *message)
{
    const char *text = guest_symbol((uint32_t)guest_take(&guest->step, 1));

    memcpy(message + field->offset, &text, sizeof text);
}

static void make_field(struct guest *guest, const struct weir_op_field *field, uint8_t *message)
{
    uint8_t *at = message + field->offset;

    if (field->shape == WEIR_FIELD_STR) {
        make_text(guest, field, message);
    } else if (field->shape == WEIR_FIELD_ARRAY || field->shape == WEIR_FIELD_BYTES) {
        make_array(guest, field, message);
    } else if (field->shape == WEIR_FIELD_FIXED && field->elem_bytes == 1) {
        make_blob(guest, field, at);
    } else {
        for (uint32_t i = 0; i < field->count; i++) {
            make_element(guest, field, at + (size_t)i * field->elem_bytes);
        }
    }
}

/* Arrays of one message that must be as long as each other often are: they ask for the same. */
static void even_out(const struct weir_op_info *info, uint8_t *message)
{
    uint32_t least = UINT32_MAX;

    for (uint32_t i = 0; i < info->n_in_fields; i++) {
        uint32_t n;

        if (info->in_fields[i].shape == WEIR_FIELD_ARRAY) {
            memcpy(&n, message + info->in_fields[i].count_offset, sizeof n);
            least = n < least ? n : least;
        }
    }
    for (uint32_t i = 0; i < info->n_in_fields; i++) {
        if (info->in_fields[i].shape == WEIR_FIELD_ARRAY) {
            memcpy(message + info->in_fields[i].count_offset, &least, sizeof least);
        }
    }
}

void guest_make(struct guest *guest, const struct weir_op_info *info, void *message)
{
    guest->image = NULL;
    for (uint32_t i = 0; i < info->n_in_fields; i++) {
        make_field(guest, &info->in_fields[i], message);
    }
    if ((guest->options & GUEST_UNEVEN) == 0) {
        even_out(info, message);
    }
}
