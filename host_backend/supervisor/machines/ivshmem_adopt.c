/*
 * Virtual machines that outlive the host: a new host finds their regions again.
 *
 * QEMU does not connect a second time, but it holds the region's memfd and the bell as long as the
 * machine runs. So each tenant's machines are noted in a file beside its socket, and the next
 * supervisor takes both descriptors from QEMU's own: the memory by opening it once more through
 * /proc, the bell by pidfd_getfd(2), which its number in fdinfo identifies among QEMU's eventfds.
 * Without a bell the worker polls. The end of such a machine is the end of its process.
 *
 * Only the supervisor can write the file (mode 0600), but a process number may have been reused: so
 * the time of its start must agree. A found memfd must be sealed and contain a region.
 */
#include "base/fd.h"
#include "base/file_text.h"
#include "host_backend/supervisor/machines/ivshmem.h"
#include "host_backend/supervisor/state/supervisor.h"

#include "base/log.h"
#include "host_backend/supervisor/machines/private.h"
#include "proto/transport/region.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SEALS       (F_SEAL_SHRINK | F_SEAL_GROW)
#define NO_BELL     (-1)
#define NVDIMM_BELL (-2) /* stands for a bell's number: the region is in the tenant's file */

struct note {
    int pid;
    unsigned long long started; /* ticks since the machine's boot */
    int bell;                   /* the kernel's number of the eventfd, or NO_BELL, NVDIMM_BELL */
};

static void path_of(const struct weir_supervisor *sup, const struct weir_sup_tenant *tenant,
                    const char *suffix, char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/vm/%s.running%s", sup->config.run_dir, tenant->config.name, suffix);
}

unsigned long long weir_sup_process_started(int pid)
{
    char path[64], text[1024];
    unsigned long long started = 0;

    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    if (!weir_file_text(path, text, sizeof text)) {
        return 0;
    }
    const char *at = strrchr(text, ')'); /* the program's name may contain anything */
    if (!at || sscanf(at + 1,
                      " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d "
                      "%*d %*d %*d %llu",
                      &started) != 1) {
        return 0;
    }
    return started;
}

/* The kernel's number of an eventfd of a process ("self" or a number); -1: it is no eventfd. */
static int eventfd_number(const char *pid, const char *fd)
{
    char path[300], text[512];
    int number;

    snprintf(path, sizeof path, "/proc/%s/fdinfo/%s", pid, fd);
    const char *at = weir_file_text(path, text, sizeof text) ? strstr(text, "eventfd-id:") : NULL;
    return at && sscanf(at, "eventfd-id: %d", &number) == 1 ? number : -1;
}

static int bell_number(const struct weir_sup_vm *vm)
{
    char fd_text[16];

    if (vm->nvdimm || vm->bell_fd < 0) {
        return vm->nvdimm ? NVDIMM_BELL : NO_BELL;
    }
    snprintf(fd_text, sizeof fd_text, "%d", vm->bell_fd);
    return eventfd_number("self", fd_text);
}

void weir_sup_vms_note(struct weir_supervisor *sup, const struct weir_sup_tenant *tenant)
{
    char path[512], part[512];
    FILE *file = NULL;
    bool good = true;
    int fd;

    path_of(sup, tenant, "", path, sizeof path);
    path_of(sup, tenant, ".part", part, sizeof part);
    for (int i = 0; i < WEIR_VMS_MAX; i++) {
        const struct weir_sup_vm *vm = &sup->machines->vms[i];

        if (vm->id == 0 || vm->tenant != tenant->index || vm->pid <= 0) {
            continue;
        }
        if (!file) {
            fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
            file = fd >= 0 ? fdopen(fd, "w") : NULL;
            if (!file) {
                break;
            }
        }
        good &= fprintf(file, "%d %llu %d\n", (int)vm->pid, weir_sup_process_started((int)vm->pid),
                        bell_number(vm)) > 0;
    }
    if (!file) {
        unlink(path); /* there is no machine, or the file cannot be written */
    } else if (fclose(file) != 0 || !good || rename(part, path) != 0) {
        weir_log_warn("supervisor: running machines are not noted tenant=%s why=\"%s\"",
                      tenant->config.name, strerror(errno));
        unlink(part);
    }
}

/* ---------------------------------------------------------------- QEMU's descriptors */

/* Is this a region that nobody can truncate? Gives its size. */
static bool is_region(int fd, uint64_t *ret_bytes)
{
    struct weir_region_header header;
    struct stat info;
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &info) != 0 ||
        pread(fd, &header, sizeof header, 0) != (ssize_t)sizeof header) {
        return false;
    }
    *ret_bytes = (uint64_t)info.st_size;
    return header.magic == WEIR_REGION_MAGIC && header.version == WEIR_REGION_VERSION &&
           header.bytes == *ret_bytes && *ret_bytes >= WEIR_REGION_MIN_BYTES &&
           *ret_bytes <= WEIR_REGION_MAX_BYTES;
}

/* Search a process's descriptors for the region and the bell. */
static void search(const struct note *note, int pid_fd, const char *memory_name,
                   struct weir_sup_vm *vm)
{
    char folder[64], pid[16], path[400], target[256];
    const struct dirent *entry;

    snprintf(folder, sizeof folder, "/proc/%d/fd", note->pid);
    snprintf(pid, sizeof pid, "%d", note->pid);
    DIR *fds = opendir(folder);
    while (fds && (entry = readdir(fds))) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        ssize_t n = readlink(path, target, sizeof target - 1);
        target[n > 0 ? n : 0] = 0;
        if (vm->region_fd < 0 && strcmp(target, memory_name) == 0) {
            vm->region_fd = open(path, O_RDWR | O_CLOEXEC);
            if (vm->region_fd >= 0 && !is_region(vm->region_fd, &vm->bytes)) {
                close(vm->region_fd);
                vm->region_fd = -1;
            }
        } else if (vm->bell_fd < 0 && note->bell >= 0 && strstr(target, "[eventfd]") &&
                   eventfd_number(pid, entry->d_name) == note->bell) {
            vm->bell_fd = (int)syscall(SYS_pidfd_getfd, pid_fd, atoi(entry->d_name), 0);
        }
    }
    if (fds) {
        closedir(fds);
    }
}

static void adopt(struct weir_supervisor *sup, const struct weir_sup_tenant *tenant,
                  const struct note *note)
{
    char memory_name[WEIR_TENANT_NAME_BYTES + 40];
    struct weir_sup_vm vm = {.region_fd = -1,
                             .bell_fd = -1,
                             .guest_fd = -1,
                             .adopted = true,
                             .pid = note->pid,
                             .tenant = tenant->index};

    vm.fd = (int)syscall(SYS_pidfd_open, note->pid, 0);
    if (vm.fd < 0 || note->started == 0 || weir_sup_process_started(note->pid) != note->started) {
        weir_fd_close(vm.fd);
        return; /* the process has ended */
    }
    snprintf(memory_name, sizeof memory_name, "/memfd:" WEIR_VM_MEMORY_NAME "%s (deleted)",
             tenant->config.name);
    search(note, vm.fd, memory_name, &vm);
    if (vm.region_fd < 0 || !weir_sup_vm_enter(sup, &vm)) {
        weir_log_warn("supervisor: a running machine's region is not to be had tenant=%s pid=%d",
                      tenant->config.name, note->pid);
        weir_fd_close(vm.region_fd);
        weir_fd_close(vm.bell_fd);
        close(vm.fd);
        return;
    }
    weir_log_info("supervisor: virtual machine found again tenant=%s pid=%d bell=%s",
                  tenant->config.name, note->pid, vm.bell_fd >= 0 ? "yes" : "no");
}

void weir_sup_vms_adopt(struct weir_supervisor *sup, struct weir_sup_tenant *tenant)
{
    char path[512];
    struct note note;

    path_of(sup, tenant, "", path, sizeof path);
    FILE *file = fopen(path, "re");
    while (file && fscanf(file, "%d %llu %d", &note.pid, &note.started, &note.bell) == 3) {
        if (note.bell == NVDIMM_BELL) {
            tenant->nvdimm.noted_pid = note.pid;
            tenant->nvdimm.noted_at = note.started;
        } else if (note.pid > 0 && !weir_sup_vm_is_there(sup, tenant, note.pid)) {
            adopt(sup, tenant, &note);
        }
    }
    if (file) {
        fclose(file);
    }
}
