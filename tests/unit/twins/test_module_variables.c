/* Constants of a module and of its twins: who copies what, in which stream, and when it is given
 * up. */
#include "host_backend/worker/memory/memory.h"
#include "host_backend/worker/twins/exposures.h"
#include "host_backend/worker/twins/private.h"

#include "../../lib/tl_cmocka.h"
#include <stdlib.h>
#include <string.h>

/* Originals at 0x1000 ("factor", a constant of 64 bytes) and 0x2000 ("counter", a variable); the
 * twins' copy at 0x9000, their table at 0xa000. Streams are numbers; events are not over while
 * event_open. */
static char said[400];
static bool event_open, factor_missing;
static unsigned live_events;

static CUresult get_global(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name)
{
    bool twins = module == (CUmodule)2;

    *bytes = 64;
    if (strcmp(name, "factor") == 0 && !factor_missing) {
        *address = twins ? 0x9000 : 0x1000;
    } else if (strcmp(name, "counter") == 0 && !twins) {
        *address = 0x2000;
    } else if (strcmp(name, WEIR_PTX_BINDS_NAME) == 0 && twins) {
        *address = 0xa000;
    } else {
        return CUDA_ERROR_NOT_FOUND;
    }
    return CUDA_SUCCESS;
}

static void say(const char *what, uint64_t to, uint64_t from, uint64_t bytes, CUstream stream)
{
    size_t n = strlen(said);

    snprintf(said + n, sizeof said - n, "%s(%llx,%llx,%llu,%d) ", what, (unsigned long long)to,
             (unsigned long long)from, (unsigned long long)bytes, (int)(uintptr_t)stream);
}

static CUresult copy_in(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    say("table", to, *(const uint64_t *)from, bytes, stream);
    return CUDA_SUCCESS;
}

static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    say("copy", to, from, bytes, stream);
    return CUDA_SUCCESS;
}

static CUresult stream_create(CUstream *ret, unsigned flags)
{
    (void)flags;
    *ret = (CUstream)99;
    return CUDA_SUCCESS;
}

static CUresult synchronize(CUstream stream)
{
    (void)stream;
    return CUDA_SUCCESS;
}

static CUresult event_create(CUevent *ret, unsigned flags)
{
    (void)flags;
    *ret = (CUevent)1;
    live_events++;
    return CUDA_SUCCESS;
}

static CUresult event_destroy(CUevent event)
{
    (void)event;
    live_events--;
    return CUDA_SUCCESS;
}

static CUresult event_record(CUevent event, CUstream stream)
{
    (void)event;
    say("event", 0, 0, 0, stream);
    return CUDA_SUCCESS;
}

static CUresult event_query(CUevent event)
{
    (void)event;
    return event_open ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static struct weir_driver driver = {.cuModuleGetGlobal_v2 = get_global,
                                    .cuMemcpyHtoDAsync_v2 = copy_in,
                                    .cuMemcpyDtoDAsync_v2 = copy,
                                    .cuStreamCreate = stream_create,
                                    .cuStreamSynchronize = synchronize,
                                    .cuEventCreate = event_create,
                                    .cuEventDestroy_v2 = event_destroy,
                                    .cuEventRecord = event_record,
                                    .cuEventQuery = event_query};
static const char *binds[] = {"counter"}, *consts[] = {"factor"};
static struct weir_forms_set set = {.binds = binds, .n_binds = 1, .consts = consts, .n_consts = 1};

static struct fixture {
    struct weir_session session;
    struct weir_host_module module;
    struct weir_forms_module forms;
    struct weir_forms_device device;
    struct weir_host_stream streams[3];
} * f;

static int set_up(void **state)
{
    (void)state;
    f = calloc(1, sizeof *f);
    f->session.driver = &driver;
    f->session.holdings = weir_holdings_create();
    assert_non_null(f->session.holdings);
    f->module.forms = &f->forms;
    f->forms.device = &f->device;
    f->forms.set = &set;
    f->forms.original = (CUmodule)1;
    f->forms.twins = (CUmodule)2;
    atomic_init(&f->forms.state, WEIR_FORMS_READY);
    for (uintptr_t i = 0; i < 3; i++) {
        f->streams[i].o.native = (void *)i;
        f->streams[i].o.handle = i + 1;
    }
    said[0] = 0;
    event_open = factor_missing = false;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    weir_forms_session_gone(&f->session);
    assert_null(f->session.exposures);
    assert_int_equal(live_events, 0);
    weir_holdings_destroy(f->session.holdings);
    free(f->forms.consts);
    free(f);
    return 0;
}

static void write_by(unsigned stream, uint64_t address, uint64_t bytes)
{
    weir_forms_touch(&f->session, address, bytes);
    weir_forms_written(&f->session, &f->streams[stream]);
}

static void expose_both(void)
{
    weir_forms_exposed(&f->session, &f->module, 0x1000, 64);
    weir_forms_exposed(&f->session, &f->module, 0x2000, 64);
}

static void bind_copies_constants_and_fills_the_table(void **state)
{
    (void)state;
    assert_true(weir_forms_bind(&f->session, &f->forms));
    assert_string_equal(said, "table(a000,2000,8,99) copy(9000,1000,64,99) ");
    assert_true(weir_forms_bind(&f->session, &f->forms)); /* once */
    assert_string_equal(said, "table(a000,2000,8,99) copy(9000,1000,64,99) ");
}

static void bind_of_what_is_missing_refuses(void **state)
{
    (void)state;
    factor_missing = true;
    assert_false(weir_forms_bind(&f->session, &f->forms));
    assert_true(f->forms.refused);
}

static void write_to_a_bound_constant_is_followed_in_its_stream(void **state)
{
    (void)state;
    expose_both();
    assert_true(weir_forms_bind(&f->session, &f->forms));
    expose_both(); /* asked for again */
    said[0] = 0;
    write_by(1, 0x1000, 4);
    assert_string_equal(said, "copy(9000,1000,4,1) ");
    said[0] = 0;
    write_by(2, 0x0ff0, 0x20); /* begins before it */
    write_by(2, 0x103c, 100);  /* goes on behind it */
    assert_string_equal(said, "copy(9000,1000,16,2) copy(903c,103c,4,2) ");
    said[0] = 0;
    write_by(2, 0x1040, 8); /* beside it */
    write_by(2, 0x2000, 8); /* a variable is the same for both */
    assert_string_equal(said, "");
    assert_false(f->forms.refused);
}

static void first_exposure_after_binding_is_followed(void **state)
{
    (void)state;
    assert_true(weir_forms_bind(&f->session, &f->forms));
    expose_both();
    said[0] = 0;
    write_by(1, 0x1010, 4);
    write_by(1, 0x2010, 4);
    assert_string_equal(said, "copy(9010,1010,4,1) ");
}

static void bind_waits_for_writes_that_are_open(void **state)
{
    (void)state;
    expose_both();
    write_by(1, 0x1000, 4);
    assert_string_equal(said, "event(0,0,0,1) ");
    event_open = true;
    said[0] = 0;
    assert_false(weir_forms_bind(&f->session, &f->forms));
    assert_false(f->forms.refused);
    assert_string_equal(said, "");
    event_open = false;
    assert_true(weir_forms_bind(&f->session, &f->forms));
}

static void writes_of_two_streams_at_once_before_binding_refuse(void **state)
{
    (void)state;
    expose_both();
    write_by(1, 0x1000, 4);
    write_by(2, 0x1000, 4); /* the first was over */
    assert_false(f->forms.refused);
    event_open = true;
    write_by(2, 0x1000, 4); /* its own */
    assert_false(f->forms.refused);
    write_by(1, 0x1000, 4);
    assert_true(f->forms.refused);
}

static void unseen_write_refuses_only_for_a_constant(void **state)
{
    (void)state;
    expose_both();
    assert_true(weir_forms_bind(&f->session, &f->forms));
    weir_forms_touch(&f->session, 0x2000, 4);
    assert_int_equal(f->session.exposures->touched_bytes, 0);
    weir_forms_touch(&f->session, 0x1000, 4);
    assert_int_equal(f->session.exposures->touched_bytes, 4);
    weir_forms_wrote_unseen(&f->session);
    assert_true(f->forms.refused);
}

static void unseen_write_before_binding_is_remembered(void **state)
{
    (void)state;
    expose_both();
    weir_forms_touch(&f->session, 0x2000, 4);
    weir_forms_wrote_unseen(&f->session);
    weir_forms_touch(&f->session, 0x1000, 4);
    weir_forms_wrote_unseen(&f->session);
    assert_false(f->forms.refused);
    assert_false(weir_forms_bind(&f->session, &f->forms)); /* now it is known for a constant */
    assert_true(f->forms.refused);
}

static void arguments_with_a_constants_address_refuse(void **state)
{
    uint64_t arguments[] = {5, 0x2000, 0x1040, 0x0fff};

    (void)state;
    expose_both();
    weir_forms_arguments(&f->session, (const uint8_t *)arguments, sizeof arguments);
    assert_true(weir_forms_bind(&f->session, &f->forms)); /* none of them was the constant's */
    arguments[0] = 0x103f;
    weir_forms_arguments(&f->session, (const uint8_t *)arguments, 7);
    assert_false(f->forms.refused);
    weir_forms_arguments(&f->session, (const uint8_t *)arguments, sizeof arguments);
    assert_true(f->forms.refused);
}

static void module_without_twins_is_not_watched(void **state)
{
    (void)state;
    atomic_store(&f->forms.state, WEIR_FORMS_NONE);
    expose_both();
    assert_null(f->session.exposures);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(bind_copies_constants_and_fills_the_table),
        TEST(bind_of_what_is_missing_refuses),
        TEST(write_to_a_bound_constant_is_followed_in_its_stream),
        TEST(first_exposure_after_binding_is_followed),
        TEST(bind_waits_for_writes_that_are_open),
        TEST(writes_of_two_streams_at_once_before_binding_refuse),
        TEST(unseen_write_refuses_only_for_a_constant),
        TEST(unseen_write_before_binding_is_remembered),
        TEST(arguments_with_a_constants_address_refuse),
        TEST(module_without_twins_is_not_watched),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
