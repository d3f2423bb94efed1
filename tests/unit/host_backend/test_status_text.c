/* Status rows: what is written is what is read. */
#include "host_backend/config/status_text.h"

#include "../../lib/tl_cmocka.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static char *text_of(const struct weir_status_report *report)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    assert_non_null(out);
    weir_status_text_write(out, report);
    fclose(out);
    return text;
}

static void read_gives_back_what_was_written(void **state)
{
    struct weir_status_tenant tenant = {
        .name = "a", .priority = "high", .weight = 7, .used_bytes = 5};
    struct weir_status_session session = {
        .tenant = "a", .program = "we\"ird\\\n{name},", .id = 3, .calls_per_s = 1.5};
    struct weir_status_worker worker = {.device = "GPU", .restarts = 2, .chunks = 9};
    struct weir_status_setting setting = {
        .tenant = "a", .key = "weight", .value = "3", .base = "100", .live = 1};
    struct weir_status_note note = {"warning", "what"};
    struct weir_status_event event = {
        .number = 4, .kind = "fault", .tenant = "a", .why = "\"x\"", .n = 1};
    struct weir_status_device device = {
        .uuid = "GPU-1", .free_bytes = 5, .temperature_c = NAN, .sm_ns = 8};
    struct weir_status_report report = {.devices = &device,
                                        .n_devices = 1,
                                        .events = &event,
                                        .n_events = 1,
                                        .version = "1",
                                        .pid = 42,
                                        .settings = &setting,
                                        .n_settings = 1,
                                        .notes = &note,
                                        .n_notes = 1,
                                        .tenants = &tenant,
                                        .n_tenants = 1,
                                        .sessions = &session,
                                        .n_sessions = 1,
                                        .workers = &worker,
                                        .n_workers = 1};
    struct weir_status_report *back;
    char *text = text_of(&report);

    (void)state;
    assert_non_null(strstr(text, "\"temperature_c\":null,"));
    assert_non_null(strstr(text, "\"free_bytes\":5,"));
    assert_non_null(strstr(text, "\"calls_per_s\":1.500,"));
    assert_int_equal(weir_status_text_read(text, &back), WEIR_OK);
    assert_int_equal(back->pid, 42);
    assert_int_equal(back->n_tenants, 1);
    assert_int_equal(back->tenants[0].weight, 7);
    assert_string_equal(back->sessions[0].program, session.program);
    assert_true(back->sessions[0].calls_per_s == 1.5);
    assert_int_equal(back->workers[0].chunks, 9);
    assert_int_equal(back->n_settings, 1);
    assert_string_equal(back->settings[0].base, "100");
    assert_int_equal(back->settings[0].live, 1);
    assert_int_equal(back->n_notes, 1);
    assert_string_equal(back->notes[0].text, "what");
    assert_int_equal(back->n_devices, 1);
    assert_true(back->devices[0].free_bytes == 5 && isnan(back->devices[0].temperature_c));
    assert_int_equal(back->devices[0].sm_ns, 8);
    assert_int_equal(back->n_events, 1);
    assert_int_equal(back->events[0].number, 4);
    assert_string_equal(back->events[0].why, "\"x\"");
    weir_status_report_destroy(back);
    free(text);
}

/* Programs choose their names; what is no UTF-8 is replaced, so that each row is JSON. */
static void program_may_be_called_anything(void **state)
{
    static const struct {
        const char *program, *read;
    } cases[] = {
        {"\x01\x1f\x7f\033[2J\r\n", NULL},
        {"caf\xc3\xa9 \xf0\x9f\x98\x80 \xc2\x9b \xe2\x80\xae", NULL},
        {"caf\xe9", "caf\xef\xbf\xbd"},
        {"\\u0041\\", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct weir_status_session session = {.tenant = "a"};
        struct weir_status_report report = {.sessions = &session, .n_sessions = 1}, *back;
        char *text;

        snprintf(session.program, sizeof session.program, "%s", cases[i].program);
        text = text_of(&report);
        for (const char *at = text; *at != 0; at++) {
            assert_true((unsigned char)*at >= 0x20 || *at == '\n');
        }
        assert_int_equal(weir_status_text_read(text, &back), WEIR_OK);
        assert_string_equal(back->sessions[0].program,
                            cases[i].read ? cases[i].read : cases[i].program);
        weir_status_report_destroy(back);
        free(text);
    }
}

/* A session's follow it, a device's come behind all. */
static void counts_belong_to_their_session(void **state)
{
    struct weir_status_counted sessions[] = {{.tenant = "a", .id = 1}, {.tenant = "b", .id = 2}};
    struct weir_status_count launched = {.name = "persistent", .n = 7};
    struct weir_status_count stops = {.name = "stops", .n = 9, .device = "3"};
    struct weir_status_report *back;
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    (void)state;
    assert_non_null(out);
    weir_status_text_counted(out, &sessions[0]);
    weir_status_text_counted(out, &sessions[1]);
    weir_status_text_form(out, &launched);
    weir_status_text_run(out, &stops);
    fputs(WEIR_STATUS_TEXT_END, out);
    fclose(out);
    assert_int_equal(weir_status_text_read(text, &back), WEIR_OK);
    assert_int_equal(back->n_forms, 1);
    assert_string_equal(back->forms[0].name, "persistent");
    assert_int_equal(back->forms[0].n, 7);
    assert_int_equal(back->forms[0].counted, 1);
    assert_int_equal(back->n_runs, 1);
    assert_string_equal(back->runs[0].device, "3");
    assert_int_equal(back->runs[0].n, 9);
    weir_status_report_destroy(back);
    free(text);
}

static void figures_of_several_workers_become_one(void **state)
{
    struct weir_status_tenant a = {.sessions = 2, .items = UINT64_MAX - 3, .weight = 7};
    const struct weir_status_tenant b = {.sessions = 3, .items = 3, .weight = 9, .scheduled = 1};
    struct weir_status_device d = {.ordinal = 2, .free_bytes = NAN, .power_w = 5};
    const struct weir_status_device e = {
        .name = "A", .ordinal = 3, .free_bytes = 8, .power_w = 6, .sm_ns = 4};

    (void)state;
    weir_status_merge(weir_status_tenant_fields, &a, &b);
    assert_int_equal(a.sessions, 5);
    assert_int_equal(a.items, UINT64_MAX);
    assert_int_equal(a.scheduled, 1);
    assert_int_equal(a.weight, 7); /* the supervisor knows it */
    weir_status_merge(weir_status_device_fields, &d, &e);
    assert_string_equal(d.name, "A");
    assert_int_equal(d.ordinal, 2);
    assert_true(d.free_bytes == 8 && d.power_w == 5);
    assert_int_equal(d.sm_ns, 4);
}

static void texts_of_others_are_ended(void **state)
{
    struct weir_status_session s;

    (void)state;
    memset(&s, 'x', sizeof s);
    weir_status_end_texts(weir_status_session_fields, &s);
    assert_int_equal(strlen(s.tenant), sizeof s.tenant - 1);
    assert_int_equal(strlen(s.program), sizeof s.program - 1);
    assert_int_equal(strlen(s.transport), sizeof s.transport - 1);
}

static void read_of_any_prefix_is_refused_or_whole(void **state)
{
    struct weir_status_tenant tenant = {.name = "a"};
    struct weir_status_report report = {.tenants = &tenant, .n_tenants = 1}, *back;
    char *text = text_of(&report);
    size_t bytes = strlen(text);

    (void)state;
    for (size_t n = 0; n + 1 < bytes; n++) {
        char *cut = strndup(text, n);

        assert_int_equal(weir_status_text_read(cut, &back), WEIR_ERR_PEER);
        free(cut);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(read_gives_back_what_was_written),
        cmocka_unit_test(program_may_be_called_anything),
        cmocka_unit_test(counts_belong_to_their_session),
        cmocka_unit_test(figures_of_several_workers_become_one),
        cmocka_unit_test(texts_of_others_are_ended),
        cmocka_unit_test(read_of_any_prefix_is_refused_or_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
