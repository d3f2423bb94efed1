/* host_backend/worker/twins/learned.c: what the next program gets to know of a module's kernels. */
#include "host_backend/worker/code/images.h"
#include "host_backend/worker/twins/private.h"

#include "../../lib/tl_cmocka.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TIMED, NEVER, NEW, N };

static struct weir_forms forms;
static struct weir_host_image_store images;
static char dir[] = "/tmp/weir-learned-XXXXXX";

/* A program's module, of the same text as all others. */
struct program {
    struct weir_forms_kernel kernels[N];
    struct weir_forms_set set;
    struct weir_forms_module module;
};

static void begin(struct program *p)
{
    *p = (struct program){.set = {.n_kernels = N},
                          .module = {.device = &forms.devices[0],
                                     .mode = WEIR_FORMS_AUTO,
                                     .store = &images,
                                     .tenant = "a",
                                     .learned_key = {{1}}}};
    p->module.set = &p->set;
    p->module.kernels = p->kernels;
    atomic_init(&p->module.state, WEIR_FORMS_READY);
    for (int i = 0; i < N; i++) {
        p->kernels[i].module = &p->module;
    }
}

static void time_variant(struct weir_forms_kernel *k, enum weir_forms_variant v, uint64_t ps)
{
    k->timing.n[v] = WEIR_FORMS_TIMINGS;
    k->timing.grid_ps[v] = ps;
    atomic_store(&k->block_ns, ps * 2);
}

static int set_up(void **state)
{
    (void)state;
    forms.devices[0].forms = &forms;
    weir_file_cache_init(&forms.cache, mkdtemp(dir), 1 << 20, ".twins");
    weir_host_image_store_init(&images, NULL);
    return 0;
}

static int tear_down(void **state)
{
    DIR *entries = opendir(dir);

    (void)state;
    for (struct dirent *e; (e = readdir(entries));) {
        unlinkat(dirfd(entries), e->d_name, 0);
    }
    closedir(entries);
    weir_host_image_store_finish(&images);
    weir_file_cache_finish(&forms.cache);
    return rmdir(dir);
}

static void the_next_program_knows_it(void **state)
{
    struct program first, next;
    struct weir_forms_kernel *k;

    (void)state;
    begin(&first);
    assert_false(weir_forms_learned_take(&first.module));
    time_variant(&first.kernels[TIMED], WEIR_FORMS_PLAIN, 900);
    time_variant(&first.kernels[TIMED], WEIR_FORMS_CAPPED, 700);
    first.kernels[TIMED].others[WEIR_FORMS_CAPPED].max_regs = 40;
    first.kernels[TIMED].timing.n[WEIR_FORMS_ROOMY] = WEIR_FORMS_TIMINGS - 1; /* not enough */
    first.kernels[TIMED].timing.grid_ps[WEIR_FORMS_ROOMY] = 1;
    atomic_store(&first.kernels[NEVER].never_stop, true);
    weir_forms_learned_keep(&first.module);

    begin(&next);
    assert_true(weir_forms_learned_take(&next.module));
    k = &next.kernels[TIMED];
    assert_int_equal(atomic_load(&k->block_ns), 1400);
    assert_int_equal(k->timing.grid_ps[WEIR_FORMS_PLAIN], 900);
    assert_int_equal(k->timing.grid_ps[WEIR_FORMS_CAPPED], 700);
    assert_int_equal(k->timing.n[WEIR_FORMS_CAPPED], WEIR_FORMS_TIMINGS);
    assert_int_equal(k->timing.n[WEIR_FORMS_ROOMY], 0);
    assert_int_equal(k->others[WEIR_FORMS_CAPPED].max_regs, 40); /* the fastest was asked for */
    assert_int_equal(k->others[WEIR_FORMS_ROOMY].max_regs, 0);
    assert_false(atomic_load(&k->never_stop));
    assert_true(atomic_load(&next.kernels[NEVER].never_stop));
    assert_int_equal(next.kernels[NEW].timing.n[WEIR_FORMS_PLAIN], 0);
}

/* How long a block took is kept with the next thing that is new. */
static void only_what_is_new_is_written(void **state)
{
    struct program second, third;

    (void)state;
    begin(&second);
    assert_true(weir_forms_learned_take(&second.module));
    atomic_store(&second.kernels[TIMED].block_ns, 5);
    weir_forms_learned_keep(&second.module);
    begin(&third);
    assert_true(weir_forms_learned_take(&third.module));
    assert_int_equal(atomic_load(&third.kernels[TIMED].block_ns), 1400);
    time_variant(&third.kernels[NEW], WEIR_FORMS_PLAIN, 10);
    atomic_store(&third.kernels[TIMED].block_ns, 6);
    weir_forms_learned_keep(&third.module);
    begin(&second);
    assert_true(weir_forms_learned_take(&second.module));
    assert_int_equal(atomic_load(&second.kernels[TIMED].block_ns), 6);
    assert_int_equal(second.kernels[NEW].timing.grid_ps[WEIR_FORMS_PLAIN], 10);
}

static void others_learn_nothing_from_it(void **state)
{
    struct program p;

    (void)state;
    begin(&p);
    p.module.learned_key.bytes[0] = 2; /* another text, or tenant */
    assert_false(weir_forms_learned_take(&p.module));
    begin(&p);
    p.set.n_kernels = N - 1; /* the file is not for so many */
    assert_false(weir_forms_learned_take(&p.module));
    assert_int_equal(atomic_load(&p.kernels[TIMED].block_ns), 0);
    begin(&p);
    p.module.mode = WEIR_FORMS_EXPLORE;
    assert_false(weir_forms_learned_take(&p.module));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_next_program_knows_it),
        cmocka_unit_test(only_what_is_new_is_written),
        cmocka_unit_test(others_learn_nothing_from_it),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
