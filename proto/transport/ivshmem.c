/*
 * Both ends of a session in a VM's region, over the rings of shm.c. The guest's end also opens the
 * region.
 *
 * The guest's end sees in three ways that the host is gone: its slot names another session (the
 * host ended this one), the region's epoch has changed (the worker died, or only QEMU's memory is
 * left), or the worker's heartbeat stops (no process was left to report it). The guest's end has
 * one thread, with all signals blocked: it increments the slot's heartbeat, and holds nothing that
 * a fork could break.
 */
#include "proto/transport/ivshmem.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/file_text.h"
#include "base/thread.h"
#include "proto/transport/shm.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define BEAT_NS (500 * WEIR_NS_PER_MS)
/* After this time without a heartbeat, the host counts as gone. */
#define HOST_BEAT_NS (10 * WEIR_NS_PER_S)
#define BEAT_STACK   (512u << 10) /* the stack also holds the program's static TLS */
#define BAR0_BYTES   4096u

/* ---------------------------------------------------------------- the region */

/* Make the path of a file beside another one. @return false: the path is too long */
static bool beside(const char *path, const char *name, char text[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    int directory = slash ? (int)(slash - path) + 1 : 0;
    int len = snprintf(text, PATH_MAX, "%.*s%s", directory, path, name);
    return len > 0 && len < PATH_MAX;
}

/* Switch on a PCI device's memory space, which is off while no driver has claimed it. Only root may
 * do that. */
static void enable_device(const char *path)
{
    char name[PATH_MAX], now[2];
    if (!beside(path, "enable", name)) {
        return;
    }
    (void)weir_file_text(name, now, sizeof now);
    int fd = now[0] == '1' ? -1 : open(name, O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!write(fd, "1", 1); /* if memory space is still off, reading the magic shows that */
        close(fd);
    }
}

static enum weir_status map_bell(const char *path, struct weir_region *region)
{
    char name[PATH_MAX];
    WEIR_FAIL_IF(!beside(path, "resource0", name), WEIR_ERR_INVALID);
    int fd = open(name, O_RDWR | O_CLOEXEC);
    WEIR_FAIL_IF(fd < 0, weir_status_of_errno(errno));
    void *page = mmap(NULL, BAR0_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    enum weir_status status = page == MAP_FAILED ? weir_status_of_errno(errno) : WEIR_OK;
    close(fd);
    if (status == WEIR_OK) {
        region->bell_page = page;
        region->bell = (volatile uint32_t *)page + WEIR_REGION_BELL_OFFSET / sizeof(uint32_t);
    }
    return status;
}

/* Read the size of a character device's memory from the kernel; 0: unknown, so it is no dax
 * device. */
static uint64_t size_of_device(const struct statx *info)
{
    char name[64], text[32];
    snprintf(name, sizeof name, "/sys/dev/char/%u:%u/size", info->stx_rdev_major,
             info->stx_rdev_minor);
    (void)weir_file_text(name, text, sizeof text);
    return strtoull(text, NULL, 10);
}

static enum weir_status map_control(struct weir_region *region)
{
    struct statx info; /* seeking does not work in sysfs, and fstat() is newer than our glibc */
    WEIR_FAIL_IF(statx(region->fd, "", AT_EMPTY_PATH, STATX_SIZE | STATX_TYPE, &info) != 0,
                 WEIR_ERR_IO);
    bool device = S_ISCHR(info.stx_mode);
    uint64_t size_bytes = device ? size_of_device(&info) : info.stx_size;
    WEIR_FAIL_IF(size_bytes < WEIR_REGION_MIN_BYTES, WEIR_ERR_PEER);
    region->id = device ? WEIR_TRANSPORT_DEVDAX : WEIR_TRANSPORT_IVSHMEM;
    void *control =
        mmap(NULL, WEIR_REGION_CONTROL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, region->fd, 0);
    WEIR_FAIL_IF(control == MAP_FAILED, weir_status_of_errno(errno));
    region->control = control;
    struct weir_region_header header;
    memcpy(&header, control, sizeof header);
    region->bytes = header.bytes;
    bool known = header.magic == WEIR_REGION_MAGIC && header.version == WEIR_REGION_VERSION &&
                 header.bytes >= WEIR_REGION_MIN_BYTES && header.bytes <= size_bytes;
    return known ? WEIR_OK : WEIR_ERR_PEER;
}

enum weir_status weir_region_open(const char *path, struct weir_region *ret_region)
{
    static const char resource[] = "/resource2";
    size_t len = strlen(path);
    bool pci =
        len >= sizeof resource - 1 && strcmp(path + len - (sizeof resource - 1), resource) == 0;
    int saved_errno = errno;
    struct weir_region region = {.fd = open(path, O_RDWR | O_CLOEXEC)};
    enum weir_status status = WEIR_OK;
    if (region.fd < 0) {
        status = weir_status_of_errno(errno);
    } else if (pci) {
        enable_device(path);
        status = map_bell(path, &region);
    }
    WEIR_THEN(status, map_control(&region));
    if (status == WEIR_OK) {
        *ret_region = region;
    } else {
        weir_region_close(&region);
    }
    errno = saved_errno;
    return status;
}

void weir_region_close(struct weir_region *region)
{
    if (region->control) {
        munmap(region->control, WEIR_REGION_CONTROL_BYTES);
    }
    if (region->bell_page) {
        munmap(region->bell_page, BAR0_BYTES);
    }
    weir_fd_close(region->fd);
    *region = (struct weir_region){.fd = -1};
}

void weir_region_ring(const struct weir_region *region)
{
    if (region->bell) {
        *region->bell = WEIR_REGION_HOST_BELL;
    }
}

/* ---------------------------------------------------------------- the guest's end */

struct guest_end {
    struct weir_region region;
    struct weir_region_slot *slot;
    uint64_t session;
    uint64_t epoch;
    uint32_t host_beat;    /* the host's heartbeat as last seen; atomic, as is the next member */
    uint64_t host_beat_ns; /* when host_beat last changed */
    uint32_t stop;         /* atomic, a futex: asks the thread to end */
    pthread_t thread;
};

static void *count_beats(void *user)
{
    struct guest_end *end = user;
    while (!__atomic_load_n(&end->stop, __ATOMIC_ACQUIRE)) {
        __atomic_add_fetch(&end->slot->guest_beat, 1, __ATOMIC_RELEASE);
        weir_futex_wait(&end->stop, 0, BEAT_NS);
    }
    return NULL;
}

static bool start_beats(struct guest_end *end)
{
    return weir_thread_start(&end->thread, BEAT_STACK, count_beats, end) == 0;
}

static bool host_beats(struct guest_end *end, const struct weir_region_header *header)
{
    uint32_t beat = __atomic_load_n(&header->beat, __ATOMIC_ACQUIRE);
    uint64_t now_ns = weir_clock_now_ns();
    /* B2: a thread that sees this heartbeat also sees its time; meets the release below. */
    if (beat != __atomic_load_n(&end->host_beat, __ATOMIC_ACQUIRE)) {
        __atomic_store_n(&end->host_beat_ns, now_ns, __ATOMIC_RELAXED);
        /* B2: store the time first. Otherwise a thread that reads between the two stores, after a
         * long pause, would consider the host dead. */
        __atomic_store_n(&end->host_beat, beat, __ATOMIC_RELEASE);
        return true;
    }
    uint64_t since_ns = __atomic_load_n(&end->host_beat_ns, __ATOMIC_RELAXED);
    return now_ns < since_ns || now_ns - since_ns < HOST_BEAT_NS;
}

static bool guest_end_gone(void *user)
{
    struct guest_end *end = user;
    const struct weir_region_header *header = end->region.control;
    return __atomic_load_n(&end->slot->session, __ATOMIC_ACQUIRE) != end->session ||
           __atomic_load_n(&header->epoch, __ATOMIC_ACQUIRE) != end->epoch ||
           !host_beats(end, header);
}

static void guest_end_leave(void *user)
{
    struct guest_end *end = user;
    if (__atomic_load_n(&end->slot->session, __ATOMIC_ACQUIRE) == end->session) {
        __atomic_store_n(&end->slot->guest_left, 1, __ATOMIC_SEQ_CST);
    }
    weir_region_ring(&end->region);
}

static void guest_end_close(void *user, bool child)
{
    struct guest_end *end = user;
    if (!child) {
        __atomic_store_n(&end->stop, 1, __ATOMIC_RELEASE);
        weir_futex_wake(&end->stop, 1);
        pthread_join(end->thread, NULL);
    }
    weir_region_close(&end->region);
    free(end);
}

static int guest_end_fd(void *user)
{
    return ((struct guest_end *)user)->region.fd;
}

static void guest_end_ring(void *user)
{
    weir_region_ring(&((struct guest_end *)user)->region);
}

enum weir_status weir_ivshmem_guest(const struct weir_region *region, uint32_t slot,
                                    uint64_t session, uint64_t epoch,
                                    const struct weir_segment_view *view,
                                    struct weir_transport **ret_transport)
{
    struct guest_end *end = calloc(1, sizeof *end);
    struct weir_transport *transport;
    WEIR_FAIL_IF(!end, WEIR_ERR_NO_MEMORY);
    *end = (struct guest_end){.region = *region,
                              .slot = weir_region_slot(region->control, slot),
                              .session = session,
                              .epoch = epoch,
                              .host_beat_ns = weir_clock_now_ns()};
    struct weir_shm_params params = {.id = region->id,
                                     .socket_fd = -1,
                                     .pid_fd = -1,
                                     .view = *view,
                                     .hooks = {.gone = guest_end_gone,
                                               .leave = guest_end_leave,
                                               .close = guest_end_close,
                                               .region_fd = guest_end_fd,
                                               .ring_bell = guest_end_ring,
                                               .user = end},
                                     .bell = region->bell,
                                     .bell_value = WEIR_REGION_HOST_BELL};
    params.view.polled = true;
    enum weir_status status = weir_shm_create(&params, &transport);
    if (status == WEIR_OK && !start_beats(end)) {
        free(transport); /* the transport owns only its own memory so far */
        status = WEIR_ERR_NO_MEMORY;
    }
    if (status != WEIR_OK) {
        free(end);
        return status;
    }
    *ret_transport = transport;
    return WEIR_OK;
}

/* ---------------------------------------------------------------- the host's end */

struct host_end {
    struct weir_ivshmem_owner owner;
};

static bool host_end_gone(void *user)
{
    struct host_end *end = user;
    return end->owner.gone(end->owner.user);
}

static void host_end_close(void *user, bool child)
{
    struct host_end *end = user;
    (void)child; /* a worker does not fork */
    end->owner.close(end->owner.user);
    free(end);
}

enum weir_status weir_ivshmem_host(enum weir_transport_id id, const struct weir_segment_view *view,
                                   const struct weir_ivshmem_owner *owner,
                                   struct weir_transport **ret_transport)
{
    struct host_end *end = malloc(sizeof *end);
    WEIR_FAIL_IF(!end, WEIR_ERR_NO_MEMORY);
    end->owner = *owner;
    struct weir_shm_params params = {
        .id = id,
        .is_host = true,
        .socket_fd = -1,
        .pid_fd = -1,
        .view = *view,
        .hooks = {.gone = host_end_gone, .close = host_end_close, .user = end}};
    enum weir_status status = weir_shm_create(&params, ret_transport);
    if (status != WEIR_OK) {
        free(end);
    }
    return status;
}
