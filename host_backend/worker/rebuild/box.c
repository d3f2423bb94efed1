/* Bytes and descriptors in the queue of a socket: see box.h. */
#include "host_backend/worker/rebuild/box.h"

#include "base/fd_pass.h"
#include "base/grow.h"
#include "base/hash.h"
#include "base/memfd.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

size_t weir_box_put(struct weir_box *box, const void *from, size_t bytes)
{
    size_t at = box->n, padded = (bytes + 7) & ~(size_t)7;

    if (box->room - box->n < padded) {
        size_t room = 2 * box->room + padded + 4096;
        uint8_t *bigger = realloc(box->bytes, room);

        if (!bigger) {
            box->failed = true;
            return 0;
        }
        box->bytes = bigger;
        box->room = room;
    }
    memset(box->bytes + at, 0, padded);
    if (from) {
        memcpy(box->bytes + at, from, bytes);
    }
    box->n += padded;
    return at;
}

/* ---------------------------------------------------------------- descriptors by name */

/* Where a descriptor is in the index, or would be: a table with open addressing. */
static uint32_t *place_of(const struct weir_box *box, uint32_t kind, uint64_t number)
{
    const uint64_t name[] = {kind, number};
    uint32_t at = weir_hash_slot(weir_hash64_of(name, sizeof name), box->n_places);

    while (box->places[at] != 0 && (box->files[box->places[at] - 1].kind != kind ||
                                    box->files[box->places[at] - 1].number != number)) {
        at = (at + 1) & (box->n_places - 1);
    }
    return &box->places[at];
}

/* Make a larger index. At most half of it is full. */
static bool index_again(struct weir_box *box)
{
    uint32_t n = box->n_places != 0 ? 2 * box->n_places : 64;
    uint32_t *places = calloc(n, sizeof *places);

    if (!places) {
        return false;
    }
    free(box->places);
    box->places = places;
    box->n_places = n;
    for (uint32_t i = box->n_files; i > 0; i--) { /* of equal names the first is found */
        *place_of(box, box->files[i - 1].kind, box->files[i - 1].number) = i;
    }
    return true;
}

void weir_box_put_file(struct weir_box *box, enum weir_box_kind kind, uint64_t number, int fd)
{
    uint32_t *place;

    if (!WEIR_GROW(box->files, box->n_files, box->files_room)) {
        box->failed = true;
        return;
    }
    box->files[box->n_files++] = (struct weir_box_file){(uint32_t)kind, fd, number};
    if (2 * box->n_files > box->n_places) {
        box->failed |= !index_again(box);
        return;
    }
    place = place_of(box, (uint32_t)kind, number);
    *place = *place != 0 ? *place : box->n_files;
}

uint32_t weir_box_find_file(const struct weir_box *box, enum weir_box_kind kind, uint64_t number)
{
    return box->n_places != 0 ? *place_of(box, (uint32_t)kind, number) : 0;
}

int weir_box_take_file(struct weir_box *box, enum weir_box_kind kind, uint64_t number)
{
    uint32_t at = weir_box_find_file(box, kind, number);
    int fd = at != 0 ? box->files[at - 1].fd : -1;

    if (at != 0) {
        box->files[at - 1].fd = -1;
    }
    return fd;
}

/* ---------------------------------------------------------------- closed */

static bool send_files(int socket_fd, const struct weir_box_file *files, uint32_t n)
{
    int fds[WEIR_FDS_ONCE];

    for (uint32_t i = 0; i < n; i++) {
        fds[i] = files[i].fd;
    }
    return weir_fds_send(socket_fd, files, n * sizeof *files, fds, n, MSG_DONTWAIT) ==
           (ssize_t)(n * sizeof *files);
}

/* Make a file of the bytes. -1: see errno. */
static int file_of(const struct weir_box *box)
{
    int fd = weir_memfd_sealed("weir-box", box->n);
    size_t done = 0;

    while (fd >= 0 && done < box->n) {
        ssize_t n = pwrite(fd, box->bytes + done, box->n - done, (off_t)done);

        if (n <= 0) {
            close(fd);
            return -1;
        }
        done += (size_t)n;
    }
    return fd;
}

enum weir_status weir_box_send(const struct weir_box *box, int *ret_fd)
{
    struct weir_box_file first = {.kind = WEIR_BOX_BYTES};
    bool good;
    int pair[2];

    if (box->failed) {
        return WEIR_ERR_NO_MEMORY;
    }
    first.fd = file_of(box);
    if (first.fd < 0) {
        return WEIR_ERR_NO_MEMORY;
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
        close(first.fd);
        return WEIR_ERR_IO;
    }
    good = send_files(pair[0], &first, 1);
    for (uint32_t i = 0; good && i < box->n_files; i += WEIR_FDS_ONCE) {
        uint32_t left = box->n_files - i;

        good = send_files(pair[0], box->files + i, left < WEIR_FDS_ONCE ? left : WEIR_FDS_ONCE);
    }
    close(first.fd);
    close(pair[0]);
    if (!good) {
        close(pair[1]);
        return WEIR_ERR_IO;
    }
    *ret_fd = pair[1];
    return WEIR_OK;
}

/* ---------------------------------------------------------------- opened */

/* Take the descriptors of one message. WEIR_ERR_CLOSED: there is none left. */
static enum weir_status receive_files(int socket_fd, struct weir_box *box)
{
    struct weir_box_file files[WEIR_FDS_ONCE];
    int fds[WEIR_FDS_ONCE], flags;
    uint32_t n;
    ssize_t bytes = weir_fds_receive(socket_fd, files, sizeof files, MSG_DONTWAIT, fds,
                                     WEIR_FDS_ONCE, &n, &flags);

    if (bytes == 0) {
        return WEIR_ERR_CLOSED;
    }
    for (uint32_t i = 0; i < n; i++) {
        bool known = (i + 1) * sizeof *files <= (size_t)bytes;

        weir_box_put_file(box, known ? (enum weir_box_kind)files[i].kind : WEIR_BOX_BYTES,
                          known ? files[i].number : UINT64_MAX, fds[i]);
    }
    if ((flags & MSG_CTRUNC) != 0) {
        return WEIR_ERR_NO_DESCRIPTOR;
    }
    return n != 0 && n * sizeof *files == (size_t)bytes ? WEIR_OK : WEIR_ERR_PEER;
}

static enum weir_status read_bytes(struct weir_box *box)
{
    int fd = weir_box_take_file(box, WEIR_BOX_BYTES, 0);
    enum weir_status status = WEIR_ERR_PEER;
    struct stat info;

    if (fd < 0) {
        return WEIR_ERR_PEER;
    }
    if (fstat(fd, &info) == 0 && info.st_size > 0) {
        box->n = (size_t)info.st_size;
        box->bytes = malloc(box->n);
        status = !box->bytes                                           ? WEIR_ERR_NO_MEMORY
                 : pread(fd, box->bytes, box->n, 0) == (ssize_t)box->n ? WEIR_OK
                                                                       : WEIR_ERR_PEER;
    }
    close(fd);
    return status;
}

enum weir_status weir_box_receive(int fd, struct weir_box *ret_box)
{
    struct weir_box box = {0};
    enum weir_status status;

    do {
        status = receive_files(fd, &box);
    } while (status == WEIR_OK && !box.failed);
    close(fd);
    status = box.failed ? WEIR_ERR_NO_MEMORY : status;
    status = status == WEIR_ERR_CLOSED ? read_bytes(&box) : status;
    if (status != WEIR_OK) {
        weir_box_finish(&box, true);
        return status;
    }
    *ret_box = box;
    return WEIR_OK;
}

const void *weir_box_get(struct weir_box *box, size_t bytes)
{
    size_t padded = (bytes + 7) & ~(size_t)7;
    const void *at = box->bytes + box->at;

    if (box->failed || padded < bytes || padded > box->n - box->at) {
        box->failed = true;
        return NULL;
    }
    box->at += padded;
    return at;
}

void weir_box_finish(struct weir_box *box, bool own)
{
    for (uint32_t i = 0; own && i < box->n_files; i++) {
        if (box->files[i].fd >= 0) {
            close(box->files[i].fd);
        }
    }
    free(box->files);
    free(box->places);
    free(box->bytes);
    *box = (struct weir_box){0};
}
