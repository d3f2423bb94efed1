/* host_backend/worker/session/chunk.c: device memory when there is none left. */
#include "host_backend/worker/session/chunk.h"
#include "host_backend/worker/session/worker.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static struct weir_spin_page page;
static struct weir_worker worker;
static int supervisor;
static unsigned n_tries;
static bool full; /* whoever gives way */

/* A device that is full while there are workers that serve nobody. */
static CUresult create_memory(CUmemGenericAllocationHandle *handle, size_t bytes,
                              const CUmemAllocationProp *prop, unsigned long long flags)
{
    (void)bytes;
    (void)prop;
    (void)flags;
    n_tries++;
    if (full || atomic_load(&page.idle_workers) != 0) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = 7;
    return CUDA_SUCCESS;
}

static int set_up(void **state)
{
    int pair[2];

    (void)state;
    n_tries = 0;
    full = false;
    worker.platform.driver.cuMemCreate = create_memory;
    worker.platform.spin.page = &page;
    worker.platform.n_devices = 1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0) {
        return 1;
    }
    worker.link = pair[0];
    supervisor = pair[1];
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    close(worker.link);
    close(supervisor);
    return 0;
}

/* What the supervisor does when it is told. */
static void *give_way(void *asked)
{
    struct weir_link_message message;
    int fd;

    if (weir_link_receive(supervisor, &message, &fd) == WEIR_OK) {
        *(bool *)asked = message.type == WEIR_LINK_NO_MEMORY;
        atomic_store(&page.idle_workers, 0);
    }
    return NULL;
}

static void idle_workers_give_way(void **state)
{
    CUmemGenericAllocationHandle memory = 0;
    bool asked = false;
    pthread_t thread;

    (void)state;
    atomic_store(&page.idle_workers, 2);
    assert_int_equal(pthread_create(&thread, NULL, give_way, &asked), 0);
    assert_int_equal(weir_memory_create(&worker, 0, 1, &memory), CUDA_SUCCESS);
    pthread_join(thread, NULL);
    assert_true(asked);
    assert_int_equal(memory, 7);
}

static void without_idle_workers_nobody_is_asked(void **state)
{
    CUmemGenericAllocationHandle memory = 0;
    char byte;

    (void)state;
    full = true;
    atomic_store(&page.idle_workers, 0);
    assert_int_equal(weir_memory_create(&worker, 0, 1, &memory), CUDA_ERROR_OUT_OF_MEMORY);
    assert_true(n_tries > 1);
    assert_int_equal(recv(supervisor, &byte, 1, MSG_DONTWAIT), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(idle_workers_give_way, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_idle_workers_nobody_is_asked, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
