/*
 * The proof that twins are the kernels they are made from: each kernel of tests/data/ptx_forms runs
 * once as it is, and in every form it admits from a module of twins, cut, stopped, moved and
 * resumed at random, and the memory must be equal to the bit. A twin that is broken on purpose must
 * be found out by the same comparison.
 *
 * WEIR_TEST_SEED chooses what is random; the seed is printed when a case fails.
 */
#include "ptx/ptx.h"
#include "ptx/twin/twin.h"
#include "tests/integration/forms_backend.h"

#include "tests/lib/tl_cmocka.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS      4096u
#define LOOK_TURNS 50 /* at all rows, until a stop came in time */
#define MAX_STARTS 400u
#define STOP_TURNS (1u << 20) /* how long somebody waits who stops a launch, at most */
#ifdef __SANITIZE_THREAD__
#define ROUNDS 2u /* of each kernel; it is slow, and races need no more */
#else
#define ROUNDS 8u
#endif
#define T WEIR_PTX_FORM_BIT(WEIR_PTX_FORM_TICKET)
#define P WEIR_PTX_FORM_BIT(WEIR_PTX_FORM_PERSISTENT)

struct row {
    const char *file;
    const char *kernel;
    uint32_t grid[3];
    uint32_t block;
    uint32_t dynamic_bytes;
    uint32_t forms;   /* admitted */
    const char *show; /* kernel that copies variables to memory afterwards */
};

static const struct row rows[] = {
    {"compiled.ptx", "one_dimension", {61, 1, 1}, 64, 0, T | P, NULL},
    {"compiled.ptx", "three_dimensions", {5, 3, 4}, 64, 0, T | P, NULL},
    {"compiled.ptx", "counts", {7, 5, 3}, 33, 0, T | P, NULL},
    {"compiled.ptx", "slow_warps", {40, 2, 1}, 128, 0, T | P, NULL},
    {"compiled.ptx", "shared_reused", {32, 1, 1}, 128, 0, T | P, NULL},
    {"compiled.ptx", "early_return", {8, 4, 1}, 128, 0, T, NULL},
    {"compiled.ptx", "functions", {9, 7, 1}, 64, 0, T | P, NULL},
    {"compiled.ptx", "aligned_dynamic", {31, 1, 1}, 100, 400, T | P, NULL},
    {"compiled.ptx", "variables", {10, 10, 1}, 64, 0, T | P, "show_variables"},
    {"compiled.ptx", "votes", {40, 1, 1}, 96, 0, T | P, NULL},
    {"compiled.ptx", "shuffles", {64, 1, 1}, 64, 0, T | P, NULL},
    {"compiled.ptx", "async_copies", {32, 1, 1}, 128, 0, T | P, NULL},
    {"compiled.ptx", "recursion", {32, 2, 1}, 64, 0, T | P, NULL},
    {"written.ptx", "predicated_ret", {64, 1, 1}, 64, 0, T | P, NULL},
    {"written.ptx", "exit_before_barriers", {64, 1, 1}, 64, 0, T, NULL},
    {"written.ptx", "index_in_other_words", {4, 4, 4}, 64, 0, T | P, NULL},
    {"written.ptx", "named_barriers", {32, 1, 1}, 128, 0, T | P, NULL},
    {"written.ptx", "reducing_barriers", {64, 1, 1}, 64, 0, T | P, NULL},
    {"written.ptx", "barrier_in_register", {2, 1, 1}, 32, 0, T, NULL},
    {"written.ptx", "all_barriers", {2, 1, 1}, 32, 0, T, NULL},
    {"written.ptx", "exit_before_reduction", {2, 1, 1}, 32, 0, T, NULL},
    {"written.ptx", "index_of_cluster", {2, 1, 1}, 32, 0, 0, NULL},
    {"compiled.ptx", "pointers", {2, 1, 1}, 32, 0, 0, NULL},
};
#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

/* A twin's text is changed between printing and loading. */
struct damage {
    const char *from;
    const char *to;
};

struct state {
    uint64_t random;
    uint32_t stopped; /* starts that were under way when somebody stopped them */
};

static uint32_t below(struct state *st, uint32_t n)
{
    st->random ^= st->random >> 12;
    st->random ^= st->random << 25;
    st->random ^= st->random >> 27;
    return (uint32_t)((st->random * 0x2545f4914f6cdd1dull >> 33) % n);
}

static uint64_t base_seed(void)
{
    const char *text = getenv("WEIR_TEST_SEED");

    return text ? strtoull(text, NULL, 10) : 1;
}

static char *read_file(const char *name, size_t *ret_bytes)
{
    char path[512];
    size_t room = 1u << 20;
    char *text = malloc(room);

    const char *folder = getenv("WEIR_TEST_DATA_FOLDER"); /* where the build tree has moved */

    snprintf(path, sizeof(path), "%s/ptx_forms/%s", folder ? folder : WEIR_TEST_DATA, name);
    FILE *file = fopen(path, "rb");

    if (!file || !text) {
        fail_msg("cannot read %s", path);
    }
    *ret_bytes = fread(text, 1, room - 1, file);
    text[*ret_bytes] = 0;
    fclose(file);
    return text;
}

static uint32_t *new_data(void)
{
    uint32_t *data = fb_alloc(WORDS * 4);

    for (uint32_t i = 0; i < WORDS; i++) {
        data[i] = i * 2654435761u >> 7;
    }
    return data;
}

/* The kernel's own parameters; a twin has more behind them. */
struct params {
    uint64_t data;
    uint32_t n;
    uint32_t pad;
    struct weir_ptx_form_args args;
};

/* Of the kernel's own parameters. */
#define OWN_BYTES 12u

static bool run(struct state *st, void *module, const char *kernel, const uint32_t grid[3],
                uint32_t block, uint32_t dynamic_bytes, const void *params, uint32_t params_bytes)
{
    const struct fb_launch launch = {.grid = {grid[0], grid[1], grid[2]},
                                     .block = block,
                                     .dynamic_bytes = dynamic_bytes,
                                     .params = params,
                                     .params_bytes = params_bytes,
                                     .order_seed = st->random};

    return fb_run(module, kernel, &launch);
}

static bool run_original(struct state *st, void *module, const struct row *row, uint32_t *data)
{
    const struct params params = {.data = (uintptr_t)data, .n = WORDS};

    return run(st, module, row->kernel, row->grid, row->block, row->dynamic_bytes, &params,
               OWN_BYTES);
}

static void show(struct state *st, void *original, const struct row *row, uint32_t *data)
{
    static const uint32_t one[3] = {1, 1, 1};
    const struct params params = {.data = (uintptr_t)data, .n = WORDS};

    if (row->show) {
        assert_true(run(st, original, row->show, one, 65, 0, &params, OWN_BYTES));
    }
}

/* Twins under test. */
struct twin {
    struct weir_ptx_module *ptx;
    struct weir_ptx_twins twins;
    void *exec;
    const struct weir_ptx_twin_info *info;
};

static void damage_text(char *text, const struct damage *damage)
{
    size_t n = strlen(damage->from);
    char *at = strstr(text, damage->from);

    assert_int_equal(n, strlen(damage->to));
    assert_non_null(at);
    for (; at; at = strstr(at + n, damage->from)) {
        memcpy(at, damage->to, n);
    }
}

static void bind(const struct twin *twin, void *original)
{
    uint64_t table, from = 0, to, bytes;

    for (uint32_t i = 0; i < twin->twins.n_binds; i++) {
        assert_true(fb_global(twin->exec, WEIR_PTX_BINDS_NAME, &table) > 0);
        if (!fb_global(original, twin->twins.binds[i], &from)) {
            fail_msg("the driver does not find %s", twin->twins.binds[i]);
        }
        fb_write(table + 8ull * i, from);
    }
    for (uint32_t i = 0; i < twin->twins.n_consts; i++) {
        bytes = fb_global(original, twin->twins.consts[i], &from);
        assert_true(bytes > 0);
        assert_int_equal(fb_global(twin->exec, twin->twins.consts[i], &to), bytes);
        fb_copy(to, from, bytes);
    }
}

/* info is NULL when the form is refused. */
static struct twin make_twin(const struct row *row, uint32_t form_bit, void *original,
                             const char *text, size_t bytes, const struct damage *damage)
{
    const struct weir_ptx_twin_want want = {.kernel = row->kernel, .forms = form_bit};
    struct weir_diag diag = {0};
    struct twin twin = {.ptx = NULL};
    char *printed;
    size_t len;

    assert_int_equal(weir_ptx_parse(text, bytes, 0, &diag, &twin.ptx), WEIR_OK);
    assert_int_equal(weir_ptx_twins(twin.ptx, &want, 1, &twin.twins), WEIR_OK);
    assert_int_equal(twin.twins.n_infos, 1);
    if (!twin.twins.infos[0].name) {
        assert_true(strlen(twin.twins.infos[0].reason) > 10);
        return twin;
    }
    if (weir_ptx_check(twin.ptx, &diag) != WEIR_OK) {
        fail_msg("%s", diag.message);
    }
    twin.info = &twin.twins.infos[0];
    assert_int_equal(weir_ptx_print_buffer(twin.ptx, &printed, &len), WEIR_OK);
    if (damage) {
        damage_text(printed, damage);
    }
    twin.exec = fb_load(printed, len);
    free(printed);
    bind(&twin, original);
    return twin;
}

static void drop_twin(struct twin *twin)
{
    fb_unload(twin->exec);
    weir_ptx_destroy(twin->ptx);
}

static bool start(struct state *st, const struct twin *twin, const struct row *row,
                  const struct params *params, uint32_t blocks)
{
    const uint32_t grid[3] = {blocks, 1, 1};
    uint32_t extra = twin->info->dynamic_shared_bytes;
    uint32_t dynamic = extra ? ((row->dynamic_bytes + 15) & ~15u) + extra : row->dynamic_bytes;

    return run(st, twin->exec, twin->info->name, grid, row->block, dynamic, params,
               twin->info->param_bytes);
}

/* What a host could say before a start; in the parameter or in the control block. */
static void choose(struct state *st, struct weir_ptx_form_args *args,
                   struct weir_ptx_control *control)
{
    uint32_t count = below(st, 2) ? 1 + below(st, fb_sm_count()) : 0;
    uint32_t first = count ? below(st, fb_sm_count()) : 0;
    uint32_t block_limit = below(st, 2) ? 1 + below(st, 2) : 0;
    bool in_args = below(st, 2);

    args->task_blocks = 1 + below(st, 7);
    args->nearly_at = below(st, args->total);
    args->end =
        below(st, 3) ? control->next + below(st, args->total - control->next + 1) : args->total;
    args->sm_range = in_args && count ? WEIR_PTX_SM_RANGE(first, count) : 0;
    args->block_limit = in_args ? block_limit : 0;
    control->ask = in_args ? 0 : WEIR_PTX_ASK(first, count, block_limit);
    control->stop = below(st, 8) == 0;
    control->ask |= control->stop ? WEIR_PTX_ASK_STOP : 0;
}

/* A host that stops a launch at a time nobody knows. */
struct stopper {
    struct weir_ptx_control *control;
    uint32_t turns;
    bool is_done; /* atomic */
};

static void *stop_later(void *user)
{
    struct stopper *stopper = user;

    for (uint32_t i = 0; i < stopper->turns; i++) {
        __asm__ volatile("" ::: "memory");
    }
    __atomic_or_fetch(&stopper->control->ask, WEIR_PTX_ASK_STOP, __ATOMIC_RELAXED);
    __atomic_store_n(&stopper->control->stop, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&stopper->is_done, true, __ATOMIC_RELAXED);
    return NULL;
}

static bool control_holds(const struct weir_ptx_control *control,
                          const struct weir_ptx_form_args *args, bool persistent)
{
    uint32_t done = weir_ptx_control_done(control, args->end);

    for (uint32_t i = 0; i < WEIR_PTX_CONTROL_SMS; i++) {
        if (control->running[i]) {
            return false;
        }
    }
    return !persistent || (control->done == done && control->workers == 0 &&
                           control->finished == (done == args->total));
}

static bool finish(struct state *st, const struct twin *twin, const struct params *params)
{
    static const uint32_t one[3] = {1, 1, 1};
    const struct weir_ptx_control *control = (void *)(uintptr_t)params->args.control;

    return run(st, twin->exec, WEIR_PTX_FINISH_NAME, one, 1, 0, &params->args,
               sizeof(params->args)) &&
           control->finished ==
               (weir_ptx_control_done(control, params->args.end) == params->args.total);
}

/* One start, and perhaps a stop while it runs. */
static bool start_and_stop(struct state *st, const struct twin *twin, const struct row *row,
                           const struct params *params, uint32_t blocks)
{
    struct weir_ptx_control *control = (void *)(uintptr_t)params->args.control;
    struct stopper stopper = {control, below(st, STOP_TURNS), false};
    bool stops = fb_writes_meanwhile() && !control->stop && below(st, 2);
    uint32_t before = control->next;
    pthread_t thread;

    if (stops) {
        assert_int_equal(pthread_create(&thread, NULL, stop_later, &stopper), 0);
    }
    bool ok = start(st, twin, row, params, blocks);

    if (stops) {
        bool in_time = __atomic_load_n(&stopper.is_done, __ATOMIC_RELAXED);

        pthread_join(thread, NULL);
        st->stopped += in_time && control->next > before && control->next < params->args.end;
    }
    return ok;
}

static bool run_controlled(struct state *st, const struct twin *twin, const struct row *row,
                           struct params *params, bool persistent)
{
    struct weir_ptx_control *control = fb_alloc(sizeof(*control));
    struct weir_ptx_form_args *args = &params->args;
    bool ok = true;

    args->control = (uintptr_t)control;
    for (uint32_t i = 0; ok && control->next < args->total; i++) {
        if (i == MAX_STARTS) {
            print_message("%s does not come to its end\n", row->kernel);
            ok = false;
            break;
        }
        choose(st, args, control);
        uint32_t blocks = persistent ? 1 + below(st, 2 * fb_sm_count() + 4)
                                     : args->total - control->next + below(st, 3);

        ok = start_and_stop(st, twin, row, params, blocks) &&
             control_holds(control, args, persistent) && (persistent || finish(st, twin, params));
        control->next = weir_ptx_control_done(control, args->end);
    }
    fb_free(control);
    return ok;
}

static bool run_twin(struct state *st, const struct twin *twin, const struct row *row,
                     uint32_t *data)
{
    struct params params = {.data = (uintptr_t)data, .n = WORDS};

    assert_int_equal(twin->info->args_offset, offsetof(struct params, args));
    assert_int_equal(twin->info->param_bytes, sizeof(params));
    assert_true(weir_ptx_form_args_init(row->grid, &params.args));
    switch (twin->info->form) {
    case WEIR_PTX_FORM_TICKET:
        return run_controlled(st, twin, row, &params, false);
    case WEIR_PTX_FORM_PERSISTENT:
        return run_controlled(st, twin, row, &params, true);
    case WEIR_PTX_FORM_ORIGINAL:
    case WEIR_PTX_FORM_COUNT:
        break;
    }
    return false;
}

enum verdict { SAME, DIFFERENT, REFUSED };

/* A row in a form against the untouched run. */
static enum verdict compare(struct state *st, const struct row *row, uint32_t form_bit,
                            const struct damage *damage)
{
    size_t bytes;
    char *text = read_file(row->file, &bytes);
    void *first = fb_load(text, bytes), *second = fb_load(text, bytes);
    struct twin twin = make_twin(row, form_bit, second, text, bytes, damage);
    enum verdict verdict = REFUSED;
    uint32_t *want = new_data(), *got = new_data();

    if (twin.info) {
        assert_true(run_original(st, first, row, want));
        show(st, first, row, want);
        bool ok = run_twin(st, &twin, row, got);

        show(st, second, row, got);
        verdict = ok && memcmp(want, got, WORDS * 4) == 0 ? SAME : DIFFERENT;
    }
    fb_free(want);
    fb_free(got);
    drop_twin(&twin);
    fb_unload(first);
    fb_unload(second);
    free(text);
    return verdict;
}

static struct state the_state;

static void all_rows(struct state *st, uint32_t form_bit)
{
    for (size_t i = 0; i < N_ROWS; i++) {
        bool admitted = rows[i].forms & form_bit;

        if (getenv("WEIR_TEST_VERBOSE")) {
            print_message("%s\n", rows[i].kernel);
            fflush(NULL);
        }
        for (uint64_t seed = 0; seed < (admitted ? ROUNDS : 1); seed++) {
            st->random = (base_seed() * ROUNDS + seed + 1) * 0x9e3779b97f4a7c15ull;
            enum verdict verdict = compare(st, &rows[i], form_bit, NULL);

            if (verdict != (admitted ? SAME : REFUSED)) {
                fail_msg("%s, form bit %u, round %u: %s", rows[i].kernel, form_bit, (unsigned)seed,
                         verdict == REFUSED ? "refused"
                         : verdict == SAME  ? "admitted"
                                            : "different");
            }
        }
    }
}

static void any_stop_gives_equal_memory(uint32_t form_bit)
{
    the_state.stopped = 0;
    all_rows(&the_state, form_bit);
    for (int turn = 1; turn < LOOK_TURNS && the_state.stopped == 0 && fb_writes_meanwhile();
         turn++) {
        all_rows(&the_state, form_bit); /* where processors are few all stops may come too late */
    }
    print_message("%u starts were stopped on their way\n", the_state.stopped);
    assert_true(the_state.stopped > 0 || !fb_writes_meanwhile());
}

static void ticket_any_stop_gives_equal_memory(void **state)
{
    (void)state;
    any_stop_gives_equal_memory(T);
}

static void persistent_any_stop_gives_equal_memory(void **state)
{
    (void)state;
    any_stop_gives_equal_memory(P);
}

/* Without this the tests above could compare nothing. */
static void twins_broken_on_purpose_are_found_out(void **state)
{
    static const struct {
        uint32_t form;
        size_t row;
        struct damage damage;
    } cases[] = {
        {T, 2, {"[weir$args+40]", "[weir$args+20]"}}, /* end: total */
        {T, 2, {"+128], 1;", "+128], 2;"}},           /* every second block */
        {P, 1, {"[weir$args+12]", "[weir$args+16]"}}, /* rows of the grid: planes */
        {P, 2, {"[weir$args+40]", "[weir$args+20]"}}, /* end: total */
        {P, 2, {"+144], %r", "+148], %r"}},           /* finished: another word */
        {P, 2, {"min.u32 ", "max.u32 "}},             /* the last task: not cut */
    };
    struct state *st = &the_state;

    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bool found = false;

        for (uint64_t seed = 1; seed < 9 && !found; seed++) {
            st->random = seed * 0x9e3779b97f4a7c15ull;
            found = compare(st, &rows[cases[i].row], cases[i].form, &cases[i].damage) == DIFFERENT;
        }
        if (!found) {
            fail_msg("case %zu was not found out", i);
        }
    }
}

/* Block 0 sends all workers away. Which blocks one worker does then, with tasks of one block. */
static uint32_t done_after_leave(struct state *st, uint32_t ask)
{
    static const char text[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                               ".visible .entry leave(.param .u64 ask, .param .u32 word)\n{\n"
                               ".reg .pred %p;\n.reg .b32 %r<2>;\n.reg .b64 %rd;\n"
                               "mov.u32 %r0, %ctaid.x;\nsetp.ne.u32 %p, %r0, 0;\n@%p ret;\n"
                               "ld.param.u64 %rd, [ask];\nld.param.u32 %r1, [word];\n"
                               "st.volatile.global.u32 [%rd], %r1;\nmembar.gl;\nret;\n}\n";
    const struct row row = {.kernel = "leave", .grid = {9, 1, 1}, .block = 1};
    struct weir_ptx_control *control = fb_alloc(sizeof(*control));
    void *original = fb_load(text, sizeof(text) - 1);
    struct twin twin = make_twin(&row, P, original, text, sizeof(text) - 1, NULL);
    struct params params = {.data = (uintptr_t)&control->ask, .n = WEIR_PTX_ASK(4000, 1, 0)};

    memset(control, 0, sizeof(*control));
    control->ask = ask;
    assert_true(weir_ptx_form_args_init(row.grid, &params.args));
    params.args.control = (uintptr_t)control;
    assert_true(start(st, &twin, &row, &params, 1));
    assert_int_equal(control->retired, 1);
    assert_int_equal(control->workers, 0);
    assert_int_equal(control->next, control->done);
    uint32_t done = control->done;

    drop_twin(&twin);
    fb_unload(original);
    fb_free(control);
    return done;
}

static void a_worker_that_is_sent_away_ends_its_task_and_leaves(void **state)
{
    struct state *st = &the_state;

    (void)state;
    assert_int_equal(done_after_leave(st, 0), 2); /* one that it took before it heard of it */
    assert_int_equal(done_after_leave(st, WEIR_PTX_ASK_LOOK), 1);
}

/* A kernel whose blocks need each other in another order than they begin. */
static void order_seed_begins_every_block_once(void **state)
{
    struct state *st = &the_state;

    (void)state;
    const struct row row = {
        .file = "compiled.ptx", .kernel = "counts", .grid = {97, 3, 1}, .block = 1};
    size_t bytes;
    char *text = read_file(row.file, &bytes);
    void *module = fb_load(text, bytes);
    uint32_t *want = new_data(), *got = new_data();

    st->random = 0;
    assert_true(run_original(st, module, &row, want));
    st->random = base_seed() * 0x9e3779b97f4a7c15ull;
    assert_true(run_original(st, module, &row, got));
    assert_memory_equal(want, got, WORDS * 4);
    fb_free(want);
    fb_free(got);
    fb_unload(module);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ticket_any_stop_gives_equal_memory),
        cmocka_unit_test(persistent_any_stop_gives_equal_memory),
        cmocka_unit_test(a_worker_that_is_sent_away_ends_its_task_and_leaves),
        cmocka_unit_test(twins_broken_on_purpose_are_found_out),
        cmocka_unit_test(order_seed_begins_every_block_once),
    };

    if (!fb_open()) {
        print_message("skipped: no device\n");
        return 77;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);

    fb_close();
    return failed;
}
