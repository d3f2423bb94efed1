/* The file in which the gate process keeps what it has learned, from one process to the next. */
#include "gate_process_fixture.h"

#include <sys/mman.h>
#include <unistd.h>

#define TOOK (70 * WEIR_NS_PER_US)
#define HALF ((off_t)16 << 20)

static int file;

static void give_file(void *user)
{
    (void)user;
    weir_gate_process_times(host.process, dup(file));
}

static void teach(void *user)
{
    for (int i = 0; i < 4; i++) {
        weir_predict_learn(host.process->gpus[0].predict, WEIR_SCHED_KERNEL, key_of(0, 7), 1000,
                           *(const uint64_t *)user);
    }
}

static void ask(void *user)
{
    *(uint64_t *)user =
        weir_predict_ask(host.process->gpus[0].predict, WEIR_SCHED_KERNEL, key_of(0, 7), 1000);
}

/* A process begins and ends, and what it knew at first. @param took  what it learns; 0: nothing */
static uint64_t life(uint64_t took)
{
    struct worker *w;
    uint64_t knew = 0;

    process_open();
    in_process(give_file, NULL);
    w = worker_new(1, 0, 0);
    await(atomic_load(&w->client->port->tail) == atomic_load(&w->client->port->head));
    in_process(ask, &knew);
    if (took != 0) {
        in_process(teach, &took);
    }
    worker_gone(w);
    host_close();
    return knew;
}

static void damage(off_t at)
{
    static const char zeros[100];

    assert_int_equal(pwrite(file, zeros, sizeof zeros, at + 40), sizeof zeros);
}

static int set_up(void **state)
{
    (void)state;
    file = memfd_create("times", MFD_CLOEXEC);
    return file < 0;
}

static int tear_down(void **state)
{
    (void)state;
    return close(file);
}

static void the_next_process_knows_what_was_learned(void **state)
{
    (void)state;
    assert_int_equal(life(TOOK), 0);
    assert_int_equal(life(0), TOOK);
    assert_int_equal(life(0), TOOK); /* it wrote nothing */
}

/* The newer half is damaged, as if the process had been killed while it wrote: the older is there.
 * If both are, learning begins anew. */
static void a_half_that_is_damaged_leaves_the_other(void **state)
{
    (void)state;
    assert_int_equal(life(TOOK), 0);    /* into the second half */
    assert_int_equal(life(TOOK), TOOK); /* into the first */
    damage(0);
    assert_int_equal(life(0), TOOK);
    damage(HALF);
    assert_int_equal(life(TOOK), 0);
    assert_int_equal(life(0), TOOK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_next_process_knows_what_was_learned, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_half_that_is_damaged_leaves_the_other, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
