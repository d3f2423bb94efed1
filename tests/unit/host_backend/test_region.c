/* A machine's region, as the worker takes it up and leaves it. What goes on in between is tested
 * end to end (tests/e2e/test_kvm.py, test_devdax.py). */
#include "host_backend/worker/regions.h"

#include "host_backend/worker/state/bus_guard.h"
#include "host_backend/worker/state/worker.h"
#include "proto/transport/region.h"
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define OFFSET WEIR_REGION_UNIT_BYTES /* as in an NVDIMM's file */
#define FAR    (UINT64_C(1) << 45)    /* where this process has nothing */

static struct weir_worker *worker;
static int file;

static int make(void **state)
{
    struct weir_region_header header = {
        .magic = WEIR_REGION_MAGIC, .version = WEIR_REGION_VERSION, .bytes = WEIR_REGION_MIN_BYTES};

    (void)state;
    worker = calloc(1, sizeof *worker);
    assert_non_null(worker);
    pthread_mutex_init(&worker->lock, NULL);
    file = memfd_create("region", MFD_CLOEXEC);
    assert_true(file >= 0);
    assert_int_equal(ftruncate(file, (off_t)(OFFSET + WEIR_REGION_MIN_BYTES)), 0);
    assert_int_equal(pwrite(file, &header, sizeof header, (off_t)OFFSET), sizeof header);
    return 0;
}

static int drop(void **state)
{
    (void)state;
    close(file);
    pthread_mutex_destroy(&worker->lock);
    free(worker);
    return 0;
}

static uint64_t epoch(void)
{
    uint64_t number;

    assert_int_equal(pread(file, &number, sizeof number,
                           (off_t)(OFFSET + offsetof(struct weir_region_header, epoch))),
                     sizeof number);
    return number;
}

static void attach(void)
{
    const struct weir_link_region about = {.id = 1,
                                           .offset = OFFSET,
                                           .bytes = WEIR_REGION_MIN_BYTES,
                                           .transport = WEIR_TRANSPORT_DEVDAX};

    weir_region_attach(worker, &about, fcntl(file, F_DUPFD_CLOEXEC, 0), -1);
}

static void leave_tells_before_the_region_is_given_up(void **state)
{
    (void)state;
    attach();
    assert_non_null(worker->regions);
    assert_int_not_equal(epoch(), 0);
    weir_regions_leave(worker);
    assert_int_equal(epoch(), 0);
    assert_non_null(worker->regions);
    weir_regions_finish(worker);
    assert_null(worker->regions);
    weir_regions_leave(worker); /* none is left */
}

/* All that are left. */
static unsigned fill_guards(void)
{
    unsigned n = 0;

    while (weir_bus_guard(FAR + n, 1)) {
        n++;
    }
    return n;
}

static void empty_guards(void)
{
    for (unsigned i = 0; i < WEIR_BUS_GUARDS_MAX; i++) {
        weir_bus_unguard(FAR + i, 1);
    }
}

/* It would end the worker, and with it other tenants' sessions, if QEMU cut the file short. */
static void attach_without_a_guard_serves_nothing(void **state)
{
    (void)state;
    assert_int_equal(fill_guards(), WEIR_BUS_GUARDS_MAX);
    attach();
    assert_null(worker->regions);
    assert_int_equal(epoch(), 0);
    empty_guards();
    attach();
    assert_non_null(worker->regions);
    assert_int_equal(fill_guards(), WEIR_BUS_GUARDS_MAX - 1);
    empty_guards();
    weir_regions_finish(worker);
    assert_int_equal(fill_guards(), WEIR_BUS_GUARDS_MAX);
    empty_guards();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(leave_tells_before_the_region_is_given_up, make, drop),
        cmocka_unit_test_setup_teardown(attach_without_a_guard_serves_nothing, make, drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
