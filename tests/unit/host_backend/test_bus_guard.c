/* Pages of a shared file that somebody else has taken away, guarded and not. */
#include "host_backend/worker/state/bus_guard.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define PAGES      4
#define PAGE_BYTES 4096

/* A mapping with something in it, of a file that is shorter by now. */
static volatile char *cut_mapping(void)
{
    int fd = memfd_create("cut", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)PAGES * PAGE_BYTES), 0);
    char *base = mmap(NULL, (size_t)PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(base, MAP_FAILED);
    memset(base, 'x', (size_t)PAGES * PAGE_BYTES);
    assert_int_equal(ftruncate(fd, PAGE_BYTES), 0);
    close(fd);
    return base;
}

static void drop(volatile char *base)
{
    munmap((void *)(uintptr_t)base, (size_t)PAGES * PAGE_BYTES);
}

/* The signal that ends a process which reads there; 0: none does. */
static int signal_of_reader(const volatile char *at)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(*at == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void guarded_pages_that_are_gone_read_as_zero(void **state)
{
    (void)state;
    weir_bus_guard_init(); /* here, because cmocka has its own for each test */
    volatile char *base = cut_mapping();
    uint64_t address = (uint64_t)(uintptr_t)base;
    assert_true(weir_bus_guard(address, (uint64_t)PAGES * PAGE_BYTES));
    assert_int_equal(base[0], 'x');
    assert_int_equal(base[PAGE_BYTES + 7], 0);
    base[2 * PAGE_BYTES] = 'y'; /* goes nowhere, and does no harm */
    assert_int_equal(base[2 * PAGE_BYTES], 'y');
    weir_bus_unguard(address, (uint64_t)PAGES * PAGE_BYTES);
    assert_int_equal(signal_of_reader(base + (ptrdiff_t)3 * PAGE_BYTES), SIGBUS);
    drop(base);
}

static void a_tolerant_thread_needs_no_guard(void **state)
{
    (void)state;
    weir_bus_guard_init(); /* here, because cmocka has its own for each test */
    volatile char *base = cut_mapping();
    weir_bus_tolerate(true);
    assert_int_equal(base[PAGE_BYTES], 0);
    weir_bus_tolerate(false);
    assert_int_equal(signal_of_reader(base + (ptrdiff_t)2 * PAGE_BYTES), SIGBUS);
    drop(base);
}

/* A mapping is gone, and another one has come to its place before the guard has heard of it. */
static void an_old_guard_takes_none_of_a_new_one_with_it(void **state)
{
    (void)state;
    weir_bus_guard_init(); /* here, because cmocka has its own for each test */
    volatile char *base = cut_mapping();
    uint64_t address = (uint64_t)(uintptr_t)base, old_bytes = PAGE_BYTES;
    assert_true(weir_bus_guard(address, (uint64_t)PAGES * PAGE_BYTES));
    assert_true(weir_bus_guard(address, old_bytes));
    weir_bus_unguard(address, old_bytes);
    assert_int_equal(base[3 * PAGE_BYTES], 0);
    assert_true(weir_bus_guard(address, old_bytes));
    weir_bus_unguard(address, (uint64_t)PAGES * PAGE_BYTES);
    assert_int_equal(signal_of_reader(base + (ptrdiff_t)2 * PAGE_BYTES), SIGBUS);
    weir_bus_unguard(address, old_bytes);
    drop(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(guarded_pages_that_are_gone_read_as_zero),
        cmocka_unit_test(a_tolerant_thread_needs_no_guard),
        cmocka_unit_test(an_old_guard_takes_none_of_a_new_one_with_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
