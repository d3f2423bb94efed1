/*
 * Replaces pages of the program by memory of the worker, and back.
 *
 *     host_replace     the worker makes a memory file and maps it
 *     steps            each, with all other threads stopped, moves at most STEP_BYTES into the file
 *                      and the file's mapping over them (run_alone.c)
 *     host_replaced    the worker registers it with the driver
 *
 * /proc shows in which mappings the pages lie, and on the way back which of them are still there:
 * the program may have unmapped some, or mapped others. Without /proc nothing is shared.
 */
#include "guest_lib/shared_pages.h"
#include "base/fd.h"
#include "base/grow.h"
#include "base/log.h"
#include "guest_lib/maps.h"
#include "guest_lib/run_alone.h"
#include "proto/guest_calls.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/userfaultfd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A step's bytes are in memory twice. Moving them stops the threads for about 0.2 ms per MiB. */
#define STEP_BYTES (32ull << 20)
#define STEP_MOVES 256u /* most ranges of pages in one step */

/* Constants that the oldest headers for this build do not have. */
#define POPULATE_READ    22
#define POPULATE_WRITE   23
#define FEATURE_MOVE     (1ull << 16) /* a feature of userfaultfd, Linux 6.8 */
#define MOVE_ALLOW_HOLES 2
struct move_pages {
    uint64_t to, from, bytes, mode;
    int64_t moved;
};
#define UFFD_MOVE _IOWR(UFFDIO, 0x05, struct move_pages)

struct piece {
    uint64_t first, bytes;
    uint64_t device; /* device address of the first page */
    uint64_t inode, offset;
    uint64_t shown; /* the offset as /proc shows it, to which PCI adds a device's own address */
    unsigned int major, minor;
    uint32_t users;
    bool of_host;   /* the worker still has the region */
    bool bad;       /* some of its pages could not be moved */
    bool ended;     /* its pages are private again */
    uint64_t moved; /* bytes that have been moved */
    /* While the piece is being shared: a mapping of the part that has not been moved. */
    uint8_t *file;
};

/* A part of a mapping of the program. */
struct part {
    uint64_t from, to;
    int protection;
};

struct parts {
    uint64_t from, to; /* the addresses that are examined */
    bool of_pieces;    /* look for pages of pieces, else for private memory */
    bool no_files;     /* exclude pages of files: a second copy would take memory */
    struct part *all;
    size_t n, room;
    bool short_of_memory;
    bool queues; /* the process has a ring of aio or io_uring */
};

/* Pages that move in one step. */
struct move {
    struct piece *piece;
    uint8_t *program, *file;
    uint64_t bytes;
    int protection;
};

/* The current step; there is one at a time. It is not on a stack, since pages of stacks move,
 * too. */
static struct {
    struct move moves[STEP_MOVES];
    size_t n;
    uint64_t bytes;
    int uffd;       /* userfaultfd to test whether pages are pinned; -1: no test is needed */
    bool populates; /* the kernel can say whether pages may be read */
    const char *why;
} step = {.uffd = -1};

static struct piece **pieces; /* sorted by address */
static size_t n_pieces, room_pieces;

/* Copied pages for the current fork(). */
static struct fork_copy {
    uint8_t *program, *copy;
    uint64_t bytes;
    struct fork_copy *next;
} * fork_copies;

/* ---------------------------------------------------------------- pieces */

/* Find the first piece that ends behind an address. */
static size_t piece_after(uint64_t address)
{
    size_t low = 0, high = n_pieces;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (pieces[middle]->first + pieces[middle]->bytes <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool make_room(size_t more)
{
    if (n_pieces + more > room_pieces) {
        size_t room = 2 * (n_pieces + more);
        struct piece **bigger = realloc(pieces, room * sizeof(*bigger));
        WEIR_FAIL_IF(!bigger, false);
        pieces = bigger;
        room_pieces = room;
    }
    return true;
}

static void enter(struct piece *piece)
{
    size_t at = piece_after(piece->first);
    memmove(&pieces[at + 1], &pieces[at], (n_pieces - at) * sizeof(*pieces));
    pieces[at] = piece;
    n_pieces++;
}

bool weir_pages_visit_gaps(uint64_t first, uint64_t bytes,
                           bool (*fn)(const struct weir_page_run *gap, void *user), void *user)
{
    uint64_t at = first, end = first + bytes;
    for (size_t i = piece_after(first); at < end; i++) {
        uint64_t next = i < n_pieces && pieces[i]->first < end ? pieces[i]->first : end;
        if (next > at && !fn(&(struct weir_page_run){at, next - at}, user)) {
            return false;
        }
        at = next < end ? next + pieces[i]->bytes : end;
    }
    return true;
}

static bool is_gap(const struct weir_page_run *gap, void *user)
{
    (void)gap;
    (void)user;
    return false;
}

bool weir_pages_use(uint64_t first, uint64_t bytes, uint64_t *ret_device)
{
    size_t from = piece_after(first), to = piece_after(first + bytes - 1) + 1;
    WEIR_FAIL_IF(!weir_pages_visit_gaps(first, bytes, is_gap, NULL), false);
    uint64_t shift = pieces[from]->device - pieces[from]->first;
    for (size_t i = from; i < to; i++) {
        WEIR_FAIL_IF(!pieces[i]->of_host || pieces[i]->device - pieces[i]->first != shift, false);
    }
    for (size_t i = from; i < to; i++) {
        pieces[i]->users++;
    }
    *ret_device = first + shift;
    return true;
}

uint64_t weir_pages_at(uint64_t address, uint64_t *ret_device, uint64_t *ret_next)
{
    size_t at = piece_after(address);
    const struct piece *piece = at < n_pieces ? pieces[at] : NULL;
    if (!piece || piece->first > address || !piece->of_host) {
        *ret_next = piece && piece->first > address ? piece->first - address : UINT64_MAX;
        return 0;
    }
    *ret_device = piece->device + (address - piece->first);
    return piece->bytes - (address - piece->first);
}

/* ---------------------------------------------------------------- mappings, from the kernel */

/* Is the mapping a piece's file, with the pages in their places? */
static bool is_of_piece(const struct weir_mapping *map, uint64_t from)
{
    size_t at = piece_after(WEIR_MAX(map->from, from));
    const struct piece *piece = at < n_pieces ? pieces[at] : NULL;
    return piece && map->shared && piece->first < map->to && map->inode == piece->inode &&
           map->major == piece->major && map->minor == piece->minor &&
           map->offset - map->from == piece->shown - piece->first;
}

static bool note_part(const struct weir_mapping *map, void *user)
{
    struct parts *parts = user;
    parts->queues |= strstr(map->path, "[aio]") || strstr(map->path, "[io_uring]");
    bool wanted = parts->of_pieces ? is_of_piece(map, parts->from)
                                   : !map->shared && (map->protection & PROT_READ) &&
                                         !(parts->no_files && map->inode);
    if (!wanted || map->to <= parts->from || map->from >= parts->to) {
        return true;
    }
    if (!WEIR_GROW(parts->all, parts->n, parts->room)) {
        parts->short_of_memory = true;
        return false;
    }
    parts->all[parts->n++] = (struct part){map->from > parts->from ? map->from : parts->from,
                                           WEIR_MIN(map->to, parts->to), map->protection};
    return true;
}

/* Read parts of mappings. NULL: success; else the reason of the failure. */
static const char *read_parts(struct parts *parts)
{
    if (!weir_maps_visit(note_part, parts)) {
        return "the program has no /proc";
    }
    return parts->short_of_memory ? "the program has no memory for it" : NULL;
}

/* Find the first part that ends behind an address. */
static size_t part_after(const struct parts *parts, uint64_t address)
{
    size_t low = 0, high = parts->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (parts->all[middle].to <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool are_there(const struct parts *parts, const struct weir_page_run *run)
{
    uint64_t at = run->first, end = run->first + run->bytes;
    for (size_t i = part_after(parts, at); at < end; i++) {
        if (i == parts->n || parts->all[i].from > at) {
            return false;
        }
        at = parts->all[i].to;
    }
    return true;
}

/*
 * A stack that grows downwards needs a mapping of its own kind: by reading there, make the kernel
 * create one below the pages, if there is none.
 */
static void keep_growing(uint64_t first)
{
    static const struct timespec at_once;
    syscall(SYS_futex, first - sizeof(uint32_t), FUTEX_WAIT_PRIVATE, 0, &at_once, NULL, 0);
}

/* ---------------------------------------------------------------- steps */

/* Returns how many of the bytes the kernel could move; absent pages count as moved. */
static uint64_t ask_to_move(void *to, const void *from, uint64_t bytes)
{
    uint64_t done = 0;
    while (done < bytes) {
        struct move_pages ask = {.to = (uintptr_t)to + done,
                                 .from = (uintptr_t)from + done,
                                 .bytes = bytes - done,
                                 .mode = MOVE_ALLOW_HOLES};
        if (ioctl(step.uffd, UFFD_MOVE, &ask) == 0) {
            return bytes;
        }
        if (ask.moved <= 0) {
            break;
        }
        done += (uint64_t)ask.moved;
    }
    return done;
}

/* Is it certain that nothing has pinned the pages? The kernel does not move pinned pages. */
static bool are_free(const struct move *m)
{
    uint8_t *aside =
        mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_register here = {.range = {(uintptr_t)m->program, m->bytes},
                                   .mode = UFFDIO_REGISTER_MODE_MISSING};
    struct uffdio_register there = {.range = {(uintptr_t)aside, m->bytes},
                                    .mode = UFFDIO_REGISTER_MODE_MISSING};
    uint64_t moved = 0, back = 0;
    if (aside == MAP_FAILED) {
        return false;
    }
    /* Give pages to this process alone, if a child shares them. */
    (void)madvise(m->program, m->bytes, POPULATE_WRITE);
    if (ioctl(step.uffd, UFFDIO_REGISTER, &here) == 0) {
        if (ioctl(step.uffd, UFFDIO_REGISTER, &there) == 0) {
            moved = ask_to_move(aside, m->program, m->bytes);
            back = ask_to_move(m->program, aside, moved);
        }
        (void)ioctl(step.uffd, UFFDIO_UNREGISTER, &here.range);
    }
    memcpy(m->program + back, aside + back, moved - back); /* those that the kernel did not move */
    munmap(aside, m->bytes);
    return moved == m->bytes;
}

/* Move a step's pages while all other threads are stopped. */
static const char *move_in(const struct move *m)
{
    if (step.uffd >= 0 && !are_free(m)) {
        return "it is not sure that nothing else has its pages pinned";
    }
    if (step.populates && madvise(m->program, m->bytes, POPULATE_READ) != 0) {
        return "its mappings have changed meanwhile, or their file has become shorter";
    }
    memcpy(m->file, m->program, m->bytes);
    if ((m->protection != (PROT_READ | PROT_WRITE) &&
         mprotect(m->file, m->bytes, m->protection) != 0) ||
        mremap(m->file, m->bytes, m->bytes, MREMAP_MAYMOVE | MREMAP_FIXED, m->program) ==
            MAP_FAILED) {
        return "the program may have no more mappings, or not there";
    }
    m->piece->moved += m->bytes;
    return NULL;
}

static void move_all_in(void *user)
{
    (void)user;
    for (size_t i = 0; i < step.n; i++) {
        const char *why = step.moves[i].piece->bad ? NULL : move_in(&step.moves[i]);
        if (why) {
            step.moves[i].piece->bad = true;
            step.why = why;
        }
    }
}

static void move_all_out(void *user)
{
    (void)user;
    for (size_t i = 0; i < step.n; i++) {
        const struct move *m = &step.moves[i];
        if (mmap(m->program, m->bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
            m->piece->bad = true;
            continue;
        }
        memcpy(m->program, m->file, m->bytes);
        if (m->protection != (PROT_READ | PROT_WRITE)) {
            (void)mprotect(m->program, m->bytes, m->protection);
        }
    }
}

static bool take_step_in(void)
{
    const char *why = NULL;
    step.populates = madvise(NULL, 0, POPULATE_READ) == 0;
    for (size_t i = 0; i < step.n; i++) { /* do as much as possible while the threads run */
        (void)madvise(step.moves[i].file, step.moves[i].bytes, POPULATE_WRITE);
    }
    bool ran = !step.n || weir_run_alone(move_all_in, NULL, &why);
    step.why = ran ? step.why : why;
    step.n = 0;
    step.bytes = 0;
    return ran;
}

/* Take a step's pages out of the file. This frees the file's pages; the region's are freed when the
 * host learns of the end. */
static bool take_step_out(void)
{
    const char *why = NULL;
    bool ran = !step.n || weir_run_alone(move_all_out, NULL, &why);
    for (size_t i = 0; i < step.n; i++) {
        const struct move *m = &step.moves[i];
        if (ran && !m->piece->bad && !m->piece->of_host) {
            (void)madvise(m->file, m->bytes, MADV_REMOVE);
        }
        munmap(m->file, m->bytes);
    }
    step.n = 0;
    step.bytes = 0;
    if (!ran) {
        weir_log_warn("guest: unregistered pages stay shared memory: %s", why);
    }
    return ran;
}

/* Add a move of at most STEP_BYTES; a full step is executed. */
static bool add_move(const struct move *move, bool (*take_step)(void))
{
    step.moves[step.n++] = *move;
    step.bytes += move->bytes;
    return (step.n < STEP_MOVES && step.bytes < STEP_BYTES) || take_step();
}

/* ---------------------------------------------------------------- sharing */

static int region_of_session(void)
{
    struct weir_transport *transport = weir_guest.channel.transport;
    return transport->ops->region_fd ? transport->ops->region_fd(transport) : -1;
}

static CUresult forget_at_host(const struct piece *piece)
{
    const struct weir_op_host_unregister_in in = {.device_address = piece->device};
    return weir_call_host_unregister(weir_guest_channel(), &in, NULL);
}

static bool note_shown(const struct weir_mapping *map, void *user)
{
    struct piece *piece = user;
    uint64_t at = (uintptr_t)piece->file;
    if (at < map->from || at >= map->to) {
        return true;
    }
    piece->shown = map->offset + (at - map->from);
    return false;
}

static CUresult map_file(struct piece *piece, int fd)
{
    struct statx about;
    void *at =
        mmap(NULL, piece->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)piece->offset);
    WEIR_FAIL_IF(at == MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
    piece->file = at;
    WEIR_FAIL_IF(statx(fd, "", AT_EMPTY_PATH, STATX_INO, &about) != 0, CUDA_ERROR_OPERATING_SYSTEM);
    piece->inode = about.stx_ino;
    piece->major = about.stx_dev_major;
    piece->minor = about.stx_dev_minor;
    piece->shown = piece->offset;
    if (region_of_session() >= 0) {
        (void)weir_maps_visit(note_shown, piece);
    }
    return CUDA_SUCCESS;
}

/* Ask the worker for a piece's memory, and map it at another address. */
static CUresult begin_piece(struct weir_guest_ctx *ctx, const struct weir_page_run *run,
                            struct piece *piece)
{
    struct weir_op_host_replace_in in = {
        .c = ctx->handle, .address = run->first, .bytes = run->bytes};
    struct weir_op_host_replace_out out = {0};
    int fd = region_of_session();
    bool passed = fd < 0;
    *piece = (struct piece){.first = run->first, .bytes = run->bytes};
    weir_mem_fd_lock();
    CUresult result = weir_call_host_replace(weir_guest_channel(), &in, &out);
    piece->of_host = result == CUDA_SUCCESS;
    if (result == CUDA_SUCCESS && passed) {
        result = out.n_fds ? weir_channel_receive_fd(weir_guest_channel(), &fd)
                           : CUDA_ERROR_NOT_SUPPORTED;
    }
    weir_mem_fd_unlock();
    piece->device = out.device_address;
    piece->offset = out.offset;
    result = result == CUDA_SUCCESS ? map_file(piece, fd) : result;
    if (passed && fd >= 0) {
        close(fd);
    }
    keep_growing(run->first);
    return result;
}

static bool move_piece_in(struct piece *piece, const struct parts *parts)
{
    uint64_t at = piece->first, end = piece->first + piece->bytes;
    for (size_t i = part_after(parts, at); at < end; i++) {
        const struct part *part = &parts->all[i];
        uint64_t to = WEIR_MIN(part->to, end);
        while (at < to) {
            uint64_t bytes = to - at < STEP_BYTES ? to - at : STEP_BYTES;
            struct move move = {piece, (uint8_t *)(uintptr_t)at, piece->file + (at - piece->first),
                                bytes, part->protection};
            WEIR_FAIL_IF(!add_move(&move, take_step_in), false);
            at += bytes;
        }
    }
    return true;
}

/* Map pages of a piece once more. Linux makes no copy of a mapping of a device's memory, as a
 * machine's region is; another piece's file is not open any more. */
static void *map_again(const struct piece *piece, void *program, uint64_t bytes)
{
    int fd = region_of_session();
    uint64_t at = (uint64_t)(uintptr_t)program - piece->first;
    return fd < 0 ? mremap(program, 0, bytes, MREMAP_MAYMOVE)
                  : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                         (off_t)(piece->offset + at));
}

static bool make_private(struct piece *piece)
{
    struct parts parts = {
        .from = piece->first, .to = piece->first + piece->bytes, .of_pieces = true};
    const char *why = read_parts(&parts);
    bool good = !why;
    if (why) {
        weir_log_warn("guest: unregistered pages stay shared memory: %s", why);
    }
    for (size_t i = 0; i < parts.n && good; i++) {
        for (uint64_t at = parts.all[i].from, bytes; at < parts.all[i].to && good; at += bytes) {
            uint64_t left = parts.all[i].to - at;
            void *program = (void *)(uintptr_t)at;
            bytes = WEIR_MIN(left, STEP_BYTES);
            void *alias = map_again(piece, program, bytes);
            good = alias != MAP_FAILED && mprotect(alias, bytes, PROT_READ | PROT_WRITE) == 0;
            struct move move = {piece, program, alias, bytes, parts.all[i].protection};
            good = good && add_move(&move, take_step_out);
        }
    }
    good = take_step_out() && good && !piece->bad;
    free(parts.all);
    return good;
}

/* End a piece. The host clears the region's pages when it learns of the end; until then other pages
 * belong to the file. */
static bool end_piece(struct piece *piece)
{
    bool of_region = region_of_session() >= 0;
    piece->bad = false;
    if (piece->of_host && !of_region) {
        piece->of_host = false;
        (void)forget_at_host(piece);
    }
    WEIR_FAIL_IF(!make_private(piece), false);
    if (piece->of_host) {
        (void)forget_at_host(piece);
    }
    return true;
}

void weir_pages_sweep(uint64_t first, uint64_t bytes)
{
    size_t begin = piece_after(first), left = begin, at = begin;
    for (; at < n_pieces && pieces[at]->first < first + bytes; at++) {
        pieces[at]->ended = pieces[at]->users == 0 && end_piece(pieces[at]);
    }
    for (size_t i = begin; i < at; i++) {
        if (pieces[i]->ended) {
            free(pieces[i]);
        } else {
            pieces[left++] = pieces[i];
        }
    }
    memmove(&pieces[left], &pieces[at], (n_pieces - at) * sizeof(*pieces));
    n_pieces -= at - left;
}

void weir_pages_leave(uint64_t first, uint64_t bytes)
{
    for (size_t at = piece_after(first); at < n_pieces && pieces[at]->first < first + bytes; at++) {
        pieces[at]->users--;
    }
    weir_pages_sweep(first, bytes);
}

/* Finish a piece: either all of its pages have moved, or they are all moved back. */
static CUresult finish_piece(struct piece *piece)
{
    const struct weir_op_host_replaced_in in = {.device_address = piece->device};
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (piece->moved == piece->bytes) {
        result = weir_call_host_replaced(weir_guest_channel(), &in, NULL);
    }
    if (result == CUDA_SUCCESS) {
        enter(piece);
        return result;
    }
    /* Unmap the rest; another mapping may have replaced it. */
    if (piece->file && piece->moved < piece->bytes) {
        munmap(piece->file + piece->moved, piece->bytes - piece->moved);
    }
    if (piece->moved != 0) {
        enter(piece);
        weir_pages_sweep(piece->first, piece->bytes);
        return result;
    }
    if (piece->of_host) {
        (void)forget_at_host(piece);
    }
    free(piece);
    return result;
}

/* May the kernel have pinned some of the pages for other purposes? Then each page is tested. */
static const char *look_for_pins(const struct parts *parts, bool must)
{
    struct uffdio_api api = {.api = UFFD_API, .features = FEATURE_MOVE};
    if (!parts->queues && !weir_maps_pinned_bytes()) {
        return NULL;
    }
    step.uffd = must ? (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* user mode */) : -1;
    if (step.uffd >= 0 && ioctl(step.uffd, UFFDIO_API, &api) == 0) {
        return NULL;
    }
    return "the program has pinned pages, or queues of aio or io_uring, and Linux cannot say "
           "whether these pages are among them";
}

static CUresult share_parts(struct weir_guest_ctx *ctx, const struct weir_page_run *runs, size_t n,
                            const struct parts *parts, struct piece **made)
{
    CUresult result = CUDA_SUCCESS;
    bool going = true;
    for (size_t i = 0; i < n; i++) {
        CUresult piece_result = CUDA_ERROR_NOT_SUPPORTED;
        if (!are_there(parts, &runs[i])) {
            step.why = "it is not all private memory that the program may read";
        } else if (going) {
            made[i] = malloc(sizeof(**made));
            piece_result = made[i] ? begin_piece(ctx, &runs[i], made[i]) : CUDA_ERROR_OUT_OF_MEMORY;
        }
        if (piece_result == CUDA_SUCCESS) {
            going = move_piece_in(made[i], parts);
        } else {
            result = piece_result;
        }
    }
    (void)take_step_in();
    for (size_t i = 0; i < n; i++) {
        CUresult piece_result = made[i] ? finish_piece(made[i]) : CUDA_SUCCESS;
        result = result == CUDA_SUCCESS ? piece_result : result;
    }
    return result;
}

CUresult weir_pages_share(struct weir_guest_ctx *ctx, const struct weir_page_run *runs, size_t n,
                          bool must, const char **ret_why)
{
    struct parts parts = {
        .from = runs[0].first, .to = runs[n - 1].first + runs[n - 1].bytes, .no_files = !must};
    struct piece **made = calloc(n, sizeof(*made));
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    step.why = made && make_room(n) ? read_parts(&parts) : "the program has no memory for it";
    step.why = step.why ? step.why : look_for_pins(&parts, must);
    if (!step.why) {
        result = share_parts(ctx, runs, n, &parts, made);
    }
    step.uffd = weir_fd_close(step.uffd);
    *ret_why = step.why;
    free(parts.all);
    free(made);
    return result;
}

/* ---------------------------------------------------------------- fork */

/* Copy pages for a fork. Without memory for a copy, the child shares the pages. */
static void copy_part(const struct part *part)
{
    uint64_t bytes = part->to - part->from;
    void *program = (void *)(uintptr_t)part->from;
    struct fork_copy *copy = malloc(sizeof(*copy));
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *alias = mremap(program, 0, bytes, MREMAP_MAYMOVE);
    bool good =
        copy && at != MAP_FAILED && alias != MAP_FAILED && mprotect(alias, bytes, PROT_READ) == 0;
    if (good) {
        memcpy(at, alias, bytes);
        (void)mprotect(at, bytes, part->protection);
        *copy = (struct fork_copy){program, at, bytes, fork_copies};
        fork_copies = copy;
    } else {
        free(copy);
        if (at != MAP_FAILED) {
            munmap(at, bytes);
        }
    }
    if (alias != MAP_FAILED) {
        munmap(alias, bytes);
    }
}

void weir_pages_before_fork(void)
{
    struct parts parts = {.to = UINT64_MAX, .of_pieces = true};
    const char *why = n_pieces ? read_parts(&parts) : NULL;
    for (size_t i = 0; i < parts.n; i++) {
        copy_part(&parts.all[i]);
    }
    for (size_t i = 0; i < n_pieces && why; i++) { /* without /proc: whole pieces */
        const struct part whole = {pieces[i]->first, pieces[i]->first + pieces[i]->bytes,
                                   PROT_READ | PROT_WRITE};
        copy_part(&whole);
    }
    free(parts.all);
}

void weir_pages_after_fork(bool child)
{
    for (struct fork_copy *copy; (copy = WEIR_POP(fork_copies));) {
        if (child) {
            (void)!mremap(copy->copy, copy->bytes, copy->bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
                          copy->program);
        } else {
            munmap(copy->copy, copy->bytes);
        }
        free(copy);
    }
    n_pieces = child ? 0 : n_pieces;
}
