/*
 * A virtual machine's region against a hostile guest: mailboxes from Hello to session or refusal,
 * slots and units, rings of sessions in it, and a worker that takes the region over from another.
 *
 * The input is a script of the guest's writes and of the worker's steps. The region's thread is not
 * started: the script makes it look (weir_region_look_at_mail() and so on), so that an input always
 * does the same; its time is the script's, too. What the worker has in its own memory must stay
 * consistent whatever the guest writes.
 */
#include "base/clock.h"
#include "base/memfd.h"
#include "host_backend/worker/guests.h"
#include "host_backend/worker/memory/region_private.h"
#include "host_backend/worker/regions.h"
#include "host_backend/worker/state/bus_guard.h"
#include "host_backend/worker/state/worker.h"
#include "proto/wire/control_codec.h"
#include "proto/wire/op_hash.h"
#include "tests/fuzz/script.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES        WEIR_REGION_MIN_BYTES
#define STEPS_MAX    200
#define MAILS_MAX    WEIR_REGION_MAILBOXES
#define SESSIONS_MAX 8
#define TAKEN_MAX    8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Linked in place of what the worker calls (CMakeLists.txt). */
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                          void *user);
int __wrap_pthread_join(pthread_t thread, void **ret);
uint64_t __wrap_weir_clock_now_ns(void);
void __wrap_weir_guest_wrote(struct weir_worker *worker, const struct weir_link_guest *guest,
                             struct weir_region_mail *mail, const struct weir_hello *hello);

struct session {
    struct weir_transport *transport;
    struct weir_region_end *end;
    uint64_t taken[TAKEN_MAX];
    uint64_t taken_bytes[TAKEN_MAX];
};

static struct {
    struct weir_worker worker;
    uint8_t *guest; /* its mapping of the region */
    int fd;
    uint64_t id, now_ns;
    struct weir_region_mail *mails[MAILS_MAX];
    struct session sessions[SESSIONS_MAX];
    struct weir_control_bytes hello;
} f;

static void require_at(bool condition, int line)
{
    if (!condition) {
        (void)fprintf(stderr, "fuzz_region.c:%d: does not hold\n", line);
        abort();
    }
}
#define require(condition) require_at((condition), __LINE__)

/* ---------------------------------------------------------------- what the worker gets here */

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                          void *user)
{
    (void)attr;
    (void)run;
    memcpy(thread, &user, sizeof user); /* the region */
    return 0;
}

/* What the thread does when it has been told to stop. */
int __wrap_pthread_join(pthread_t thread, void **ret)
{
    struct region *region;

    (void)ret;
    memcpy(&region, &thread, sizeof region);
    weir_region_look_at_slots(region, true);
    weir_region_put(region);
    return 0;
}

uint64_t __wrap_weir_clock_now_ns(void)
{
    return f.now_ns;
}

void __wrap_weir_guest_wrote(struct weir_worker *worker, const struct weir_link_guest *guest,
                             struct weir_region_mail *mail, const struct weir_hello *hello)
{
    require(worker == &f.worker && guest->tenant_index == 3 && hello == mail->hello);
    for (uint32_t i = 0; i < MAILS_MAX; i++) {
        if (!f.mails[i]) {
            f.mails[i] = mail;
            return;
        }
    }
    weir_region_refuse(mail, WEIR_ERR_QUOTA, CUDA_ERROR_OUT_OF_MEMORY, "too many connections");
}

/* ---------------------------------------------------------------- the guest */

/* Somewhere that matters: a mailbox, a slot, an owner, a segment's header, ring or words. */
static uint8_t *place(struct script *script)
{
    uint32_t what = take(script, 1), offset = take(script, 2);
    uint8_t *base = f.guest;

    switch (what % 5) {
    case 0:
        return (uint8_t *)weir_region_mailbox(base, what / 8 % WEIR_REGION_MAILBOXES) + offset % 48;
    case 1:
        return (uint8_t *)weir_region_slot(base, what / 8) + offset % 64;
    case 2:
        return (uint8_t *)(weir_region_owners(base) + what / 8);
    case 3:
        return base + offset % 128;
    default:
        return base +
               (1 + what / 8 % (BYTES / WEIR_REGION_UNIT_BYTES - 1)) * WEIR_REGION_UNIT_BYTES +
               offset;
    }
}

static void scribble(struct script *script)
{
    uint8_t *at = place(script);
    uint32_t value = take(script, 4);

    memcpy(at, &value, sizeof value);
}

static void write_hello(struct script *script)
{
    uint32_t i = take(script, 1) % WEIR_REGION_MAILBOXES, shape = take(script, 1);
    struct weir_region_mailbox *box = weir_region_mailbox(f.guest, i);

    memcpy(box->hello, f.hello.bytes, f.hello.len);
    box->hello_bytes = (uint32_t)f.hello.len;
    memset(box->boot_id, (int)(shape >> 6), sizeof box->boot_id);
    if ((shape & 7) == 7) {
        box->hello[take(script, 2) % f.hello.len] ^= (uint8_t)take(script, 1);
    } else if ((shape & 7) == 6) {
        box->hello_bytes = take(script, 4);
    }
    box->state = (shape << 3 & ~WEIR_MAIL_MASK) | WEIR_MAIL_HELLO;
}

/* ---------------------------------------------------------------- the worker */

static void check_region(struct region *region)
{
    uint32_t units[WEIR_REGION_SLOTS] = {0}, used = 0;

    for (uint32_t unit = 0; unit < region->n_units; unit++) {
        require(region->owners[unit] <= WEIR_REGION_SLOTS && (unit != 0 || region->owners[0] == 0));
        if (region->owners[unit] != 0) {
            units[region->owners[unit] - 1]++;
        }
    }
    for (uint32_t i = 0; i < WEIR_REGION_SLOTS; i++) {
        const struct slot *slot = &region->slots[i];

        used += slot->state != SLOT_FREE;
        require((slot->state == SLOT_FREE) == (units[i] == 0));
        require(!slot->end ||
                (slot->state == SLOT_OPEN && slot->end->slot == i && slot->end->region == region));
    }
    require(used == region->n_used);
}

static void attach(struct script *script)
{
    struct weir_link_region about = {.id = ++f.id,
                                     .tenant_index = 3,
                                     .bytes = BYTES,
                                     .transport = take(script, 1) & 1 ? WEIR_TRANSPORT_DEVDAX
                                                                      : WEIR_TRANSPORT_IVSHMEM};

    if (!f.worker.regions) {
        weir_region_attach(&f.worker, &about, fcntl(f.fd, F_DUPFD_CLOEXEC, 0), -1);
        require(f.worker.regions != NULL);
    }
}

static void answer(struct script *script)
{
    static struct weir_device device = {.name = "fuzz", .total_memory_bytes = 1 << 30};
    uint32_t shape = take(script, 1);
    struct weir_region_mail **mail = &f.mails[shape % MAILS_MAX];
    struct session *session = &f.sessions[shape / 8 % SESSIONS_MAX];
    struct weir_welcome_params params = {.session = 1 + shape,
                                         .tenant = "a",
                                         .window_base = UINT64_C(1) << 45,
                                         .window_bytes = UINT64_C(1) << 40,
                                         .devices = &device,
                                         .n_devices = 1};

    if (!*mail) {
        return;
    }
    if (session->transport || (shape & 0xc0) == 0xc0) {
        weir_region_refuse(*mail, WEIR_ERR_QUOTA, CUDA_ERROR_OUT_OF_MEMORY, "no");
    } else if (weir_region_welcome(*mail, &params, (shape & 0x40) != 0, &session->transport,
                                   &session->end) != WEIR_OK) {
        session->transport = NULL;
    }
    *mail = NULL;
}

static void receive(struct session *session)
{
    const struct weir_record *record;
    const void *bulk;
    size_t bulk_bytes;

    if (session->transport->ops->receive(session->transport, &record, &bulk, &bulk_bytes, 0, 0) ==
        WEIR_OK) {
        require(record->len_bytes >= sizeof *record && record->len_bytes <= WEIR_RECORD_MAX_BYTES &&
                bulk_bytes == 0);
    }
}

static void reply(struct script *script, struct session *session)
{
    uint32_t words = take(script, 1);
    struct weir_record *record = calloc(1, sizeof *record + words * 8ull);

    if (record) {
        record->len_bytes = (uint32_t)(sizeof *record + words * 8ull);
        (void)!session->transport->ops->send(session->transport, record, NULL, 0, 0);
    }
    free(record);
}

/* Units for pinned memory: nobody else's, and zero. */
static void take_units(struct script *script, struct session *session)
{
    uint32_t i = take(script, 1) % TAKEN_MAX;
    uint64_t bytes = (uint64_t)take(script, 1) << 18, offset;
    int fd;

    if (session->taken_bytes[i] == 0 &&
        weir_region_take(session->end, bytes, &fd, &offset) == WEIR_OK) {
        require(offset >= WEIR_REGION_UNIT_BYTES && offset < BYTES && bytes <= BYTES - offset);
        session->taken[i] = offset;
        session->taken_bytes[i] = bytes;
    } else if (session->taken_bytes[i] != 0) {
        weir_region_give(session->end, session->taken[i], session->taken_bytes[i]);
        session->taken_bytes[i] = 0;
    }
}

/* It is taken apart as session_life.c does it. */
static void end_session(struct session *session)
{
    if (session->transport) {
        weir_region_end_closing(session->end);
        for (uint32_t i = 0; i < TAKEN_MAX; i++) {
            if (session->taken_bytes[i] != 0) {
                weir_region_give(session->end, session->taken[i], session->taken_bytes[i]);
            }
        }
        session->transport->ops->destroy(session->transport);
    }
    *session = (struct session){0};
}

static void step_session(struct script *script, struct session *session)
{
    if (!session->transport) {
        return;
    }
    switch (take(script, 1) % 5) {
    case 0:
        end_session(session);
        break;
    case 1:
        reply(script, session);
        break;
    case 2:
        take_units(script, session);
        break;
    case 3:
        (void)session->transport->ops->peer_gone(session->transport);
        break;
    default:
        receive(session);
        break;
    }
}

static void look(struct script *script)
{
    struct region *region = f.worker.regions;

    f.now_ns += (uint64_t)take(script, 1) << 26; /* up to 17 s */
    if (!region) {
        return;
    }
    weir_region_look_at_mail(region);
    pthread_mutex_lock(&region->lock);
    (void)weir_region_wake_all_locked(region);
    pthread_mutex_unlock(&region->lock);
    weir_region_look_at_slots(region, false);
}

static void step(struct script *script)
{
    switch (take(script, 1) % 9) {
    case 0:
    case 1:
        scribble(script);
        break;
    case 2:
        write_hello(script);
        break;
    case 3:
    case 4:
        look(script);
        break;
    case 5:
        answer(script);
        break;
    case 6:
        attach(script);
        break;
    case 7:
        if (take(script, 1) % 8 == 0) {
            weir_regions_leave(&f.worker);
            weir_regions_finish(&f.worker);
        }
        break;
    default:
        step_session(script, &f.sessions[take(script, 1) % SESSIONS_MAX]);
        break;
    }
    if (f.worker.regions) {
        check_region(f.worker.regions);
    }
}

/* ---------------------------------------------------------------- begin and end */

static void make_hello(void)
{
    static struct weir_op_hashes ops;
    struct weir_hello hello = {.protocol = WEIR_PROTOCOL,
                               .ops = &ops,
                               .pid = 7,
                               .version = WEIR_VERSION,
                               .program = "fuzz",
                               .n_transports = 1,
                               .transports = {"ivshmem"}};

    weir_op_hashes(&ops);
    require(weir_hello_encode(&hello, &f.hello) == WEIR_OK);
}

static void begin(void)
{
    struct weir_region_header header = {
        .magic = WEIR_REGION_MAGIC, .version = WEIR_REGION_VERSION, .bytes = BYTES};

    if (!f.hello.bytes) {
        make_hello();
        pthread_mutex_init(&f.worker.lock, NULL);
    }
    f.now_ns = WEIR_NS_PER_S;
    f.fd = memfd_create("region", MFD_CLOEXEC);
    require(f.fd >= 0 && ftruncate(f.fd, (off_t)BYTES) == 0);
    f.guest = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, f.fd, 0);
    require(f.guest != MAP_FAILED);
    memcpy(f.guest, &header, sizeof header);
}

static void end(void)
{
    for (uint32_t i = 0; i < MAILS_MAX; i++) {
        if (f.mails[i]) {
            weir_region_refuse(f.mails[i], WEIR_ERR_CLOSED, CUDA_ERROR_UNKNOWN, "no");
            f.mails[i] = NULL;
        }
    }
    for (uint32_t i = 0; i < SESSIONS_MAX; i++) {
        end_session(&f.sessions[i]);
    }
    weir_regions_finish(&f.worker);
    munmap(f.guest, BYTES);
    close(f.fd);
    require(weir_bus_guard(1, 1)); /* none is kept for a region that is gone */
    weir_bus_unguard(1, 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct script script = {data, size};

    begin();
    attach(&script);
    for (int i = 0; script.left > 0 && i < STEPS_MAX; i++) {
        step(&script);
    }
    end();
    return 0;
}
