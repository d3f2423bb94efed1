/*
 * A box: bytes and descriptors of a session on their way to another worker.
 *
 * It travels as one descriptor: a socket in whose queue everything waits. So whoever passes it on
 * holds the session with one descriptor, and need not understand it.
 */
#pragma once

#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum weir_box_kind {
    WEIR_BOX_BYTES,   /* the box's own */
    WEIR_BOX_SEGMENT, /* of the transport, as are the next two */
    WEIR_BOX_SOCKET,
    WEIR_BOX_PROCESS,
    WEIR_BOX_CHUNK,      /* memory that was granted; number: its reference */
    WEIR_BOX_ALLOC,      /* memory of cuMemCreate; number: its id */
    WEIR_BOX_ARRAY,      /* what is in an array; number: its place among those of the box */
    WEIR_BOX_REGISTERED, /* the program's own memory; number: its address on the device */
};

struct weir_box_file {
    uint32_t kind; /* enum weir_box_kind */
    int32_t fd;
    uint64_t number;
};

/* Zeroed: empty. Owner thread only. */
struct weir_box {
    struct weir_box_file *files;
    uint32_t n_files, files_room;
    uint32_t *places, n_places; /* index of the files: their numbers from 1 on */
    uint8_t *bytes;
    size_t n, room;
    size_t at;   /* where weir_box_get() goes on */
    bool failed; /* there was no memory, or no such bytes */
};

/** Append bytes, or zeros where from is NULL; the next ones begin on a multiple of 8. @return their
 * offset */
size_t weir_box_put(struct weir_box *box, const void *from, size_t bytes);
/** Append a descriptor, which is borrowed until the box is sent. */
void weir_box_put_file(struct weir_box *box, enum weir_box_kind kind, uint64_t number, int fd);
/** Find a descriptor. @return its number in the box, from 1 on; 0: there is none */
uint32_t weir_box_find_file(const struct weir_box *box, enum weir_box_kind kind, uint64_t number);
/** Close the box. @return WEIR_OK, WEIR_ERR_NO_MEMORY, WEIR_ERR_IO @param ret_fd gives it */
enum weir_status weir_box_send(const struct weir_box *box, int *ret_fd);

/** Open a box, which then owns its descriptors. @param fd  taken. @return WEIR_OK,
 * WEIR_ERR_NO_MEMORY, WEIR_ERR_NO_DESCRIPTOR, WEIR_ERR_PEER (it is none) */
enum weir_status weir_box_receive(int fd, struct weir_box *ret_box);
/** The next bytes of an opened box; borrowed. NULL: there are not so many, and the box has
 * failed. */
const void *weir_box_get(struct weir_box *box, size_t bytes);
/** Take a descriptor out. @return it; -1: there is none */
int weir_box_take_file(struct weir_box *box, enum weir_box_kind kind, uint64_t number);
/** Free the box. @param own  close the descriptors that are left. */
void weir_box_finish(struct weir_box *box, bool own);
