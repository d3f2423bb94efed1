/* Reads and writes Protobuf messages by field numbers: kubelet and a driver use only a few. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A message that is being written; {0} is empty. */
struct weir_pb {
    uint8_t *data; /* owned by the caller, who frees it; NULL: empty, or failed */
    size_t bytes, room;
    bool failed; /* out of memory: nothing more is written */
};

/** Add a field. Empty texts and zeros are left out, as protobuf does; text may be NULL. @thread
 * owner */
void weir_pb_text(struct weir_pb *message, uint32_t field, const char *text);
void weir_pb_number(struct weir_pb *message, uint32_t field, uint64_t value);
/** Begin an inner message of at most 2 MiB; fields added until weir_pb_close() belong to it.
 * @return for weir_pb_close() @thread owner */
size_t weir_pb_open(struct weir_pb *message, uint32_t field);
void weir_pb_close(struct weir_pb *message, size_t opened);

/* A message that is being read: {data, data + bytes, false}. Borrowed. */
struct weir_pb_reader {
    const uint8_t *at, *end;
    bool bad; /* it was no message */
};

/* A field: a number, or bytes (data is not NULL), which may be a message. Borrowed. */
struct weir_pb_field {
    uint32_t number;
    uint64_t value;
    const uint8_t *data;
    size_t bytes;
};

/** Read the next field. @return false: there is none, or the message is bad @thread owner */
bool weir_pb_next(struct weir_pb_reader *reader, struct weir_pb_field *ret_field);

/**
 * Copy a text.
 * @param text  room bytes, with the NUL.
 * @return false: it is no text, has a NUL, or does not fit
 * @thread any
 */
bool weir_pb_copy(const struct weir_pb_field *field, char *text, size_t room);
