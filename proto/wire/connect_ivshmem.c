/*
 * The handshake through a region: the guest claims a mailbox, fills it, and reads the answer.
 *
 * Other processes of the guest and the host share the mailbox, so its state is changed by
 * compare-and-swap only, from values with a number of our own. A process that is too slow and loses
 * its mailbox detects that and starts again. The answer is copied once and then checked.
 */
#include "proto/wire/connect_ivshmem.h"
#include "base/clock.h"
#include "base/file_text.h"
#include "proto/transport/fd_message.h"
#include "proto/transport/ivshmem.h"
#include "proto/transport/segment_map.h"
#include "proto/wire/control_codec.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define NAP_NS (100 * WEIR_NS_PER_US)
/* Ring again after this time: the worker may have started meanwhile. */
#define LOOK_NS (200 * WEIR_NS_PER_MS)
/* A host that has not taken the Hello after this time is unresponsive. */
#define DEAF_NS   (3 * WEIR_NS_PER_S)
#define BOOT_FILE "/proc/sys/kernel/random/boot_id"

/* What was read from the mailbox. */
struct answer {
    uint8_t *bytes;
    uint32_t len;
    uint32_t slot;
    uint64_t segment_offset;
};

static void nap(void)
{
    struct timespec time = {.tv_nsec = NAP_NS};
    nanosleep(&time, NULL);
}

static uint32_t pick_number(void)
{
    uint32_t number = 0;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != (ssize_t)sizeof number) {
        number = (uint32_t)weir_clock_now_ns() ^ (uint32_t)getpid() << 8;
    }
    return number & ~WEIR_MAIL_MASK;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Read the kernel's boot id. It stays zero without such a file: then the host cannot distinguish
 * two boots. */
static void read_boot_id(uint8_t id[WEIR_REGION_BOOT_ID_BYTES])
{
    char text[64];
    memset(id, 0, WEIR_REGION_BOOT_ID_BYTES);
    (void)weir_file_text(BOOT_FILE, text, sizeof text);
    int digits = 0;
    for (size_t i = 0; text[i] != 0 && digits < 2 * WEIR_REGION_BOOT_ID_BYTES; i++) {
        int digit = hex_digit(text[i]);
        if (digit >= 0) {
            id[digits / 2] = (uint8_t)(id[digits / 2] << 4 | digit);
            digits++;
        }
    }
}

static bool change(struct weir_region_mailbox *box, uint32_t from, uint32_t to)
{
    return __atomic_compare_exchange_n(&box->state, &from, to, false, __ATOMIC_SEQ_CST,
                                       __ATOMIC_SEQ_CST);
}

/* Claim a mailbox; NULL: the time has passed. */
static struct weir_region_mailbox *claim(const struct weir_region *region, uint32_t number,
                                         uint64_t deadline_ns)
{
    do {
        for (uint32_t i = 0; i < WEIR_REGION_MAILBOXES; i++) {
            struct weir_region_mailbox *box = weir_region_mailbox(region->control, i);
            if (change(box, WEIR_MAIL_FREE, number | WEIR_MAIL_CLAIMED)) {
                return box;
            }
        }
        weir_region_ring(region); /* ring, so that the host frees mailboxes of dead guests */
        nap();
    } while (weir_deadline_left_ns(deadline_ns) != 0);
    return NULL;
}

/* Wait until the mailbox says WELCOME under our number. */
static enum weir_status await(const struct weir_region *region,
                              const struct weir_region_mailbox *box, uint32_t number,
                              uint64_t deadline_ns)
{
    const struct weir_region_header *header = region->control;
    uint64_t start_ns = weir_clock_now_ns(), rang_ns = start_ns;
    for (;;) {
        uint32_t state = __atomic_load_n(&box->state, __ATOMIC_ACQUIRE);
        uint64_t now_ns = weir_clock_now_ns();
        if (state == (number | WEIR_MAIL_WELCOME)) {
            return WEIR_OK;
        }
        if (state != (number | WEIR_MAIL_HELLO) && state != (number | WEIR_MAIL_TAKEN)) {
            return WEIR_ERR_AGAIN; /* the mailbox was taken away by a new worker, or because we were
                                      too slow */
        }
        WEIR_FAIL_IF(__atomic_load_n(&header->epoch, __ATOMIC_ACQUIRE) == 0, WEIR_ERR_AGAIN);
        WEIR_FAIL_IF(state == (number | WEIR_MAIL_HELLO) && now_ns - start_ns > DEAF_NS,
                     WEIR_ERR_NOT_FOUND);
        WEIR_FAIL_IF(weir_deadline_left_ns(deadline_ns) == 0, WEIR_ERR_TIMED_OUT);
        if (now_ns - rang_ns > LOOK_NS) {
            rang_ns = now_ns;
            weir_region_ring(region);
        }
        nap();
    }
}

static enum weir_status copy_answer(const struct weir_region_mailbox *box, struct answer *answer)
{
    answer->len = box->welcome_bytes;
    answer->slot = box->slot;
    answer->segment_offset = box->segment_offset;
    WEIR_FAIL_IF(answer->len > WEIR_REGION_MAIL_BYTES, WEIR_ERR_PEER);
    answer->bytes = malloc(answer->len + 1);
    WEIR_FAIL_IF(!answer->bytes, WEIR_ERR_NO_MEMORY);
    memcpy(answer->bytes, box->welcome, answer->len);
    return WEIR_OK;
}

static enum weir_status exchange(const struct weir_region *region,
                                 const struct weir_control_bytes *hello, uint64_t deadline_ns,
                                 struct answer *answer)
{
    uint32_t number = pick_number();
    struct weir_region_mailbox *box = claim(region, number, deadline_ns);
    WEIR_FAIL_IF(!box, WEIR_ERR_TIMED_OUT);
    memcpy(box->hello, hello->bytes, hello->len);
    box->hello_bytes = (uint32_t)hello->len;
    read_boot_id(box->boot_id);
    /* M1: publishes the Hello; meets the worker's acquire of the state. */
    WEIR_FAIL_IF(!change(box, number | WEIR_MAIL_CLAIMED, number | WEIR_MAIL_HELLO),
                 WEIR_ERR_AGAIN);
    weir_region_ring(region);
    enum weir_status status = await(region, box, number, deadline_ns);
    if (status == WEIR_OK) {
        status = copy_answer(box, answer);
        (void)change(box, number | WEIR_MAIL_WELCOME, WEIR_MAIL_FREE);
    } else {
        (void)change(box, number | WEIR_MAIL_HELLO, WEIR_MAIL_FREE);
    }
    return status;
}

/* Does this part of the region lie where the host says? */
static bool part_fits(const struct weir_region *region, uint64_t offset, uint64_t bytes)
{
    return offset >= WEIR_REGION_CONTROL_BYTES && offset % WEIR_REGION_UNIT_BYTES == 0 &&
           offset <= region->bytes && bytes <= region->bytes - offset;
}

static enum weir_status start(const struct weir_region *region, uint64_t epoch,
                              const struct answer *answer, const struct weir_welcome *welcome,
                              struct weir_transport **ret_transport)
{
    struct weir_segment_view view;
    if (answer->slot >= WEIR_REGION_SLOTS ||
        strcmp(welcome->transport, weir_transport_kind(region->id)->name) != 0 ||
        !part_fits(region, answer->segment_offset, welcome->segment_bytes)) {
        return WEIR_ERR_PEER;
    }
    WEIR_TRY(
        weir_segment_map_at(region->fd, answer->segment_offset, welcome->segment_bytes, &view));
    enum weir_status status = WEIR_ERR_PEER;
    if (view.n_words == welcome->n_words && view.arena_bytes == welcome->arena_bytes) {
        status =
            weir_ivshmem_guest(region, answer->slot, welcome->session, epoch, &view, ret_transport);
    }
    if (status != WEIR_OK) {
        weir_segment_unmap(&view);
    }
    return status;
}

static enum weir_status talk(const struct weir_region *region, const struct weir_hello *hello,
                             uint64_t deadline_ns, struct weir_transport **ret_transport,
                             struct weir_welcome **ret_welcome)
{
    const struct weir_region_header *header = region->control;
    uint64_t epoch = __atomic_load_n(&header->epoch, __ATOMIC_ACQUIRE);
    struct weir_control_bytes request = {0};
    struct answer answer = {0};
    WEIR_FAIL_IF(epoch == 0, WEIR_ERR_AGAIN);
    enum weir_status status = weir_hello_encode(hello, &request);
    WEIR_THEN(status, request.len <= WEIR_REGION_MAIL_BYTES
                          ? exchange(region, &request, deadline_ns, &answer)
                          : WEIR_ERR_TOO_BIG);
    WEIR_THEN(status, weir_welcome_decode(answer.bytes, answer.len, ret_welcome));
    WEIR_THEN(status, (*ret_welcome)->status);
    WEIR_THEN(status, start(region, epoch, &answer, *ret_welcome, ret_transport));
    free(answer.bytes);
    free(request.bytes);
    return status;
}

enum weir_status weir_connect_ivshmem(const char *path, const struct weir_hello *hello,
                                      uint64_t deadline_ns, struct weir_transport **ret_transport,
                                      struct weir_welcome **ret_welcome)
{
    struct weir_region region;
    WEIR_TRY(weir_region_open(path, &region));
    enum weir_status status = talk(&region, hello, deadline_ns, ret_transport, ret_welcome);
    if (status != WEIR_OK) {
        weir_region_close(&region);
    }
    return status;
}
