/*
 * The stream transport against a hostile peer: frames in any pieces over a link that takes and
 * gives as little as it likes.
 *
 * The input is a script. What the peer has said is kept, and read a second time here in the
 * plainest way: a record that is received must be the next one of those, and there is no record
 * exactly when the receiver says so.
 */
#include "base/clock.h"
#include "proto/transport/stream.h"
#include "tests/fuzz/script.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define SAID_MAX  (256u << 10)
#define STEPS_MAX 200

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require_at(bool condition, int line)
{
    if (!condition) {
        (void)fprintf(stderr, "fuzz_stream.c:%d: does not hold\n", line);
        abort();
    }
}
#define require(condition) require_at((condition), __LINE__)

/* ---------------------------------------------------------------- what the peer says */

struct speech {
    uint8_t *bytes;
    size_t len, max;
};

static void say(struct speech *speech, const void *bytes, size_t len)
{
    size_t room = speech->max - speech->len;

    len = len < room ? len : room;
    if (len != 0) {
        memcpy(speech->bytes + speech->len, bytes, len);
        speech->len += len;
    }
}

static void say_zeros(struct speech *speech, size_t len)
{
    static const uint8_t zeros[4096];

    for (; len > sizeof zeros; len -= sizeof zeros) {
        say(speech, zeros, sizeof zeros);
    }
    say(speech, zeros, len);
}

static void say_raw(struct speech *speech, struct script *script)
{
    size_t len = take(script, 1) & 63;

    len = len < script->left ? len : script->left;
    say(speech, script->at, len);
    script->at += len;
    script->left -= len;
}

/* A frame that is right, but for what the script changes. */
static void say_frame(struct speech *speech, struct script *script)
{
    uint32_t shape = take(script, 1);
    struct weir_stream_frame frame = {.magic = WEIR_STREAM_MAGIC,
                                      .kind = 1 + (shape & 3),
                                      .head_bytes = 32 + 8 * take(script, shape & 4 ? 2 : 1)};
    struct weir_record record = {.seq = take(script, 1)};

    frame.kind = shape & 8 ? WEIR_STREAM_RECORD : frame.kind;
    frame.head_bytes = frame.kind == WEIR_STREAM_PING ? 0 : frame.head_bytes;
    frame.bulk_bytes = frame.kind == WEIR_STREAM_RECORD && (shape & 16) ? take(script, 2) : 0;
    record.len_bytes = frame.head_bytes;
    if ((shape & 0xe0) == 0xe0) { /* a lie */
        ((uint8_t *)&frame)[take(script, 1) % sizeof frame] ^= (uint8_t)take(script, 1);
    } else if ((shape & 0xe0) == 0xc0) {
        record.len_bytes ^= take(script, 2);
    }
    say(speech, &frame, sizeof frame);
    if (frame.head_bytes >= sizeof record) {
        say(speech, &record, sizeof record);
        say_zeros(speech, (size_t)frame.head_bytes - sizeof record);
    }
    say_zeros(speech, frame.bulk_bytes);
}

/* ---------------------------------------------------------------- what it has said */

struct heard {
    struct weir_stream_frame frame;
    size_t at; /* of the head */
};

enum answer { NOTHING, A_FRAME, A_LIE };

static bool fits(const struct weir_stream_frame *f)
{
    bool record = f->kind == WEIR_STREAM_RECORD;

    if (f->magic != WEIR_STREAM_MAGIC || f->pad != 0 || f->kind < WEIR_STREAM_HELLO ||
        f->kind > WEIR_STREAM_PING || f->head_bytes > WEIR_RECORD_MAX_BYTES ||
        f->bulk_bytes > (record ? WEIR_BULK_MAX_BYTES : 0)) {
        return false;
    }
    if (f->kind == WEIR_STREAM_PING) {
        return f->head_bytes == 0;
    }
    return !record || (f->head_bytes % 8 == 0 && f->head_bytes >= sizeof(struct weir_record));
}

/* The frame at *at that is no ping. */
static enum answer next_frame(const struct speech *said, size_t *at, struct heard *ret)
{
    for (;;) {
        struct weir_record record;

        if (said->len - *at < sizeof ret->frame) {
            return NOTHING;
        }
        memcpy(&ret->frame, said->bytes + *at, sizeof ret->frame);
        if (!fits(&ret->frame)) {
            return A_LIE;
        }
        ret->at = *at + sizeof ret->frame;
        if (said->len - ret->at < (uint64_t)ret->frame.head_bytes + ret->frame.bulk_bytes) {
            return NOTHING;
        }
        *at = ret->at + ret->frame.head_bytes + ret->frame.bulk_bytes;
        if (ret->frame.kind == WEIR_STREAM_RECORD) {
            memcpy(&record, said->bytes + ret->at, sizeof record);
            return record.len_bytes == ret->frame.head_bytes ? A_FRAME : A_LIE;
        }
        if (ret->frame.kind != WEIR_STREAM_PING) {
            return A_FRAME;
        }
    }
}

/* Is there a lie, or what is not expected after the handshake, behind at? */
static bool lies(const struct speech *said, size_t at)
{
    struct heard heard;
    enum answer answer;

    while ((answer = next_frame(said, &at, &heard)) == A_FRAME) {
        if (heard.frame.kind != WEIR_STREAM_RECORD) {
            return true;
        }
    }
    return answer == A_LIE;
}

/* ---------------------------------------------------------------- frames over a link */

struct link {
    struct weir_stream_link base;
    struct speech said;
    size_t read_at;
    size_t read_piece, write_piece; /* at a time; 0 to write: the peer is gone */
    uint32_t full;                  /* so many writes find no room */
    bool ended;
    bool over; /* the receiver was told */
};

static struct link *link_of(struct weir_stream_link *link)
{
    return (struct link *)(void *)link;
}

static ssize_t link_read(struct weir_stream_link *base, void *bytes, size_t len)
{
    struct link *link = link_of(base);
    size_t ready = link->said.len - link->read_at;

    if (ready == 0) {
        return link->ended ? -1 : 0;
    }
    len = len < ready ? len : ready;
    len = len < link->read_piece ? len : link->read_piece;
    memcpy(bytes, link->said.bytes + link->read_at, len);
    link->read_at += len;
    return (ssize_t)len;
}

static ssize_t link_write(struct weir_stream_link *base, struct iovec *parts, int n)
{
    struct link *link = link_of(base);
    static volatile uint8_t sink;
    size_t taken = 0;

    if (link->full > 0) {
        link->full--;
        return 0;
    }
    for (int i = 0; i < n && taken < link->write_piece; i++) {
        size_t room = link->write_piece - taken;
        size_t len = parts[i].iov_len < room ? parts[i].iov_len : room;

        for (size_t k = 0; k < len; k += 64) {
            sink = ((const uint8_t *)parts[i].iov_base)[k]; /* sanitizers judge */
        }
        taken += len;
    }
    (void)sink;
    return link->write_piece == 0 ? -1 : (ssize_t)taken;
}

static void link_close(struct weir_stream_link *base, bool child)
{
    (void)child;
    close(base->fd);
}

static const struct weir_stream_link_ops link_ops = {
    .read = link_read, .write = link_write, .close = link_close};

/* The newest record must be the one that the peer said. */
static void check_record(const struct speech *said, const struct heard *heard,
                         const struct weir_record *record, const void *bulk, size_t bulk_bytes)
{
    require(record->len_bytes == heard->frame.head_bytes &&
            memcmp(record, said->bytes + heard->at, record->len_bytes) == 0);
    require(bulk_bytes == heard->frame.bulk_bytes && (uintptr_t)record % 8 == 0 &&
            (bulk_bytes == 0 ||
             memcmp(bulk, said->bytes + heard->at + heard->frame.head_bytes, bulk_bytes) == 0));
}

static void receive(struct weir_transport *t, struct link *link, size_t *at)
{
    const struct weir_record *record;
    const void *bulk;
    size_t bulk_bytes, from = *at;
    struct heard heard;
    enum weir_status status = t->ops->receive(t, &record, &bulk, &bulk_bytes, 0, 0);
    enum answer answer = next_frame(&link->said, at, &heard);

    if (link->over) {
        require(status == WEIR_ERR_PEER || status == WEIR_ERR_CLOSED);
        return;
    }
    if (status == WEIR_OK) {
        require(answer == A_FRAME && heard.frame.kind == WEIR_STREAM_RECORD);
        check_record(&link->said, &heard, record, bulk, bulk_bytes);
    } else if (status == WEIR_ERR_PEER) {
        require(lies(&link->said, from));
    } else if (status == WEIR_ERR_TIMED_OUT) {
        require(answer == NOTHING && !link->ended);
    } else {
        require(status == WEIR_ERR_CLOSED && answer == NOTHING && link->ended);
    }
    link->over = status == WEIR_ERR_PEER || status == WEIR_ERR_CLOSED;
    if (status != WEIR_OK) {
        *at = from;
    }
}

static void send_one(struct weir_transport *t, uint32_t head, uint32_t bulk_bytes)
{
    struct weir_record *record = calloc(1, sizeof *record + head * 8u);
    uint8_t *bulk = calloc(1, bulk_bytes + 1);

    if (record && bulk) {
        record->len_bytes = (uint32_t)(sizeof *record + head * 8u);
        (void)!t->ops->send(t, record, bulk_bytes ? bulk : NULL, bulk_bytes, 0);
    }
    free(record);
    free(bulk);
}

static void step(struct script *script, struct weir_transport *t, struct link *link, size_t *at)
{
    switch (take(script, 1) % 9) {
    case 0:
        say_raw(&link->said, script);
        break;
    case 1:
    case 2:
        say_frame(&link->said, script);
        break;
    case 3:
        link->read_piece = 1 + take(script, 2);
        break;
    case 4:
        link->write_piece = take(script, 1) * 16;
        link->full = take(script, 1) & 3;
        break;
    case 5:
        send_one(t, take(script, 1), take(script, 2));
        break;
    case 6:
        link->ended = true;
        link->said.max = link->said.len;
        break;
    case 7:
        t->ops->attend(t, 1);
        require(!t->ops->peer_gone(t) || link->over || link->ended || lies(&link->said, *at));
        break;
    default:
        receive(t, link, at);
        break;
    }
}

static void speak_frames(struct script *script)
{
    struct link link = {.base = {.ops = &link_ops, .fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)},
                        .said = {.bytes = malloc(SAID_MAX), .max = SAID_MAX},
                        .read_piece = SIZE_MAX,
                        .write_piece = SIZE_MAX};
    struct weir_transport *t;
    size_t at = 0;

    if (link.said.bytes && weir_stream_create(&link.base, &t) == WEIR_OK) {
        for (int i = 0; script->left > 0 && i < STEPS_MAX; i++) {
            step(script, t, &link, &at);
        }
        receive(t, &link, &at);
        t->ops->destroy(t);
    }
    free(link.said.bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct script script = {.at = data, .left = size};

    speak_frames(&script);
    return 0;
}
