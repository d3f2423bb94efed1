/* Tenants' NVDIMM files on a /dev/shm that is full, in a namespace of its own. */
#include "host_backend/supervisor/machines/ivshmem.h"
#include "host_backend/supervisor/machines/nvdimm.h"
#include "host_backend/supervisor/state/supervisor.h"
#include "loop_turn.h"

#include "base/clock.h"
#include "proto/transport/region.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define SHM_BYTES  (UINT64_C(18) << 20)
#define FULL       "/dev/shm/full"
#define NEEDS_ROOT 77 /* for mount namespaces */

static struct weir_supervisor *sup;
static struct weir_sup_tenant *tenant;

static int make(void **state)
{
    (void)state;
    sup = calloc(1, sizeof *sup);
    assert_non_null(sup);
    assert_true(weir_sup_machines_open(sup));
    sup->config.vm_region_bytes = UINT64_C(16) << 20;
    snprintf(sup->config.run_dir, sizeof sup->config.run_dir, "/run/weir");
    tenant = &sup->tenants[0];
    tenant->used = true;
    snprintf(tenant->config.name, sizeof tenant->config.name, "alice");
    return 0;
}

static int drop(void **state)
{
    (void)state;
    weir_sup_nvdimm_close(sup, tenant);
    weir_sup_nvdimms_finish(sup);
    assert_int_equal(access("/dev/shm/weir", F_OK), -1);
    weir_sup_machines_close(sup);
    free(sup);
    return 0;
}

static bool is_there(void)
{
    struct stat info;

    return stat(tenant->nvdimm.path, &info) == 0 &&
           (uint64_t)info.st_size == sup->config.vm_region_bytes;
}

/* As a guest may do by writing to its memory. */
static void fill_shm(void)
{
    int fd = open(FULL, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    uint64_t bytes = SHM_BYTES;

    assert_true(fd >= 0);
    for (off_t at = 0; bytes >= 4096;) {
        if (fallocate(fd, 0, at, (off_t)bytes) == 0) {
            at += (off_t)bytes;
        } else {
            assert_int_equal(errno, ENOSPC);
            bytes /= 2;
        }
    }
    close(fd);
}

static void gone_without_room_makes_the_file_when_there_is(void **state)
{
    uint64_t now_ns;

    (void)state;
    weir_sup_nvdimm_open(sup, tenant);
    assert_true(is_there());
    now_ns = weir_clock_now_ns();
    assert_int_equal(loop_wait_ms(sup, weir_sup_nvdimm_watch, now_ns), -1);
    fill_shm();
    weir_sup_nvdimm_gone(sup, tenant);
    /* The next machine does not start, which is seen;
     * and it does not find what the last one left. */
    assert_int_equal(access(tenant->nvdimm.path, F_OK), -1);
    for (int i = 0; i < 2; i++) {
        int wait_ms = loop_wait_ms(sup, weir_sup_nvdimm_watch, now_ns);

        assert_in_range(wait_ms, 1, 60000);
        now_ns += (uint64_t)wait_ms * WEIR_NS_PER_MS;
        if (i == 1) {
            assert_int_equal(unlink(FULL), 0);
        } else {
            fill_shm(); /* the old file's room, too */
        }
        weir_sup_nvdimm_tick(sup, now_ns);
        assert_int_equal(is_there(), i == 1);
    }
    assert_int_equal(loop_wait_ms(sup, weir_sup_nvdimm_watch, now_ns), -1);
}

static void open_where_there_can_be_no_room_is_not_tried_again(void **state)
{
    (void)state;
    sup->config.vm_region_bytes = UINT64_C(32) << 20;
    weir_sup_nvdimm_open(sup, tenant);
    assert_false(is_there());
    assert_int_equal(loop_wait_ms(sup, weir_sup_nvdimm_watch, weir_clock_now_ns()), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(gone_without_room_makes_the_file_when_there_is, make, drop),
        cmocka_unit_test_setup_teardown(open_where_there_can_be_no_room_is_not_tried_again, make,
                                        drop),
    };
    char options[32];

    snprintf(options, sizeof options, "size=%llu", (unsigned long long)SHM_BYTES);
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("shm", "/dev/shm", "tmpfs", 0, options) != 0) {
        return NEEDS_ROOT;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
