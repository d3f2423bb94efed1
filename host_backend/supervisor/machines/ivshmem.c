/*
 * The ivshmem server.
 *
 * What QEMU expects on connecting, as 64-bit little-endian numbers with a descriptor beside some:
 * the protocol's version (0), the machine's peer number, -1 with the memory, then each peer's
 * number with an eventfd for each of its vectors: the host's bell (peer 0), and the machine's own.
 * After that QEMU says nothing and reads nothing; when it ends, the connection ends.
 * Source: QEMU's docs/specs/ivshmem-spec.
 *
 * The memory is a memfd sealed against shrinking and growing, so that neither QEMU nor its guest
 * can take pages from under the worker. It is sparse: a page is host memory once it was written.
 * Each connection gets a new memfd, so a machine never sees data of another one.
 */
#include "host_backend/supervisor/machines/ivshmem.h"

#include "base/fd.h"
#include "host_backend/supervisor/machines/nvdimm.h"
#include "host_backend/supervisor/state/book.h"
#include "host_backend/supervisor/state/extras.h"
#include "host_backend/supervisor/state/sockets.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/state/users.h"
#include "host_backend/supervisor/state/worker_link.h"
#include "host_backend/supervisor/workers/worker_for.h"

#include "base/fd_pass.h"
#include "base/log.h"
#include "base/memfd.h"
#include "host_backend/supervisor/machines/private.h"
#include "proto/transport/region.h"
#include "proto/wire/accept.h"
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SERVER_VERSION 0
#define HOST_PEER      0
#define GUEST_PEER     1
#define MEMORY_FOLLOWS (-1)
#define BACKLOG        64

bool weir_sup_machines_open(struct weir_supervisor *sup)
{
    sup->machines = calloc(1, sizeof *sup->machines);
    if (sup->machines) {
        sup->machines->nvdimm_watch_fd = sup->machines->vsock_fd = -1;
    }
    return sup->machines != NULL;
}

void weir_sup_machines_close(struct weir_supervisor *sup)
{
    free(sup->machines);
    sup->machines = NULL;
}

/* ---------------------------------------------------------------- sockets */

/* The users that run QEMU for libvirt on Debian and on Red Hat. */
static const char *const qemu_users[] = {"libvirt-qemu", "qemu"};

void weir_sup_give_to_qemu(const struct weir_supervisor *sup, const struct weir_sup_tenant *tenant,
                           const char *path)
{
    const struct passwd *user = NULL;
    const char *wanted = sup->config.vm_user;

    if (geteuid() != 0) {
        return; /* QEMU of libvirt's session daemon runs as this user */
    }
    if (weir_sup_tenant_has_user(tenant)) {
        if (weir_sup_give_to_user(tenant, path) != WEIR_OK) {
            weir_log_warn("supervisor: a user cannot have his file path=%s", path);
        }
        return;
    }
    if (*wanted != 0) {
        user = getpwnam(wanted); /* else weir_sup_vm_user_follow() says so */
    }
    for (size_t i = 0; *wanted == 0 && !user && i < WEIR_COUNT(qemu_users); i++) {
        user = getpwnam(qemu_users[i]);
    }
    if (user && chown(path, user->pw_uid, (gid_t)-1) != 0) {
        weir_log_warn("supervisor: QEMU cannot have its file path=%s why=\"%s\"", path,
                      strerror(errno));
    }
}

void weir_sup_vm_user_follow(struct weir_supervisor *sup)
{
    const char *wanted = sup->config.vm_user;
    bool failed = sup->extras.of[WEIR_EXTRA_MACHINES].why[0] != 0;

    if (*wanted == 0 || geteuid() != 0 || sup->config.vm_region_bytes == 0) {
        return; /* no user is wanted, and a reload cannot change that */
    }
    if (!getpwnam(wanted)) {
        weir_sup_extra_fails(sup, WEIR_EXTRA_MACHINES, "vm_user '%.60s': there is no such user",
                             wanted);
        return;
    }
    weir_sup_extra_works(sup, WEIR_EXTRA_MACHINES);
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX && failed; i++) {
        const struct weir_sup_tenant *tenant = &sup->tenants[i];

        if (tenant->used && tenant->vm_listen_fd >= 0) {
            weir_sup_give_to_qemu(sup, tenant, tenant->vm_path);
        }
        if (tenant->used && tenant->nvdimm.fd >= 0) {
            weir_sup_give_to_qemu(sup, tenant, tenant->nvdimm.path);
        }
    }
}

/* Listen on a unix socket that only root and QEMU's user, or the tenant's own user, may open.
 * @return WEIR_OK, WEIR_ERR_EXISTS, WEIR_ERR_DENIED, WEIR_ERR_IO */
static enum weir_status listen_for_qemu(const struct weir_supervisor *sup,
                                        const struct weir_sup_tenant *tenant, const char *path,
                                        int *ret_fd)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    WEIR_FAIL_IF(fd < 0, WEIR_ERR_IO);
    memcpy(address.sun_path, path, strlen(path) + 1);
    bool taken = connect(fd, (struct sockaddr *)&address, sizeof address) == 0 || errno == EAGAIN;
    close(fd);
    WEIR_FAIL_IF(taken, WEIR_ERR_EXISTS);
    unlink(path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    WEIR_FAIL_IF(fd < 0, WEIR_ERR_IO);
    /* bind() makes the file with the socket inode's mode: never wider than this. */
    if (fchmod(fd, S_IRUSR | S_IWUSR) != 0 ||
        bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, BACKLOG) != 0) {
        close(fd);
        return errno == EACCES ? WEIR_ERR_DENIED : WEIR_ERR_IO;
    }
    weir_sup_give_to_qemu(sup, tenant, path);
    *ret_fd = fd;
    return WEIR_OK;
}

void weir_sup_vm_listen(struct weir_supervisor *sup, struct weir_sup_tenant *tenant)
{
    char folder[sizeof tenant->vm_path];
    enum weir_status status;
    int n = snprintf(folder, sizeof folder, "%s/vm", sup->config.run_dir);
    int len = snprintf(tenant->vm_path, sizeof tenant->vm_path, "%s/vm/%s.sock",
                       sup->config.run_dir, tenant->config.name);

    tenant->vm_listen_fd = -1;
    if (sup->config.vm_region_bytes == 0) {
        return; /* the host serves no virtual machines */
    }
    if (n < 0 || len < 0 || (size_t)n >= sizeof folder ||
        (size_t)len >= sizeof((struct sockaddr_un *)NULL)->sun_path) {
        status = WEIR_ERR_TOO_BIG;
    } else if (mkdir(folder, 0711) != 0 && errno != EEXIST) {
        status = WEIR_ERR_IO;
    } else {
        tenant->vm_listen_fd = weir_book_listener(sup, tenant->vm_path);
        status = tenant->vm_listen_fd >= 0
                     ? WEIR_OK
                     : listen_for_qemu(sup, tenant, tenant->vm_path, &tenant->vm_listen_fd);
    }
    if (status == WEIR_OK) {
        weir_book_listens(sup, tenant->vm_path, tenant->vm_listen_fd);
        weir_sup_vms_adopt(sup, tenant);
        weir_sup_nvdimm_open(sup, tenant);
        /* Write the note when all are found, not before, since this host may also be killed. */
        weir_sup_vms_note(sup, tenant);
    } else {
        weir_log_warn("supervisor: no socket for virtual machines tenant=%s path=%s why=\"%s\"",
                      tenant->config.name, tenant->vm_path, weir_status_text(status));
    }
}

/* ---------------------------------------------------------------- the region */

static int make_region(const char *tenant, uint64_t bytes)
{
    char name[WEIR_TENANT_NAME_BYTES + sizeof WEIR_VM_MEMORY_NAME];
    struct weir_region_header header = {
        .magic = WEIR_REGION_MAGIC, .version = WEIR_REGION_VERSION, .bytes = bytes};

    snprintf(name, sizeof name, WEIR_VM_MEMORY_NAME "%s", tenant);
    int fd = weir_memfd_sealed(name, bytes);
    if (fd >= 0 && pwrite(fd, &header, sizeof header, 0) != (ssize_t)sizeof header) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* No worker serves the region now: tell its guests. New ones wait; those with a session see its
 * end. */
static void clear_epoch(const struct weir_sup_vm *vm)
{
    static const uint64_t none = 0;

    if (pwrite(vm->region_fd, &none, sizeof none,
               (off_t)(vm->offset + offsetof(struct weir_region_header, epoch))) !=
        (ssize_t)sizeof none) {
        weir_log_warn("supervisor: a region cannot be written why=\"%s\"", strerror(errno));
    }
}

/* Send one number and perhaps a descriptor. A new connection has room for all that we send. */
static bool send_number(int socket_fd, int64_t number, int fd)
{
    int64_t wire = (int64_t)htole64((uint64_t)number);

    return weir_fd_send(socket_fd, &wire, sizeof wire, fd, 0) == (ssize_t)sizeof wire;
}

static bool greet(const struct weir_sup_vm *vm)
{
    return send_number(vm->fd, SERVER_VERSION, -1) && send_number(vm->fd, GUEST_PEER, -1) &&
           send_number(vm->fd, MEMORY_FOLLOWS, vm->region_fd) &&
           send_number(vm->fd, HOST_PEER, vm->bell_fd) &&
           send_number(vm->fd, GUEST_PEER, vm->guest_fd);
}

/* ---------------------------------------------------------------- machines */

static void tell(struct weir_supervisor *sup, int worker, const struct weir_sup_vm *vm)
{
    struct weir_link_message message = {.type = WEIR_LINK_REGION};

    if (!weir_sup_worker_is_told(sup, worker)) {
        return; /* weir_sup_vms_tell() sends the region then */
    }
    message.region.id = vm->id;
    message.region.offset = vm->offset;
    message.region.bytes = vm->bytes;
    message.region.transport = vm->nvdimm ? WEIR_TRANSPORT_DEVDAX : WEIR_TRANSPORT_IVSHMEM;
    message.region.pid = vm->pid;
    message.region.tenant_index = vm->tenant;
    message.region.generation = sup->tenants[vm->tenant].generation;
    if (weir_sup_worker_send(sup, worker, &message, vm->region_fd)) {
        message.type = WEIR_LINK_REGION_BELL;
        (void)weir_sup_worker_send(sup, worker, &message, vm->bell_fd);
    }
}

static void close_vm(struct weir_sup_vm *vm)
{
    const int fds[] = {vm->fd, vm->region_fd, vm->bell_fd, vm->guest_fd};

    for (size_t i = 0; i < WEIR_COUNT(fds); i++) {
        weir_fd_close(fds[i]);
    }
    *vm = (struct weir_sup_vm){.fd = -1};
}

static void drop_vm(struct weir_supervisor *sup, struct weir_sup_vm *vm)
{
    struct weir_sup_tenant *tenant = &sup->tenants[vm->tenant];
    struct weir_link_message message = {.type = WEIR_LINK_REGION_GONE};
    bool nvdimm = vm->nvdimm;

    weir_log_info("supervisor: virtual machine gone tenant=%s pid=%d", tenant->config.name,
                  (int)vm->pid);
    message.region.id = vm->id;
    if (weir_sup_worker_is_told(sup, tenant->worker)) {
        (void)weir_sup_worker_send(sup, tenant->worker, &message, -1);
    }
    clear_epoch(vm);
    weir_book_drop(sup, WEIR_BOOK_MACHINE, vm->id);
    close_vm(vm);
    if (!sup->life.stopping) {
        weir_sup_vms_note(sup, tenant); /* else the next host would look for this machine */
        if (nvdimm) {
            weir_sup_nvdimm_gone(sup, tenant);
        }
    }
}

/* A machine as a row (WEIR_BOOK_MACHINE). Members are only appended. */
struct row {
    int64_t pid;
    uint64_t offset, bytes;
    uint32_t tenant;
    uint8_t nvdimm, adopted,
        has[4]; /* has: which descriptors there are, in the order of fds_of() */
};

static void fds_of(struct weir_sup_vm *vm, int *ret_fds[4])
{
    ret_fds[0] = &vm->fd;
    ret_fds[1] = &vm->region_fd;
    ret_fds[2] = &vm->bell_fd;
    ret_fds[3] = &vm->guest_fd;
}

static void note(struct weir_supervisor *sup, struct weir_sup_vm *vm)
{
    struct row row = {.pid = vm->pid,
                      .offset = vm->offset,
                      .bytes = vm->bytes,
                      .tenant = vm->tenant,
                      .nvdimm = vm->nvdimm,
                      .adopted = vm->adopted};
    int *fds[4], all[4];

    fds_of(vm, fds);
    for (int i = 0; i < 4; i++) {
        all[i] = *fds[i];
        row.has[i] = all[i] >= 0;
    }
    weir_book_put(sup, WEIR_BOOK_MACHINE, vm->id, &row, sizeof row, all, 4);
}

void weir_sup_vms_take_over(struct weir_supervisor *sup)
{
    struct weir_book_row *row;

    for (int k = 0; k < WEIR_VMS_MAX && (row = weir_book_adopt(sup, WEIR_BOOK_MACHINE)); k++) {
        struct weir_sup_vm *vm = &sup->machines->vms[k];
        uint32_t n = 0;
        struct row old;
        int *fds[4];

        weir_book_read(row, &old, sizeof old);
        *vm = (struct weir_sup_vm){.id = row->key,
                                   .pid = (pid_t)old.pid,
                                   .offset = old.offset,
                                   .bytes = old.bytes,
                                   .tenant = old.tenant % WEIR_CONFIG_TENANTS_MAX,
                                   .nvdimm = old.nvdimm != 0,
                                   .adopted = old.adopted != 0};
        fds_of(vm, fds);
        for (int i = 0; i < 4; i++) {
            *fds[i] = old.has[i] != 0 ? weir_book_take_fd(row, n++) : -1;
        }
        sup->machines->next_vm = WEIR_MAX(row->key, sup->machines->next_vm);
    }
}

bool weir_sup_vm_is_there(const struct weir_supervisor *sup, const struct weir_sup_tenant *tenant,
                          pid_t pid)
{
    for (int i = 0; i < WEIR_VMS_MAX; i++) {
        const struct weir_sup_vm *vm = &sup->machines->vms[i];

        if (vm->id != 0 && vm->tenant == tenant->index && vm->pid == pid) {
            return true;
        }
    }
    return false;
}

/* A free place for a machine of the tenant. NULL: all are used, or reserved for other tenants'
 * machines. */
static struct weir_sup_vm *find_place(struct weir_supervisor *sup,
                                      const struct weir_sup_tenant *tenant)
{
    uint64_t used[WEIR_HOLDERS_MAX];
    const struct weir_supply supply = {
        .total = WEIR_VMS_MAX, .least = 1, .used = used, .n = WEIR_HOLDERS_MAX};
    struct weir_sup_vm *free_place = NULL;

    weir_sup_holders(sup, used);
    for (int i = 0; i < WEIR_VMS_MAX; i++) {
        if (sup->machines->vms[i].id == 0) {
            free_place = &sup->machines->vms[i];
        } else {
            weir_sup_holder_uses(&sup->tenants[sup->machines->vms[i].tenant], used);
        }
    }
    return weir_supply_allows(&supply, weir_sup_holder(tenant), 1) ? free_place : NULL;
}

bool weir_sup_vm_enter(struct weir_supervisor *sup, const struct weir_sup_vm *vm)
{
    struct weir_sup_tenant *tenant = &sup->tenants[vm->tenant];
    struct weir_sup_vm *slot = find_place(sup, tenant);

    WEIR_FAIL_IF(!slot, false);
    *slot = *vm;
    slot->id = ++sup->machines->next_vm;
    clear_epoch(slot);
    note(sup, slot);
    if (slot->nvdimm) {
        weir_sup_vms_note(sup, tenant); /* the other machines come from the last host's note */
    }
    tell(sup, weir_sup_machine_worker(sup, tenant), slot);
    return true;
}

static void accept_vm(struct weir_supervisor *sup, struct weir_sup_tenant *tenant)
{
    int fd = weir_sup_accept_guest(sup, tenant->vm_listen_fd, NULL, NULL);
    struct weir_sup_vm *vm = fd >= 0 ? find_place(sup, tenant) : NULL;
    struct weir_peer peer = {0};

    if (!vm) {
        if (fd >= 0) {
            weir_log_warn("supervisor: too many virtual machines tenant=%s", tenant->config.name);
            close(fd);
        }
        return;
    }
    (void)!weir_peer_of(fd, &peer); /* the pid is for people, and shows a stopped QEMU */
    *vm = (struct weir_sup_vm){.id = ++sup->machines->next_vm,
                               .fd = fd,
                               .region_fd =
                                   make_region(tenant->config.name, sup->config.vm_region_bytes),
                               .bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                               .guest_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                               .pid = peer.pid,
                               .tenant = tenant->index,
                               .bytes = sup->config.vm_region_bytes};
    if (vm->region_fd < 0 || vm->bell_fd < 0 || vm->guest_fd < 0 || !greet(vm)) {
        weir_log_error("supervisor: a virtual machine gets no region tenant=%s why=\"%s\"",
                       tenant->config.name, strerror(errno));
        close_vm(vm);
        return;
    }
    weir_log_info("supervisor: virtual machine tenant=%s pid=%d uid=%u region=%lluMiB",
                  tenant->config.name, (int)peer.pid, (unsigned)peer.uid,
                  (unsigned long long)(vm->bytes >> 20));
    note(sup, vm);
    weir_sup_vms_note(sup, tenant);
    tell(sup, weir_sup_machine_worker(sup, tenant), vm);
}

/* A client may connect again and again, so the log is limited. */
void weir_sup_vm_accept(struct weir_supervisor *sup, struct weir_sup_tenant *tenant)
{
    weir_log_limit_thread(weir_sup_log_rate(sup, tenant), tenant->config.name);
    accept_vm(sup, tenant);
    weir_log_limit_thread(NULL, NULL);
}

static void read_vm(struct weir_supervisor *sup, struct weir_sup_vm *vm)
{
    struct weir_sup_tenant *tenant = &sup->tenants[vm->tenant];
    char nonsense[64];
    ssize_t n = vm->adopted ? 0 : recv(vm->fd, nonsense, sizeof nonsense, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    weir_log_limit_thread(weir_sup_log_rate(sup, tenant), tenant->config.name);
    if (n > 0) {
        weir_log_warn("supervisor: an ivshmem client talks, hung up pid=%d", (int)vm->pid);
    }
    drop_vm(sup, vm);
    weir_log_limit_thread(NULL, NULL);
}

void weir_sup_vm_renew(struct weir_supervisor *sup, struct weir_sup_tenant *tenant)
{
    char *slash = strrchr(tenant->vm_path, '/');

    if (!slash || !weir_sup_socket_lost(tenant->vm_path, &tenant->vm_listen_fd)) {
        return;
    }
    *slash = 0;
    (void)mkdir(tenant->vm_path, 0711);
    *slash = '/';
    if (listen_for_qemu(sup, tenant, tenant->vm_path, &tenant->vm_listen_fd) != WEIR_OK) {
        tenant->vm_listen_fd = -1;
    } else {
        weir_book_listens(sup, tenant->vm_path, tenant->vm_listen_fd);
    }
}

void weir_sup_vm_close(struct weir_supervisor *sup, struct weir_sup_tenant *tenant)
{
    weir_sup_nvdimm_close(sup, tenant);
    if (tenant->vm_listen_fd >= 0) {
        close(tenant->vm_listen_fd);
        unlink(tenant->vm_path);
        weir_book_listens(sup, tenant->vm_path, -1);
        tenant->vm_listen_fd = -1;
    }
    for (int i = 0; i < WEIR_VMS_MAX; i++) {
        if (sup->machines->vms[i].id != 0 && sup->machines->vms[i].tenant == tenant->index) {
            drop_vm(sup, &sup->machines->vms[i]);
        }
    }
}

void weir_sup_vms_tell(struct weir_supervisor *sup, int worker)
{
    for (int i = 0; i < WEIR_VMS_MAX; i++) {
        if (sup->machines->vms[i].id != 0 &&
            sup->tenants[sup->machines->vms[i].tenant].worker == worker) {
            tell(sup, worker, &sup->machines->vms[i]);
        }
    }
}

void weir_sup_vms_follow(struct weir_supervisor *sup, const struct weir_sup_tenant *tenant)
{
    for (int i = 0; i < WEIR_VMS_MAX; i++) {
        if (sup->machines->vms[i].id != 0 && sup->machines->vms[i].tenant == tenant->index) {
            tell(sup, tenant->worker, &sup->machines->vms[i]);
        }
    }
}

void weir_sup_vms_orphan(struct weir_supervisor *sup, int worker)
{
    for (int i = 0; i < WEIR_VMS_MAX; i++) {
        if (sup->machines->vms[i].id != 0 &&
            sup->tenants[sup->machines->vms[i].tenant].worker == worker) {
            clear_epoch(&sup->machines->vms[i]);
        }
    }
}

void weir_sup_vms_finish(struct weir_supervisor *sup)
{
    char folder[WEIR_CONFIG_PATH_BYTES + 8];

    snprintf(folder, sizeof folder, "%s/vm", sup->config.run_dir);
    (void)rmdir(folder); /* fails if another host's sockets are in it */
    weir_sup_nvdimms_finish(sup);
}

static void on_connection(void *user, int index)
{
    struct weir_supervisor *sup = user;

    if (sup->tenants[index].vm_listen_fd >= 0) {
        weir_sup_vm_accept(sup, &sup->tenants[index]);
    }
}

static void on_vm(void *user, int index)
{
    struct weir_supervisor *sup = user;

    if (sup->machines->vms[index].id != 0) {
        read_vm(sup, &sup->machines->vms[index]);
    }
}

void weir_sup_vms_watch(struct weir_supervisor *sup, struct weir_host_loop *loop)
{
    for (int i = 0; i < WEIR_CONFIG_TENANTS_MAX; i++) {
        if (sup->tenants[i].used && !sup->tenants[i].gone) {
            weir_host_loop_watch(loop, sup->tenants[i].vm_listen_fd, POLLIN, on_connection, sup, i);
        }
    }
    for (int i = 0; i < WEIR_VMS_MAX; i++) {
        if (sup->machines->vms[i].id != 0) {
            weir_host_loop_watch(loop, sup->machines->vms[i].fd, POLLIN, on_vm, sup, i);
        }
    }
}
