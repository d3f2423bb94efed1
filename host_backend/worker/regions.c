/*
 * Regions of virtual machines: mailboxes, slots, units, and the thread that serves them.
 *
 * A slot is FREE, OPEN (a session), or KEPT: the session has ended and the guest's process has not,
 * so the process may still map its units, as pinned memory or as registered pages. A process counts
 * as ended when it says so (guest_left), when its heartbeat stops for 10 s, when its kernel was
 * booted again, or with its machine. While QEMU itself is stopped (a suspended machine) that time
 * does not pass. A worker that takes a region over finds the slots and units of its predecessor in
 * the region's control part, and keeps them by the same rules. A guest that writes there can only
 * harm its own region.
 *
 * Locking: region->lock guards slots, units and the list of ends; it is taken last.
 */
#include "host_backend/worker/regions.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "host_backend/worker/memory/region_private.h"
#include "host_backend/worker/state/bus_guard.h"
#include "host_backend/worker/state/worker.h"
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TICK_MS   250 /* period of the host's heartbeat, and of checking the guests' heartbeats */
#define SILENT_NS (10 * WEIR_NS_PER_S) /* a process whose heartbeat stopped this long is dead */

/* Sleeps between checks without a bell: right after work was found, after a while, and without any
 * session. The first is about what a sleep costs on both ends. */
#define LOOK_FIRST_NS (50 * WEIR_NS_PER_US)
#define LOOK_LAST_NS  (1 * WEIR_NS_PER_MS)
#define LOOK_IDLE_NS  (20 * WEIR_NS_PER_MS)

static struct weir_region_header *header_of(const struct region *region)
{
    return (struct weir_region_header *)(void *)region->base;
}

/* ---------------------------------------------------------------- who lives */

/* Has the process of a slot ended? */
static bool slot_is_over_locked(struct region *region, uint32_t i)
{
    struct slot *slot = &region->slots[i];
    const struct weir_region_slot *shared = weir_region_slot(region->base, i);
    uint32_t beat = __atomic_load_n(&shared->guest_beat, __ATOMIC_ACQUIRE);

    if (__atomic_load_n(&shared->guest_left, __ATOMIC_ACQUIRE) != 0) {
        return true;
    }
    if (beat != slot->beat) {
        slot->beat = beat;
        slot->beat_ns = region->clock.run_ns;
    }
    return region->clock.run_ns - slot->beat_ns >= SILENT_NS;
}

static void end_slot_locked(struct region *region, uint32_t i)
{
    struct slot *slot = &region->slots[i];

    if (slot->state == SLOT_KEPT) {
        weir_region_free_slot_locked(region, i);
    } else if (slot->state == SLOT_OPEN && slot->end) {
        atomic_store(&slot->end->gone, true); /* the session sees it and frees the slot */
        weir_region_wake_end(slot->end);
    }
}

void weir_region_look_at_slots(struct region *region, bool all)
{
    WEIR_LOCKED(&region->lock);
    (void)weir_vm_clock_advance(&region->clock);
    for (uint32_t i = 0; i < WEIR_REGION_SLOTS && region->n_used != 0; i++) {
        if (region->slots[i].state != SLOT_FREE && (all || slot_is_over_locked(region, i))) {
            end_slot_locked(region, i);
        }
    }
}

/* ---------------------------------------------------------------- the thread */

/* Wait for the bell, or for part of quiet_ns: the time since the guest was last seen active. */
static void wait(struct region *region, struct pollfd waits[2], uint64_t quiet_ns)
{
    uint64_t ns = quiet_ns / 8;
    struct timespec time;

    pthread_mutex_lock(&region->lock);
    bool used = region->n_used != 0;
    pthread_mutex_unlock(&region->lock);
    if (region->bell_fd >= 0) {
        ns = TICK_MS * WEIR_NS_PER_MS;
    } else if (!used) {
        ns = LOOK_IDLE_NS;
    } else {
        ns = ns < LOOK_FIRST_NS ? LOOK_FIRST_NS : WEIR_MIN(ns, LOOK_LAST_NS);
    }
    time.tv_sec = (time_t)(ns / WEIR_NS_PER_S);
    time.tv_nsec = (long)(ns % WEIR_NS_PER_S);
    (void)ppoll(waits, 2, region->bell_fd >= 0 && !used ? NULL : &time, NULL);
}

/* If the file was truncated, the memory of both ends is gone: nothing in it is valid. */
static void look_at_length(struct region *region)
{
    struct stat info;

    if (!weir_region_is_loose(region) || region->cut || fstat(region->fd, &info) != 0 ||
        (uint64_t)info.st_size >= region->about.offset + region->about.bytes) {
        return;
    }
    region->cut = true;
    weir_log_error("region: its file was cut short, the machine is not served any more "
                   "tenant=%u pid=%lld",
                   region->about.tenant_index, (long long)region->about.pid);
    __atomic_store_n(&header_of(region)->epoch, 0, __ATOMIC_RELEASE);
    weir_region_look_at_slots(region, true);
}

static void drain(int fd)
{
    uint64_t count;

    (void)!read(fd, &count, sizeof count);
}

static void *look_after(void *user)
{
    struct region *region = user;
    struct pollfd waits[2] = {{region->stop_fd, POLLIN, 0}, {region->bell_fd, POLLIN, 0}};
    uint64_t ticked_ns = 0, active_ns = weir_clock_now_ns(), now_ns = active_ns;
    bool detached = false, active;

    while (!detached) {
        wait(region, waits, now_ns - active_ns);
        drain(region->stop_fd);
        if (waits[1].revents != 0) {
            drain(region->bell_fd);
        }
        if (!region->cut) {
            weir_region_look_at_mail(region);
        }
        pthread_mutex_lock(&region->lock);
        active = weir_region_wake_all_locked(region);
        detached = region->detached;
        pthread_mutex_unlock(&region->lock);
        now_ns = weir_clock_now_ns();
        active_ns = active ? now_ns : active_ns;
        if (now_ns - ticked_ns >= TICK_MS * WEIR_NS_PER_MS) {
            ticked_ns = now_ns;
            __atomic_add_fetch(&header_of(region)->beat, 1, __ATOMIC_RELEASE);
            look_at_length(region);
            weir_region_look_at_slots(region, false);
        }
    }
    weir_region_look_at_slots(region, true);
    weir_region_put(region);
    return NULL;
}

/* ---------------------------------------------------------------- taking regions over, and
 * dropping them */

/* Take over the slots and units that the last worker has left: their processes may still live. */
static void inherit(struct region *region)
{
    const uint16_t *owners = weir_region_owners(region->base);

    /* Otherwise the first Hello would seem to come from another kernel, and end those processes. */
    memcpy(region->boot_id, header_of(region)->boot_id, sizeof region->boot_id);

    for (uint32_t unit = 1; unit < region->n_units; unit++) {
        uint16_t owner = owners[unit];

        if (owner == 0 || owner > WEIR_REGION_SLOTS) {
            weir_region_own_locked(region, unit, 0);
            continue;
        }
        struct slot *slot = &region->slots[owner - 1];
        region->owners[unit] = owner;
        if (slot->state == SLOT_FREE) {
            *slot = (struct slot){.state = SLOT_KEPT,
                                  .beat = weir_region_slot(region->base, owner - 1u)->guest_beat,
                                  .beat_ns = region->clock.run_ns};
            region->n_used++;
        }
    }
    for (uint32_t i = 0; i < WEIR_REGION_SLOTS; i++) {
        __atomic_store_n(&weir_region_slot(region->base, i)->session, 0, __ATOMIC_RELEASE);
    }
    for (uint32_t i = 0; i < WEIR_REGION_MAILBOXES; i++) {
        struct weir_region_mailbox *box = weir_region_mailbox(region->base, i);

        if ((box->state & WEIR_MAIL_MASK) == WEIR_MAIL_TAKEN) {
            __atomic_store_n(&box->state, WEIR_MAIL_FREE, __ATOMIC_RELEASE);
        }
    }
}

static struct region *make_region(struct weir_worker *worker, const struct weir_link_region *about,
                                  int fd, int bell_fd)
{
    struct region *region = calloc(1, sizeof *region);

    WEIR_FAIL_IF(!region, NULL);
    region->worker = worker;
    region->about = *about;
    region->clock.pid = about->pid;
    region->fd = fd;
    region->bell_fd = bell_fd;
    region->refs = 2; /* references of the list and of the thread */
    region->n_units = (uint32_t)(about->bytes / WEIR_REGION_UNIT_BYTES);
    region->owners = calloc(region->n_units, sizeof *region->owners);
    region->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    region->base = mmap(NULL, about->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd,
                        (off_t)about->offset);
    if (!region->owners || region->stop_fd < 0 || region->base == MAP_FAILED ||
        (weir_region_is_loose(region) &&
         !weir_bus_guard((uint64_t)(uintptr_t)region->base, about->bytes)) ||
        getrandom(&region->epoch, sizeof region->epoch, 0) != (ssize_t)sizeof region->epoch) {
        if (region->base != MAP_FAILED) {
            munmap(region->base, about->bytes);
            weir_bus_unguard((uint64_t)(uintptr_t)region->base, about->bytes);
        }
        weir_fd_close(region->stop_fd);
        free(region->owners);
        free(region);
        return NULL;
    }
    region->epoch |= 1;
    pthread_mutex_init(&region->lock, NULL);
    return region;
}

void weir_region_attach(struct weir_worker *worker, const struct weir_link_region *about, int fd,
                        int bell_fd)
{
    struct region *region = worker->regions;

    while (region && region->about.id != about->id) {
        region = region->next;
    }
    if (region) { /* a new supervisor sends the region again */
        close(fd);
        weir_fd_close(bell_fd);
        return;
    }
    if (about->bytes >= WEIR_REGION_MIN_BYTES && about->bytes <= WEIR_REGION_MAX_BYTES &&
        about->bytes % WEIR_REGION_UNIT_BYTES == 0) {
        region = make_region(worker, about, fd, bell_fd);
    }
    if (region) {
        inherit(region); /* no other thread knows the region yet */
        if (pthread_create(&region->thread, NULL, look_after, region) == 0) {
            region->running = true;
            pthread_mutex_lock(&worker->lock);
            WEIR_PUSH(worker->regions, region);
            pthread_mutex_unlock(&worker->lock);
            __atomic_store_n(&header_of(region)->epoch, region->epoch, __ATOMIC_RELEASE);
            return;
        }
        region->refs = 1;
        weir_region_put(region);
    } else {
        close(fd);
        weir_fd_close(bell_fd);
    }
    weir_log_error("worker: cannot serve a virtual machine's region region=%llu",
                   (unsigned long long)about->id);
}

static void stop(struct region *region)
{
    uint64_t one = 1;

    __atomic_store_n(&header_of(region)->epoch, 0, __ATOMIC_RELEASE);
    pthread_mutex_lock(&region->lock);
    region->detached = true;
    pthread_mutex_unlock(&region->lock);
    (void)!write(region->stop_fd, &one, sizeof one);
    pthread_join(region->thread, NULL);
    weir_region_put(region);
}

void weir_region_detach(struct weir_worker *worker, uint64_t id)
{
    struct region *found = NULL;

    pthread_mutex_lock(&worker->lock);
    for (struct region **at = &worker->regions; *at; at = &(*at)->next) {
        if ((*at)->about.id == id) {
            found = *at;
            *at = found->next;
            break;
        }
    }
    pthread_mutex_unlock(&worker->lock);
    if (found) {
        stop(found);
    }
}

void weir_regions_leave(struct weir_worker *worker)
{
    WEIR_LOCKED(&worker->lock);
    for (struct region *region = worker->regions; region; region = region->next) {
        __atomic_store_n(&header_of(region)->epoch, 0, __ATOMIC_RELEASE);
    }
}

void weir_regions_finish(struct weir_worker *worker)
{
    while (worker->regions) {
        weir_region_detach(worker, worker->regions->about.id);
    }
}
