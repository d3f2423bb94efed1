/*
 * Decides which pieces (pieces.h) of managed memory lie on the device, where there is more of it
 * than the tenant or the device has room for.
 *
 * Any other piece is memory of the host behind the same device address: kernels reach it over the
 * bus, and copies between the two sides (managed.c) work as before. A piece changes its place only
 * while the session has no work under way. So a running kernel loses nothing, and a launch is right
 * wherever the pieces lie.
 *
 * What a launch names by its arguments counts as used: from the address to the next one that a
 * launch has named in that range. A piece that is used a second time comes to the device, in the
 * place of one that was not used in between. So a program that streams through more than fits moves
 * nothing. It reads each piece once a turn, over the bus or by a move, and a piece that was moved
 * would have to leave again before its next use.
 */
#include "host_backend/worker/memory/managed_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "host_backend/worker/device/streams.h"
#include "host_backend/worker/state/host_calls.h"
#include "host_backend/worker/state/limits.h"
#include "host_backend/worker/state/platform.h"
#include "host_backend/worker/state/tenant.h"
#include <string.h>
#include <time.h>

/* How long a launch, and an allocation, waits for earlier work before pieces move. There is an end,
 * since the work may wait for a later call of the program: then the launch goes on without the
 * move, and the allocation fails. The next LAUNCHES_PAUSE launches do not wait, and twice as many
 * each time. */
#define LAUNCH_WAIT_NS     WEIR_NS_PER_S
#define LAUNCHES_PAUSE     16
#define ALLOCATION_WAIT_NS (2 * WEIR_NS_PER_S)
#define LOOK_NS            (20 * WEIR_NS_PER_US) /* time between two checks of an event */
#define RETRY_LAUNCHES     64 /* launches until the device is asked for memory again */

/* A piece that gets another backing. */
struct move {
    struct weir_managed_range *range;
    uint32_t piece;
    struct weir_backing with;
    enum weir_managed_way way;
};

/* ---------------------------------------------------------------- one piece */

static bool prepare(struct weir_managed *m)
{
    const struct weir_driver *d = m->session->driver;

    if (m->paging.scratch == 0 &&
        d->cuMemAddressReserve(&m->paging.scratch, WEIR_MANAGED_WAYS * WEIR_PIECE_BYTES,
                               m->session->platform->granularity_bytes, 0, 0) != CUDA_SUCCESS) {
        m->paging.scratch = 0;
    }
    for (int i = 0; i < WEIR_MANAGED_WAYS; i++) {
        WEIR_FAIL_IF(!m->paging.ways[i] &&
                         d->cuStreamCreate(&m->paging.ways[i], CU_STREAM_NON_BLOCKING) !=
                             CUDA_SUCCESS,
                     false);
    }
    return m->paging.scratch != 0;
}

void weir_managed_paging_end(struct weir_managed *m)
{
    const struct weir_driver *d = m->session->driver;

    for (uint32_t i = 0; i < m->paging.n_spares; i++) {
        weir_backing_drop(m->session, m->device, WEIR_PIECE_BYTES, m->paging.spares[i]);
    }
    for (int i = 0; i < WEIR_MANAGED_WAYS; i++) {
        if (m->paging.ways[i]) {
            (void)d->cuStreamDestroy_v2(m->paging.ways[i]);
        }
    }
    if (m->paging.scratch != 0) {
        (void)d->cuMemAddressFree(m->paging.scratch, WEIR_MANAGED_WAYS * WEIR_PIECE_BYTES);
    }
}

static CUresult take(struct weir_managed *m, uint64_t bytes, bool on_host,
                     struct weir_backing *ret_backing)
{
    for (uint32_t i = 0; i < m->paging.n_spares && bytes == WEIR_PIECE_BYTES; i++) {
        if (m->paging.spares[i].on_host == on_host) {
            *ret_backing = m->paging.spares[i];
            m->paging.spares[i] = m->paging.spares[--m->paging.n_spares];
            return CUDA_SUCCESS;
        }
    }
    return weir_backing_make(m->session, m->device, bytes, on_host, ret_backing);
}

/* Keep a backing for the next move, or release it: pinning memory of the host takes long. */
static void give(struct weir_managed *m, uint64_t bytes, struct weir_backing backing, bool keep)
{
    if (keep && bytes == WEIR_PIECE_BYTES && m->paging.n_spares < WEIR_MANAGED_SPARES) {
        m->paging.spares[m->paging.n_spares++] = backing;
    } else {
        weir_backing_drop(m->session, m->device, bytes, backing);
    }
}

static uint64_t address_of(const struct move *v)
{
    return v->range->chunk->base + v->piece * WEIR_PIECE_BYTES;
}

static uint64_t scratch_of(const struct weir_managed *m, const struct move *v)
{
    return m->paging.scratch + (uint64_t)v->way * WEIR_PIECE_BYTES;
}

/* Begin to copy the piece's bytes into its new backing. On failure the backing is given back. */
static CUresult begin(struct weir_managed *m, const struct move *v)
{
    uint64_t bytes = weir_piece_bytes(v->range->chunk, v->piece), at = scratch_of(m, v);
    const struct weir_driver *d = m->session->driver;
    CUresult result = weir_backing_map(m->session, m->device, at, bytes, v->with);

    if (result == CUDA_SUCCESS) {
        result = d->cuMemcpyAsync(at, address_of(v), bytes, m->paging.ways[v->way]);
        if (result != CUDA_SUCCESS) {
            (void)d->cuMemUnmap(at, bytes);
        }
    }
    if (result != CUDA_SUCCESS) {
        give(m, bytes, v->with, false);
    }
    return result;
}

/* Put the new backing in the old one's place. */
static CUresult exchange(struct weir_managed *m, const struct move *v, uint64_t bytes)
{
    struct weir_backing was = v->range->chunk->pieces[v->piece].now;

    WEIR_TRY(m->session->driver->cuMemUnmap(address_of(v), bytes));
    CUresult result = weir_backing_map(m->session, m->device, address_of(v), bytes, v->with);
    if (result != CUDA_SUCCESS &&
        weir_backing_map(m->session, m->device, address_of(v), bytes, was) != CUDA_SUCCESS) {
        weir_log_error("managed: memory is lost, for the driver does not map it again; kernels "
                       "that reach it fail session=%llu tenant=%s result=%d",
                       (unsigned long long)m->session->id, m->session->tenant->name, (int)result);
    }
    return result;
}

/* @param keep  the old backing may serve the next move */
static CUresult end(struct weir_managed *m, const struct move *v, bool keep)
{
    struct weir_backing *now = &v->range->chunk->pieces[v->piece].now, was = *now;
    uint64_t bytes = weir_piece_bytes(v->range->chunk, v->piece);
    CUresult result = m->session->driver->cuStreamSynchronize(m->paging.ways[v->way]);

    (void)m->session->driver->cuMemUnmap(scratch_of(m, v), bytes);
    result = result == CUDA_SUCCESS ? exchange(m, v, bytes) : result;
    if (result != CUDA_SUCCESS) {
        give(m, bytes, v->with, false);
        return result;
    }
    *now = v->with;
    weir_session_lacks_room(m->session, was.on_host ? -(int64_t)bytes : (int64_t)bytes);
    m->paging.bytes += bytes;
    give(m, bytes, was, keep);
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- which */

/* Does the present launch use a piece of the host's that is to come to the device? */
static bool is_wanted(const struct weir_managed *m, const struct weir_piece *p)
{
    return p->now.on_host && p->used == m->paging.launches &&
           (p->in_node || p->place == WEIR_MANAGED_ON_DEVICE ||
            (p->before != 0 && p->place != WEIR_MANAGED_ON_HOST));
}

/* The n-th such piece. */
static bool find_wanted(struct weir_managed *m, uint32_t n, struct move *ret)
{
    for (struct weir_managed_range *r = m->ranges; r; r = r->next) {
        for (uint32_t i = 0; i < weir_pieces_count(r->chunk); i++) {
            if (is_wanted(m, &r->chunk->pieces[i]) && n-- == 0) {
                *ret = (struct move){.range = r, .piece = i, .way = WEIR_MANAGED_TO_DEVICE};
                return true;
            }
        }
    }
    return false;
}

/* Pieces leave the device in this order: those that the program wants on the host, then those that
 * were not used for longest, and behind all others those that it wants on the device. */
static uint64_t turn_of(const struct weir_piece *p)
{
    const uint64_t last = UINT64_C(1) << 63;

    return p->place == WEIR_MANAGED_ON_HOST
               ? 0
               : (p->used + 1) | (p->place == WEIR_MANAGED_ON_DEVICE ? last : 0);
}

/* May a piece leave in favour of a wanted one (NULL: of other memory)? Not if it was used since the
 * wanted one was, before now. Where the program wants only one of the two on the device, that one
 * stays or comes as long as this launch does not use the other. */
static bool may_leave(const struct weir_managed *m, const struct weir_piece *p,
                      const struct weir_piece *wanted)
{
    if (p->now.on_host || p->in_node || !wanted) {
        return !p->now.on_host && !p->in_node;
    }
    if (wanted->in_node) {
        return p->used < m->paging.launches;
    }
    if (p->place == wanted->place) {
        return p->used < wanted->before;
    }
    return p->place != WEIR_MANAGED_ON_DEVICE && p->used < m->paging.launches;
}

/* The piece that leaves the device next. */
static bool find_victim(struct weir_managed *m, const struct weir_piece *wanted, struct move *ret)
{
    const struct weir_piece *first = NULL;

    for (struct weir_managed_range *r = m->ranges; r; r = r->next) {
        for (uint32_t i = 0; i < weir_pieces_count(r->chunk); i++) {
            const struct weir_piece *p = &r->chunk->pieces[i];

            if (may_leave(m, p, wanted) && (!first || turn_of(p) < turn_of(first))) {
                first = p;
                *ret = (struct move){.range = r, .piece = i, .way = WEIR_MANAGED_TO_HOST};
            }
        }
    }
    return first != NULL;
}

static const struct weir_piece *piece_of(const struct move *v)
{
    return &v->range->chunk->pieces[v->piece];
}

uint64_t weir_managed_piece(const struct weir_session *session, uint64_t address)
{
    struct weir_managed *m = session->devices.managed;
    /* Only this thread changes the list. */
    const struct weir_managed_range *r = m ? weir_managed_find_locked(m, address) : NULL;

    return r && r->chunk->pieces ? address - (address - r->chunk->base) % WEIR_PIECE_BYTES : 0;
}

/* The present launch uses a piece. */
static void use(const struct weir_managed *m, struct weir_piece *p)
{
    if (p->used != m->paging.launches) {
        p->before = p->used;
        p->used = m->paging.launches;
    }
}

static void note_use(struct weir_managed *m, uint64_t address)
{
    struct weir_managed_range *r = weir_managed_find_locked(m, address);
    uint32_t first, n;

    if (!r || !r->chunk->pieces) {
        return;
    }
    first = (uint32_t)((address - r->chunk->base) / WEIR_PIECE_BYTES);
    n = weir_pieces_count(r->chunk);
    r->chunk->pieces[first].starts = true;
    for (uint32_t i = first; i < n && (i == first || !r->chunk->pieces[i].starts); i++) {
        use(m, &r->chunk->pieces[i]);
    }
}

/* ---------------------------------------------------------------- when */

/* Wait until no work is under way. Faults are served meanwhile. */
static bool rest_locked(struct weir_managed *m, uint64_t wait_ns)
{
    const struct timespec look = {.tv_nsec = LOOK_NS};
    uint64_t end_ns = weir_clock_now_ns() + wait_ns;
    uint64_t now = weir_session_calls(m->session);
    uint32_t device = m->session->device;
    bool idle;

    for (;;) {
        weir_managed_order_locked(m);
        (void)weir_session_switch(m->session, m->device);
        idle = weir_managed_is_idle_locked(m);
        /* If a function of the program runs, it may need this thread. */
        if (idle || weir_host_calls_any(m->session) || weir_clock_now_ns() >= end_ns) {
            break;
        }
        pthread_mutex_unlock(&m->lock);
        (void)nanosleep(&look, NULL);
        pthread_mutex_lock(&m->lock);
    }
    /* The present record's work is still to come: do not count the record. */
    m->ordered_at -= m->ordered_at == now;
    m->done_at -= m->done_at == now;
    if (device != m->device) {
        (void)weir_session_switch(m->session, device);
    }
    return idle;
}

/* Can a wanted piece come to the device, in the place of another or where there is room? */
static bool may_move(struct weir_managed *m)
{
    struct move wanted, victim;
    uint64_t left = weir_session_device_left(m->session, m->device);

    if (!find_wanted(m, 0, &wanted)) {
        return false;
    }
    return find_victim(m, piece_of(&wanted), &victim) ||
           (left >= weir_piece_bytes(wanted.range->chunk, wanted.piece) &&
            m->paging.launches >= m->paging.retry_at);
}

/* Pieces that the launch wants come to the device. At the same time the next victims leave, if the
 * quota has no room for the next piece, or the last one found none. */
static void page_locked(struct weir_managed *m)
{
    CUresult result = CUDA_SUCCESS;
    struct move in, out;
    bool comes, leaves;

    do {
        comes =
            find_wanted(m, 0, &in) &&
            take(m, weir_piece_bytes(in.range->chunk, in.piece), false, &in.with) == CUDA_SUCCESS &&
            (result = begin(m, &in)) == CUDA_SUCCESS;
        leaves = result == CUDA_SUCCESS && find_wanted(m, comes, &out) &&
                 (!comes || weir_session_device_left(m->session, m->device) <
                                weir_piece_bytes(out.range->chunk, out.piece)) &&
                 find_victim(m, piece_of(&out), &out) &&
                 take(m, weir_piece_bytes(out.range->chunk, out.piece), true, &out.with) ==
                     CUDA_SUCCESS &&
                 (result = begin(m, &out)) == CUDA_SUCCESS;
        if (comes && end(m, &in, true) != CUDA_SUCCESS) {
            result = CUDA_ERROR_UNKNOWN;
        }
        if (leaves && end(m, &out, true) != CUDA_SUCCESS) {
            result = CUDA_ERROR_UNKNOWN;
        }
    } while ((comes || leaves) && result == CUDA_SUCCESS);
    for (uint32_t i = m->paging.n_spares; i-- > 0;) {
        if (!m->paging.spares[i].on_host) {
            struct weir_backing left = m->paging.spares[i];

            m->paging.spares[i] = m->paging.spares[--m->paging.n_spares];
            weir_backing_drop(m->session, m->device, WEIR_PIECE_BYTES, left);
        }
    }
}

/* The present launch uses the part's pieces, which a node names; false: none does any more, since
 * they could not come. @return how many of them lie on the host */
static uint32_t use_part(struct weir_managed *m, const struct weir_managed_part *part, bool in_node)
{
    uint32_t n = 0;

    for (uint64_t at = part->address; at - part->address < part->bytes;) {
        const struct weir_managed_range *r = weir_managed_find_locked(m, at);
        struct weir_piece *p;

        if (!r || !r->chunk->pieces) {
            break; /* an allocation lies in one range */
        }
        uint32_t i = (uint32_t)((at - r->chunk->base) / WEIR_PIECE_BYTES);
        p = &r->chunk->pieces[i];
        use(m, p);
        p->in_node = in_node || !p->now.on_host;
        n += p->now.on_host;
        at = r->chunk->base + i * WEIR_PIECE_BYTES + weir_piece_bytes(r->chunk, i);
    }
    return n;
}

static uint32_t use_parts(struct weir_managed *m, const struct weir_managed_part *parts, uint32_t n,
                          bool in_node)
{
    uint32_t on_host = 0;

    for (uint32_t i = 0; i < n; i++) {
        on_host += use_part(m, &parts[i], in_node);
    }
    return on_host;
}

CUresult weir_managed_in_node_slow(struct weir_session *session,
                                   const struct weir_managed_part *parts, uint32_t n)
{
    struct weir_managed *m = session->devices.managed;

    WEIR_LOCKED(&m->lock);
    m->paging.launches++;
    if (use_parts(m, parts, n, true) == 0) {
        return CUDA_SUCCESS;
    }
    if (prepare(m) && rest_locked(m, LAUNCH_WAIT_NS)) {
        page_locked(m);
    }
    if (use_parts(m, parts, n, false) == 0) {
        return CUDA_SUCCESS;
    }
    weir_log_warn("managed: a graph cannot have this copy or fill, for its memory lies on the host "
                  "and cannot come to the device now session=%llu tenant=%s",
                  (unsigned long long)session->id, session->tenant->name);
    return CUDA_ERROR_NOT_SUPPORTED;
}

void weir_managed_launches_slow(struct weir_session *session, const void *params, size_t bytes)
{
    struct weir_managed *m = session->devices.managed;

    if (weir_session_lacking_room(session) == 0) {
        return;
    }
    WEIR_LOCKED(&m->lock);
    m->paging.launches++;
    for (size_t at = 0; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
        uint64_t word;

        memcpy(&word, (const uint8_t *)params + at, sizeof word);
        note_use(m, word);
    }
    if (may_move(m) && prepare(m)) {
        bool waits = m->paging.launches >= m->paging.waits_at;

        if (rest_locked(m, waits ? LAUNCH_WAIT_NS : 0)) {
            page_locked(m);
            m->paging.retry_at = m->paging.launches + RETRY_LAUNCHES;
            m->paging.pause = 0;
        } else if (waits) {
            m->paging.pause = m->paging.pause != 0 ? 2 * m->paging.pause : LAUNCHES_PAUSE;
            m->paging.waits_at = m->paging.launches + m->paging.pause;
        }
    }
}

/* ---------------------------------------------------------------- for other memory */

uint64_t weir_managed_on_device(const struct weir_session *session)
{
    const struct weir_managed *m = session->devices.managed;
    uint64_t bytes = 0;

    for (const struct weir_managed_range *r = m ? m->ranges : NULL; r; r = r->next) {
        for (uint32_t i = 0; i < weir_pieces_count(r->chunk); i++) {
            bytes += r->chunk->pieces[i].now.on_host ? 0 : weir_piece_bytes(r->chunk, i);
        }
    }
    return bytes;
}

/* A piece goes to the host, if that has room. Its device memory is freed. */
static bool leave_locked(struct weir_managed *m, struct move *out)
{
    return take(m, weir_piece_bytes(out->range->chunk, out->piece), true, &out->with) ==
               CUDA_SUCCESS &&
           begin(m, out) == CUDA_SUCCESS && end(m, out, false) == CUDA_SUCCESS;
}

uint64_t weir_managed_give_way(struct weir_session *session, uint64_t bytes, uint64_t most)
{
    struct weir_managed *m = session->devices.managed;
    uint64_t gone = 0;
    struct move out;

    if (!m) {
        return 0;
    }
    WEIR_LOCKED(&m->lock);
    if (find_victim(m, NULL, &out) && prepare(m) && rest_locked(m, ALLOCATION_WAIT_NS)) {
        while (gone < bytes && find_victim(m, NULL, &out)) {
            uint64_t piece_bytes = weir_piece_bytes(out.range->chunk, out.piece);

            if (piece_bytes > most - gone || !leave_locked(m, &out)) {
                break;
            }
            gone += piece_bytes;
        }
    }
    return gone;
}

void weir_managed_make_room(struct weir_session *session, uint32_t device, uint64_t bytes)
{
    uint64_t left = weir_session_device_left(session, device);

    if (session->devices.managed && left < bytes) {
        (void)weir_managed_give_way(session, bytes - left, UINT64_MAX);
    }
}

/* ---------------------------------------------------------------- advice */

/* Does the range have at least half of the piece? */
static bool has_most(const struct move *v, uint64_t address, uint64_t bytes)
{
    uint64_t piece_bytes = weir_piece_bytes(v->range->chunk, v->piece);
    uint64_t from = address_of(v), to = from + piece_bytes;
    uint64_t end = bytes < UINT64_MAX - address ? address + bytes : UINT64_MAX;

    from = WEIR_MAX(address, from);
    to = WEIR_MIN(end, to);
    return to > from && 2 * (to - from) >= piece_bytes;
}

/* The next piece that the program wants on the host, and that lies on the device. */
static bool find_misplaced(struct weir_managed *m, struct move *ret)
{
    return find_victim(m, NULL, ret) && piece_of(ret)->place == WEIR_MANAGED_ON_HOST;
}

void weir_managed_place(struct weir_session *session, uint64_t address, uint64_t bytes,
                        enum weir_managed_place place)
{
    struct weir_managed *m = session->devices.managed;
    struct move v;

    if (!m || weir_session_enter(session, m->device) != CUDA_SUCCESS) {
        return;
    }
    WEIR_LOCKED(&m->lock);
    for (v.range = m->ranges; v.range; v.range = v.range->next) {
        for (v.piece = 0; v.piece < weir_pieces_count(v.range->chunk); v.piece++) {
            if (has_most(&v, address, bytes)) {
                v.range->chunk->pieces[v.piece].place = place;
            }
        }
    }
    m->paging.retry_at = 0;
    if (find_misplaced(m, &v) && prepare(m) && rest_locked(m, WEIR_MANAGED_SETTLE_NS)) {
        while (find_misplaced(m, &v) && leave_locked(m, &v)) {
        }
    }
}
