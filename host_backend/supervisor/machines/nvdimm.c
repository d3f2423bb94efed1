/*
 * A file for each tenant, in memory, that QEMU maps as an NVDIMM.
 *
 *     0 nothing 4 KiB what makes the guest's kernel show the rest as /dev/dax0.0 (dax_info.h) 2 MiB
 *     the region (proto/transport/region.h), all of that device
 *
 * No connection shows when a machine starts and ends. So the supervisor watches the file. When it
 * is opened, the supervisor looks for the process that maps it; the end of that process is the
 * machine's end. Each machine gets a file of its own: when one has ended, its file is unlinked and
 * another one takes its name, so that the next machine sees no old data, and a worker that still
 * ends sessions does so in the old file. A machine that outlives the host is found again by its
 * mapping; if the last host has not noted it (ivshmem_adopt.c), the file's contents are cleared
 * first.
 *
 * The file cannot be sealed, because QEMU opens it by name. It has QEMU's user for owner, so a QEMU
 * that its guest has taken over can truncate it: the worker survives that (state/bus_guard.h).
 *
 * The folder lies in /dev/shm and not beside the sockets, because a guest may fill its file, and
 * /run is small and others need it.
 */
#include "host_backend/supervisor/machines/nvdimm.h"

#include "base/fd.h"
#include "host_backend/supervisor/machines/dax_info.h"
#include "host_backend/supervisor/machines/ivshmem.h"
#include "host_backend/supervisor/state/supervisor.h"

#include "base/clock.h"
#include "base/log.h"
#include "host_backend/config/control.h"
#include "host_backend/supervisor/machines/private.h"
#include "proto/transport/region.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define DATA_OFFSET WEIR_REGION_UNIT_BYTES
#define LOOK_NS     (50 * WEIR_NS_PER_MS) /* time from opening the file until it is mapped */
#define LOOK_FOR_NS (2 * WEIR_NS_PER_S)
#define AGAIN_NS    (1 * WEIR_NS_PER_S) /* pause before a file that had no room is tried again */

/* ---------------------------------------------------------------- the file */

/* Make a folder of our own, into which nobody else can put anything. */
static bool make_folder(const char *path)
{
    char folder[sizeof((struct weir_sup_nvdimm *)NULL)->path];
    struct stat info;

    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    WEIR_FAIL_IF(mkdir(folder, 0711) != 0 && errno != EEXIST, false);
    if (lstat(folder, &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid() ||
        (info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        errno = EPERM;
        return false;
    }
    return chmod(folder, 0711) == 0; /* whatever the umask */
}

/* Write what makes the file a region. The rest reads as zero, and takes no memory yet. */
static bool fill(const struct weir_sup_tenant *tenant)
{
    const struct weir_sup_nvdimm *n = &tenant->nvdimm;
    struct weir_region_header header = {.magic = WEIR_REGION_MAGIC,
                                        .version = WEIR_REGION_VERSION,
                                        .bytes = n->bytes - DATA_OFFSET};
    uint8_t block[WEIR_DAX_INFO_BYTES];

    weir_dax_info_make(n->bytes, DATA_OFFSET, tenant->config.name, block);
    return ftruncate(n->fd, (off_t)n->bytes) == 0 &&
           fallocate(n->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)DATA_OFFSET,
                     (off_t)(n->bytes - DATA_OFFSET)) == 0 &&
           pwrite(n->fd, block, sizeof block, WEIR_DAX_INFO_OFFSET) == (ssize_t)sizeof block &&
           pwrite(n->fd, &header, sizeof header, (off_t)DATA_OFFSET) == (ssize_t)sizeof header;
}

/* Is there room? All of /dev/shm may be smaller than one machine's file, as is common in
 * containers. */
static bool has_room(int fd, uint64_t bytes)
{
    struct statvfs info;

    if (fstatvfs(fd, &info) != 0 || (info.f_blocks != 0 && info.f_blocks * info.f_frsize < bytes)) {
        errno = EFBIG;
        return false;
    }
    return true;
}

static void watch(const struct weir_supervisor *sup, struct weir_sup_nvdimm *n, const char *path)
{
    n->watch = inotify_add_watch(sup->machines->nvdimm_watch_fd, path, IN_OPEN);
    if (n->watch < 0) {
        weir_log_warn("supervisor: a file cannot be watched, so no machine is seen path=%s "
                      "why=\"%s\"",
                      path, strerror(errno));
    }
}

static bool make_file(const struct weir_supervisor *sup, struct weir_sup_tenant *tenant)
{
    struct weir_sup_nvdimm *n = &tenant->nvdimm;
    char part[sizeof n->path + 8];

    /* A file always has the name, since the machine may be started again at once. */
    snprintf(part, sizeof part, "%s.part", n->path);
    n->bytes = sup->config.vm_region_bytes;
    unlink(part);
    n->fd = open(part, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    WEIR_FAIL_IF(n->fd < 0, false);
    weir_sup_give_to_qemu(sup, tenant, part);
    /* Watch the file before it gets its name: from then on a machine may open it. */
    watch(sup, n, part);
    if (!has_room(n->fd, n->bytes) || !fill(tenant) || rename(part, n->path) != 0) {
        int why = errno;

        unlink(part);
        errno = why;
        return false;
    }
    return true;
}

static void forget(const struct weir_supervisor *sup, struct weir_sup_nvdimm *n)
{
    if (n->watch >= 0) {
        (void)inotify_rm_watch(sup->machines->nvdimm_watch_fd, n->watch);
    }
    weir_fd_close(n->fd);
    n->fd = n->watch = -1;
    n->look_until_ns = n->again_ns = 0;
}

/* Make a file for the next machine. If there is no room now, try again later. */
static void offer(const struct weir_supervisor *sup, struct weir_sup_tenant *tenant)
{
    struct weir_sup_nvdimm *n = &tenant->nvdimm;
    bool again = n->again_ns != 0;

    if (make_file(sup, tenant)) {
        n->again_ns = 0;
        if (again) {
            weir_log_info("supervisor: there is room for an NVDIMM again tenant=%s",
                          tenant->config.name);
        }
        return;
    }
    int why = errno;
    unlink(n->path);
    forget(sup, n);
    if (why == EFBIG) { /* common in containers, which need no such file */
        weir_log_info("supervisor: /dev/shm is too small for NVDIMMs tenant=%s bytes=%llu",
                      tenant->config.name, (unsigned long long)sup->config.vm_region_bytes);
        return;
    }
    if (!again) {
        weir_log_warn("supervisor: no NVDIMM for virtual machines tenant=%s path=%s why=\"%s\"",
                      tenant->config.name, n->path, strerror(why));
    }
    if (why == ENOSPC) { /* full until another machine's file, or an old one, goes */
        n->again_ns = weir_host_clock_ns() + AGAIN_NS;
    }
}

/* ---------------------------------------------------------------- machines */

static struct weir_sup_vm *machine_of(struct weir_supervisor *sup,
                                      const struct weir_sup_tenant *tenant)
{
    int at = WEIR_FIRST(i, WEIR_VMS_MAX,
                        sup->machines->vms[i].id != 0 && sup->machines->vms[i].nvdimm &&
                            sup->machines->vms[i].tenant == tenant->index);
    return at < WEIR_VMS_MAX ? &sup->machines->vms[at] : NULL;
}

static bool is_noted(const struct weir_sup_nvdimm *n, pid_t pid)
{
    return n->noted_pid == pid && n->noted_at != 0 &&
           n->noted_at == weir_sup_process_started((int)pid);
}

/* Serve the machine of a process that has the file mapped. Takes pid_fd. */
static bool enter(struct weir_supervisor *sup, struct weir_sup_tenant *tenant, pid_t pid,
                  int pid_fd)
{
    struct weir_sup_nvdimm *n = &tenant->nvdimm;
    bool known = is_noted(n, pid);
    struct weir_sup_vm vm = {.fd = pid_fd,
                             .region_fd = fcntl(n->fd, F_DUPFD_CLOEXEC, 0),
                             .bell_fd = -1,
                             .guest_fd = -1,
                             .pid = pid,
                             .tenant = tenant->index,
                             .offset = DATA_OFFSET,
                             .bytes = n->bytes - DATA_OFFSET,
                             .nvdimm = true,
                             .adopted = true};

    n->noted_pid = 0;
    if (vm.region_fd < 0 || (!known && !fill(tenant)) || !weir_sup_vm_enter(sup, &vm)) {
        weir_log_warn("supervisor: a machine's NVDIMM is not served tenant=%s pid=%d",
                      tenant->config.name, (int)pid);
        close(pid_fd);
        weir_fd_close(vm.region_fd);
        return false;
    }
    weir_log_info("supervisor: virtual machine %stenant=%s pid=%d nvdimm=%lluMiB",
                  known ? "found again " : "", tenant->config.name, (int)pid,
                  (unsigned long long)(n->bytes >> 20));
    return true;
}

/* Look for the process that has the file. @return whether its machine is served now */
static bool look(struct weir_supervisor *sup, struct weir_sup_tenant *tenant)
{
    int pid_fd;
    pid_t pid = weir_sup_holder_of(sup, tenant->nvdimm.fd, &pid_fd);

    return pid > 0 && enter(sup, tenant, pid, pid_fd);
}

/* Take over the file that the last host has left, if a machine still has it. */
static bool take_over(struct weir_supervisor *sup, struct weir_sup_tenant *tenant)
{
    struct weir_sup_nvdimm *n = &tenant->nvdimm;
    struct stat info;

    /* The file's owner, QEMU's user, may hold a lease on it: with O_NONBLOCK open() fails instead
     * of waiting. */
    n->fd = open(n->path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (n->fd < 0) {
        if (errno != ENOENT) {
            weir_log_warn("supervisor: what a machine may have is not served any more tenant=%s "
                          "path=%s why=\"%s\"",
                          tenant->config.name, n->path, strerror(errno));
        }
        return false;
    }
    n->bytes = fstat(n->fd, &info) == 0 && S_ISREG(info.st_mode) ? (uint64_t)info.st_size : 0;
    if (n->bytes >= DATA_OFFSET + WEIR_REGION_MIN_BYTES && n->bytes <= WEIR_REGION_MAX_BYTES &&
        n->bytes % WEIR_REGION_UNIT_BYTES == 0 && (machine_of(sup, tenant) || look(sup, tenant))) {
        watch(sup, n, n->path);
        return true;
    }
    forget(sup, n);
    return false;
}

/* Log if the host lacks the right to trace, and so cannot see which process has a file open. */
static void report_blindness(void)
{
    if (geteuid() == 0 && prctl(PR_CAPBSET_READ, CAP_SYS_PTRACE, 0, 0, 0) == 0) {
        weir_log_info(
            "supervisor: without CAP_SYS_PTRACE machines with NVDIMMs are not served, nor "
            "found again after a restart: see machines.conf in weir's kvm page");
    }
}

void weir_sup_nvdimm_open(struct weir_supervisor *sup, struct weir_sup_tenant *tenant)
{
    struct weir_sup_nvdimm *n = &tenant->nvdimm;

    n->fd = n->watch = -1;
    if (sup->machines->nvdimm_watch_fd < 0) {
        sup->machines->nvdimm_watch_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
        report_blindness();
    }
    if (!weir_control_vm_memory(sup->config.run_dir, tenant->config.name, n->path,
                                sizeof n->path) ||
        !make_folder(n->path)) {
        weir_log_warn("supervisor: no NVDIMM for virtual machines tenant=%s path=%s why=\"%s\"",
                      tenant->config.name, n->path, strerror(errno));
        n->path[0] = 0;
    } else if (!take_over(sup, tenant)) {
        offer(sup, tenant);
    }
}

void weir_sup_nvdimm_close(struct weir_supervisor *sup, struct weir_sup_tenant *tenant)
{
    struct weir_sup_nvdimm *n = &tenant->nvdimm;

    if (n->fd >= 0 && (!sup->life.stopping || !machine_of(sup, tenant))) {
        unlink(n->path);
    }
    forget(sup, n);
}

void weir_sup_nvdimm_gone(struct weir_supervisor *sup, struct weir_sup_tenant *tenant)
{
    struct weir_sup_nvdimm *n = &tenant->nvdimm;
    int pid_fd;

    if (n->fd < 0) {
        return; /* the tenant is removed, too */
    }
    if (weir_sup_holder_of(sup, n->fd, &pid_fd) > 0) {
        close(pid_fd);
        weir_log_error("supervisor: a file was opened while another machine had it, and is not "
                       "served: stop that machine and start it tenant=%s path=%s",
                       tenant->config.name, n->path);
    }
    forget(sup, n);
    offer(sup, tenant);
}

/* ---------------------------------------------------------------- looking */

static void on_open(void *user, int index)
{
    struct weir_supervisor *sup = user;
    _Alignas(struct inotify_event) char bytes[4096];
    ssize_t n = read(sup->machines->nvdimm_watch_fd, bytes, sizeof bytes);

    (void)index;
    for (ssize_t at = 0; at < n;) {
        const struct inotify_event *event = (const struct inotify_event *)(void *)(bytes + at);

        for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
            struct weir_sup_tenant *tenant = &sup->tenants[i];

            if (tenant->used && tenant->nvdimm.fd >= 0 &&
                (event->wd == tenant->nvdimm.watch || (event->mask & IN_Q_OVERFLOW) != 0)) {
                tenant->nvdimm.look_until_ns = weir_host_clock_ns() + LOOK_FOR_NS;
            }
        }
        at += (ssize_t)(sizeof *event + event->len);
    }
}

void weir_sup_nvdimm_watch(struct weir_supervisor *sup, struct weir_host_loop *loop)
{
    uint64_t now_ns = weir_host_loop_now_ns(loop);

    weir_host_loop_watch(loop, sup->machines->nvdimm_watch_fd, POLLIN, on_open, sup, 0);
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        const struct weir_sup_nvdimm *n = &sup->tenants[i].nvdimm;

        if (sup->tenants[i].used && n->look_until_ns > now_ns) {
            weir_host_loop_wake(loop, now_ns + LOOK_NS);
        }
        if (sup->tenants[i].used && n->again_ns != 0) {
            weir_host_loop_wake(loop, n->again_ns);
        }
    }
}

void weir_sup_nvdimm_tick(struct weir_supervisor *sup, uint64_t now_ns)
{
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        struct weir_sup_tenant *tenant = &sup->tenants[i];
        struct weir_sup_nvdimm *n = &tenant->nvdimm;

        if (tenant->used && n->look_until_ns != 0 &&
            (n->look_until_ns <= now_ns || machine_of(sup, tenant) || look(sup, tenant))) {
            n->look_until_ns = 0;
        }
        if (tenant->used && n->again_ns != 0 && n->again_ns <= now_ns) {
            offer(sup, tenant);
        }
    }
}

void weir_sup_nvdimms_finish(struct weir_supervisor *sup)
{
    char path[sizeof((struct weir_sup_nvdimm *)NULL)->path];

    sup->machines->nvdimm_watch_fd = weir_fd_close(sup->machines->nvdimm_watch_fd);
    if (weir_control_vm_memory(sup->config.run_dir, "x", path, sizeof path)) {
        *strrchr(path, '/') = 0;
        (void)rmdir(path); /* fails while a machine's file is in it */
    }
}
