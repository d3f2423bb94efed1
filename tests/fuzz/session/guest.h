/*
 * A guest that a fuzzer drives: a transport whose records are made from the fuzzer's bytes.
 *
 * The session's own thread asks for the next record (weir_transport_ops.receive), so there is no
 * thread, ring or clock between input and handler, and an input does the same each time as far as
 * the driver does. Each record is encoded to its wire form, in memory of exactly its length.
 *
 * The guest is mostly plausible: it names objects by a few slots for each kind, with the generation
 * that is live there or the next free one; it repeats addresses, references and tokens that replies
 * gave it. The rest is lies.
 *
 *     input   options, then steps of GUEST_STEP_BYTES until it ends
 *     step    word (2 bytes: operation, posted, device, bulk, damaged), then what its fields ask
 * for
 *
 * Steps have one size so that mutations of one leave the others as they were (mutate.c).
 */
#pragma once

#include "proto/ops.h"
#include "proto/transport/transport.h"
#include "proto/wire/kinds.h"
#include <stdatomic.h>

struct weir_session;

/*
 * The options. The bits between GUEST_LENGTH and GUEST_SETS say how far the prologue goes, those up
 * to GUEST_UNEVEN which of its sets come behind. With a length of GUEST_AGAIN the first context
 * goes in the end, and comes back. With GUEST_PIECES nothing of its prints, and it launches a graph
 * of kernels, which may be cut into pieces.
 */
#define GUEST_OPTION_BYTES 2
#define GUEST_REMOTE       0x1u /* its words and arena are the worker's alone */
#define GUEST_MONITOR      0x6u /* both: it may only ask */
#define GUEST_WISH         0x8u /* it asks to be held to less memory */
#define GUEST_LENGTH       4
#define GUEST_SETS         8
#define GUEST_AGAIN        12 /* more steps than there are */
#define GUEST_PIECES       13
#define GUEST_UNEVEN       0x8000u /* arrays of a message need not be as long as each other */

#define GUEST_STEP_BYTES 32

#define GUEST_SLOTS      8  /* names of each kind */
#define GUEST_SEEN       32 /* numbers that replies had */
#define GUEST_ADDRESSES  16
#define GUEST_BLOBS      8
#define GUEST_BLOB_BYTES 64
#define GUEST_ROOM_BYTES (64u << 10) /* of one message's arrays */
#define GUEST_IMAGES     8           /* that steps choose from */

#define GUEST_QUIET_IMAGE GUEST_IMAGES /* of GUEST_PIECES */

/* The fuzzer's bytes. What is read beyond their end is 0. */
struct guest_input {
    const uint8_t *at;
    size_t left;
};

uint64_t guest_take(struct guest_input *input, size_t bytes);

struct guest_image {
    const void *data;
    size_t bytes;
    uint8_t hash[16];
};

struct guest {
    struct weir_transport base; /* first */
    struct weir_segment_view view;
    struct guest_input input;     /* the steps that are left */
    struct guest_input step;      /* what is left of the one in hand */
    struct weir_session *session; /* whose tables it looks into to name objects well */
    uint32_t options;
    uint32_t n_steps;
    uint32_t prologue; /* steps of it that are done */
    uint64_t seq;
    struct weir_record *record; /* of the last receive */
    uint8_t *bulk;

    struct {
        uint16_t generation;
        bool live;
    } names[WEIR_KIND_COUNT][GUEST_SLOTS];
    uint64_t seen[GUEST_SEEN];
    uint32_t n_seen;
    uint64_t addresses[GUEST_ADDRESSES]; /* that replies had, and some that are none of its */
    uint32_t n_addresses;
    uint8_t blobs[GUEST_BLOBS][GUEST_BLOB_BYTES]; /* handles and tokens that replies had */
    uint32_t n_blobs;
    const struct guest_image *image; /* the last hash was of this one */

    _Alignas(16) uint8_t room[GUEST_ROOM_BYTES];
    size_t room_used;

    atomic_bool gone;    /* it answers no function any more */
    atomic_uint n_asked; /* how often it was asked since the last record whether it is gone */
    atomic_uint_fast64_t ticket;
};

/* guest.c */

/** A guest of an input, which must outlive it. Its transport's destroy() frees it. */
struct guest *guest_create(const uint8_t *data, size_t size);
/** What a reply or an export told. */
void guest_see(struct guest *guest, uint64_t value);
void guest_see_address(struct guest *guest, uint64_t address);
void guest_see_blob(struct guest *guest, const void *bytes, size_t len);

/* make.c */

/** The name of a slot: of what is live there, or the next that is free. */
uint64_t guest_name(struct guest *guest, uint32_t kind, uint32_t slot);
/** Find out which slots are live. */
void guest_look_at_names(struct guest *guest);
/** Make up an operation's message. message has room for any. */
void guest_make(struct guest *guest, const struct weir_op_info *info, void *message);

/* images.c */

/** One of GUEST_IMAGES, or GUEST_QUIET_IMAGE. */
const struct guest_image *guest_image(uint32_t index);
/** A name that is in one of them, or not. */
const char *guest_symbol(uint32_t index);
/** Put an image into the arena and make the message that uploads it. */
void guest_upload(struct guest *guest, uint32_t index, struct weir_op_image_put_in *in);

/* prologue.c */

/**
 * The next step of what most programs begin with: a context, memory, a stream, an event, a module,
 * kernels; and of what some do, as the options say.
 * @return false: there is no more
 */
bool guest_prologue(struct guest *guest, enum weir_op *ret_op, union weir_op_any_in *message);
