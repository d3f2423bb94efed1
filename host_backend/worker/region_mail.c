/*
 * The mailboxes of a region: from a Hello to a session or a refusal. See regions.c for the model.
 *
 * The guest can write all of a mailbox: so the worker copies a message once before it checks it,
 * and changes a state only from the value that it saw.
 */
#include "host_backend/worker/regions.h"

#include "base/clock.h"
#include "base/log.h"
#include "host_backend/worker/guests.h"
#include "host_backend/worker/memory/region_private.h"
#include "host_backend/worker/state/bus_guard.h"
#include "proto/cuda_abi.h"
#include "proto/transport/ivshmem.h"
#include "proto/transport/segment_map.h"
#include "proto/wire/control_codec.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAIL_NS (5 * WEIR_NS_PER_S) /* how long a mailbox may stay untouched */

#define RING_BYTES          (2u << 20) /* large enough for any record */
#define ARENA_BYTES         (UINT64_C(16) << 20)
#define MONITOR_ARENA_BYTES (UINT64_C(256) << 10)

static bool change(struct weir_region_mailbox *box, uint32_t from, uint32_t to)
{
    return __atomic_compare_exchange_n(&box->state, &from, to, false, __ATOMIC_SEQ_CST,
                                       __ATOMIC_SEQ_CST);
}

static void free_mail(struct weir_region_mail *mail)
{
    weir_region_put(mail->region);
    weir_hello_destroy(mail->hello);
    free(mail);
}

/* Put an answer into the mailbox. false: the guest no longer waits for it. */
static bool answer(const struct weir_region_mail *mail, const struct weir_welcome *welcome,
                   uint32_t slot, uint64_t segment_offset)
{
    struct weir_region_mailbox *box = weir_region_mailbox(mail->region->base, mail->box);
    struct weir_control_bytes bytes = {0};
    bool told = false;

    if (weir_welcome_encode(welcome, &bytes) == WEIR_OK && bytes.len <= WEIR_REGION_MAIL_BYTES &&
        __atomic_load_n(&box->state, __ATOMIC_ACQUIRE) == mail->state) {
        memcpy(box->welcome, bytes.bytes, bytes.len);
        box->welcome_bytes = (uint32_t)bytes.len;
        box->slot = slot;
        box->segment_offset = segment_offset;
        /* M2: publishes the Welcome; meets the guest's acquire of the state. */
        told = change(box, mail->state, (mail->state & ~WEIR_MAIL_MASK) | WEIR_MAIL_WELCOME);
    }
    free(bytes.bytes);
    if (!told) {
        (void)change(box, mail->state, WEIR_MAIL_FREE);
    }
    return told;
}

void weir_region_refuse(struct weir_region_mail *mail, enum weir_status reason, int32_t result,
                        const char *message)
{
    struct weir_welcome refusal = {.status = reason == WEIR_OK ? WEIR_ERR_INTERNAL : reason,
                                   .result = result};

    snprintf(refusal.message, sizeof refusal.message, "%s", message);
    (void)answer(mail, &refusal, 0, 0);
    free_mail(mail);
}

/* If a guest's kernel was booted again, all processes that we know have ended. */
static void note_boot(struct region *region, const uint8_t *boot_id)
{
    static const uint8_t unknown[WEIR_REGION_BOOT_ID_BYTES];

    if (memcmp(boot_id, unknown, sizeof unknown) == 0 ||
        memcmp(boot_id, region->boot_id, sizeof unknown) == 0) {
        return;
    }
    if (memcmp(region->boot_id, unknown, sizeof unknown) != 0) {
        weir_log_info("region: the machine was booted anew region=%llu",
                      (unsigned long long)region->about.id);
    }
    weir_region_look_at_slots(region, true);
    memcpy(region->boot_id, boot_id, sizeof unknown);
    memcpy(((struct weir_region_header *)(void *)region->base)->boot_id, boot_id, sizeof unknown);
}

static void take_hello(struct region *region, uint32_t i, uint32_t state)
{
    struct weir_region_mailbox *box = weir_region_mailbox(region->base, i);
    uint8_t boot_id[WEIR_REGION_BOOT_ID_BYTES];
    uint32_t len = box->hello_bytes, taken = (state & ~WEIR_MAIL_MASK) | WEIR_MAIL_TAKEN;
    struct weir_region_mail *mail = calloc(1, sizeof *mail);
    uint8_t *bytes = len <= WEIR_REGION_MAIL_BYTES ? malloc(len + 1) : NULL;
    char why[WEIR_CONTROL_TEXT_BYTES];

    if (!mail || !bytes) {
        free(mail);
        free(bytes);
        (void)change(box, state, WEIR_MAIL_FREE);
        return;
    }
    memcpy(bytes, box->hello, len); /* the guest may change the hello, so copy it before reading */
    memcpy(boot_id, box->boot_id, sizeof boot_id);
    *mail = (struct weir_region_mail){.region = region, .box = i, .state = taken};
    weir_region_get(region);
    if (!change(box, state, taken) || weir_hello_decode(bytes, len, &mail->hello) != WEIR_OK) {
        (void)change(box, taken, WEIR_MAIL_FREE);
        free_mail(mail);
    } else if (!weir_hello_fits(mail->hello, why, sizeof why)) {
        weir_region_refuse(mail, WEIR_ERR_VERSION, WEIR_RESULT_VERSION, why);
    } else {
        note_boot(region, boot_id);
        const struct weir_link_guest guest = {.tenant_index = region->about.tenant_index,
                                              .generation = region->about.generation,
                                              .pid = region->about.pid};

        weir_guest_wrote(region->worker, &guest, mail, mail->hello);
    }
    free(bytes);
}

/* Handle new Hellos, and mailboxes that were left unfinished. */
void weir_region_look_at_mail(struct region *region)
{
    uint64_t now_ns = weir_clock_now_ns();

    for (uint32_t i = 0; i < WEIR_REGION_MAILBOXES; i++) {
        struct weir_region_mailbox *shared = weir_region_mailbox(region->base, i);
        struct box *box = &region->boxes[i];
        uint32_t state = __atomic_load_n(&shared->state, __ATOMIC_ACQUIRE); /* meets M1 */

        if (state != box->state) {
            box->state = state;
            box->since_ns = now_ns;
        }
        if ((state & WEIR_MAIL_MASK) == WEIR_MAIL_HELLO) {
            take_hello(region, i, state);
        } else if (state != WEIR_MAIL_FREE && (state & WEIR_MAIL_MASK) != WEIR_MAIL_TAKEN &&
                   now_ns - box->since_ns > MAIL_NS) {
            (void)change(shared, state, WEIR_MAIL_FREE);
        }
    }
}

/* Take a slot and a segment for a session. */
static enum weir_status open_slot(struct weir_region_mail *mail, uint64_t session, uint64_t bytes,
                                  struct weir_region_end *end)
{
    struct region *region = mail->region;
    enum weir_status status = WEIR_ERR_QUOTA;
    uint32_t i = 0, unit;

    WEIR_LOCKED(&region->lock);
    while (i < WEIR_REGION_SLOTS && region->slots[i].state != SLOT_FREE) {
        i++;
    }
    if (region->detached) {
        status = WEIR_ERR_CLOSED;
    } else if (i < WEIR_REGION_SLOTS &&
               weir_region_take_locked(region, i, weir_region_units(bytes), &unit)) {
        struct weir_region_slot *shared = weir_region_slot(region->base, i);

        end->region = region;
        end->slot = i;
        end->segment_offset = unit * WEIR_REGION_UNIT_BYTES;
        shared->guest_left = 0;
        __atomic_store_n(&shared->session, session, __ATOMIC_RELEASE);
        region->slots[i] = (struct slot){
            .state = SLOT_OPEN, .beat = shared->guest_beat, .beat_ns = region->clock.run_ns};
        region->n_used++;
        status = WEIR_OK;
    }
    return status;
}

static enum weir_status open_end(struct weir_region_mail *mail, struct weir_welcome *welcome,
                                 const struct weir_segment_params *params,
                                 struct weir_transport **ret_transport, struct weir_region_end *end)
{
    struct weir_ivshmem_owner owner = {weir_region_end_gone, weir_region_end_close, end};
    struct weir_segment_view view = {0};
    bool loose = weir_region_is_loose(mail->region);
    WEIR_TRY(
        open_slot(mail, welcome->session, weir_segment_bytes(params, WEIR_REGION_UNIT_BYTES), end));
    weir_bus_tolerate(loose); /* tolerate bus errors until the guard knows the address */
    enum weir_status status = weir_segment_create_at(
        params, mail->region->fd, weir_region_file_offset(end, end->segment_offset),
        WEIR_REGION_UNIT_BYTES, &view);
    if (status == WEIR_OK && loose && !weir_bus_guard((uint64_t)(uintptr_t)view.base, view.bytes)) {
        status = WEIR_ERR_NO_MEMORY;
    } else if (status == WEIR_OK && loose) {
        end->segment_base = (uint64_t)(uintptr_t)view.base;
        end->segment_bytes = view.bytes;
    }
    weir_bus_tolerate(false);
    end->n_words = view.n_words;
    welcome->segment_bytes = view.bytes;
    welcome->n_words = view.n_words;
    welcome->arena_bytes = view.arena_bytes;
    WEIR_THEN(status, weir_ivshmem_host((enum weir_transport_id)mail->region->about.transport,
                                        &view, &owner, ret_transport));
    if (status != WEIR_OK) {
        weir_segment_unmap(&view);
        weir_bus_unguard(end->segment_base, end->segment_bytes);
        pthread_mutex_lock(&mail->region->lock);
        weir_region_free_slot_locked(mail->region, end->slot);
        pthread_mutex_unlock(&mail->region->lock);
    }
    return status;
}

/* List an end: from now on the region's thread may wake and watch it. */
static void enter_end(struct weir_region_end *end)
{
    struct region *region = end->region;
    uint64_t one = 1;

    pthread_mutex_lock(&region->lock);
    region->refs++; /* the end's reference */
    region->slots[end->slot].end = end;
    if (region->detached) {
        atomic_store(&end->gone, true);
    }
    pthread_mutex_unlock(&region->lock);
    (void)!write(region->stop_fd, &one, sizeof one); /* the thread ticks while there are sessions */
}

enum weir_status weir_region_welcome(struct weir_region_mail *mail,
                                     const struct weir_welcome_params *params, bool monitor,
                                     struct weir_transport **ret_transport,
                                     struct weir_region_end **ret_end)
{
    struct weir_segment_params segment = {
        .ring_bytes = RING_BYTES, .arena_bytes = monitor ? MONITOR_ARENA_BYTES : ARENA_BYTES};
    struct weir_region_end *end = calloc(1, sizeof *end);
    struct weir_welcome *welcome = calloc(1, sizeof *welcome);
    enum weir_status status = WEIR_ERR_NO_MEMORY;

    if (end && welcome) {
        weir_welcome_prepare(params, welcome);
        snprintf(welcome->transport, sizeof welcome->transport, "%s",
                 weir_transport_kind((enum weir_transport_id)mail->region->about.transport)->name);
        status = open_end(mail, welcome, &segment, ret_transport, end);
    }
    if (status != WEIR_OK) {
        free(end);
        free(welcome);
        weir_region_refuse(mail, status, CUDA_ERROR_OUT_OF_MEMORY,
                           status == WEIR_ERR_QUOTA ? "the machine's region is full"
                                                    : weir_status_text(status));
        return status;
    }
    enter_end(end);
    if (!answer(mail, welcome, end->slot, end->segment_offset)) {
        atomic_store(&end->gone, true);
        (*ret_transport)->ops->destroy(*ret_transport);
        status = WEIR_ERR_CLOSED;
    } else {
        *ret_end = end;
    }
    free(welcome);
    free_mail(mail);
    return status;
}
