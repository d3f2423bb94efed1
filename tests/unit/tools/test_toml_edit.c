/* weir.toml edited: what changes, and that nothing else does. */
#include "tools/toml_edit.h"

#include "../../lib/tl_cmocka.h"
#include "host_backend/config/config.h"
#include <stdlib.h>
#include <string.h>

#define HEAD  "# mine\n[host]\nlog = \"warn\"   # quiet\n\n"
#define ALICE "[[tenant]] # first\n  name = \"alice\"\n  weight = 5\t# low\n"
#define BOB   "[[ tenant ]]\nmemory = \"1GiB\" # \"not\" this\nname = 'bob'"

static const struct row {
    const char *text, *tenant, *key, *value, *expected;
} rows[] = {
    {HEAD ALICE BOB, "alice", "weight", "300",
     HEAD "[[tenant]] # first\n  name = \"alice\"\n  weight = 300\t# low\n" BOB},
    {HEAD ALICE BOB, "alice", "memory", "2GiB",
     HEAD "[[tenant]] # first\n  name = \"alice\"\nmemory = \"2GiB\"\n  weight = 5\t# low\n" BOB},
    {HEAD ALICE BOB, "bob", "memory", "25%",
     HEAD ALICE "[[ tenant ]]\nmemory = \"25%\" # \"not\" this\nname = 'bob'"},
    {HEAD ALICE BOB, "bob", "weight", "7", HEAD ALICE BOB "\nweight = 7\n"},
    {HEAD ALICE BOB, "alice", "weight", "", HEAD "[[tenant]] # first\n  name = \"alice\"\n" BOB},
    {HEAD ALICE, "carol", "priority", "high",
     HEAD ALICE "\n[[tenant]]\nname = \"carol\"\npriority = \"high\"\n"},
    {HEAD ALICE, "ali", NULL, NULL, HEAD ALICE "\n[[tenant]]\nname = \"ali\"\n"},
    {HEAD ALICE, "alice", NULL, NULL, HEAD ALICE},
    {"", "a", "weight", "1",
     "\n[[tenant]]\nname = \"default\"\n\n[[tenant]]\nname = \"a\"\nweight = 1\n"},
    {"", "default", "weight", "1", "\n[[tenant]]\nname = \"default\"\nweight = 1\n"},
    /* A name in another table, or in a comment, is no tenant's. */
    {"[host]\nname = \"a\"\n# name = \"a\"\n", "a", NULL, NULL,
     "[host]\nname = \"a\"\n# name = \"a\"\n\n[[tenant]]\nname = \"default\"\n\n[[tenant]]\nname = "
     "\"a\"\n"},
    {"[[tenant]]\r\nname = \"a\"\r\nweight = 3\r\n", "a", "weight", "4",
     "[[tenant]]\r\nname = \"a\"\r\nweight = 4\r\n"},
    /* All that TOML allows. */
    {"[[\"tenant\"]]\n\"weight\" =   0x10   # of 16\n'name' = '''a'''\n", "a", "weight", "4",
     "[[\"tenant\"]]\n\"weight\" =   4   # of 16\n'name' = '''a'''\n"},
    {"[[tenant]]\nname = \"\"\"\n\\u0061\"\"\" # two lines\n[host]\n", "a", "weight", "4",
     "[[tenant]]\nname = \"\"\"\n\\u0061\"\"\" # two lines\nweight = 4\n[host]\n"},
    {"[[tenant]]\ndevices = [ # both\n  0,\n  1, # [[tenant]]\n]  # of two\nname = \"a\"\n", "a",
     "devices", "1", "[[tenant]]\ndevices = 1  # of two\nname = \"a\"\n"},
    {"[[tenant]]\ndevices = [\n  0,\n  1,\n] # of two\nname = \"a\"\n", "a", "devices", "",
     "[[tenant]]\nname = \"a\"\n"},
    {"host.log = \"warn\"\n[[tenant]]\nname = \"a\"\n", "a", "weight", "4",
     "host.log = \"warn\"\n[[tenant]]\nname = \"a\"\nweight = 4\n"},
};

static void set_changes_one_line_and_keeps_the_rest(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *row = &rows[i];
        char *text = weir_toml_set(row->text, row->tenant, row->key, row->value);

        assert_non_null(text);
        if (strcmp(text, row->expected) != 0) {
            print_error("row %zu gave\n%s\n", i, text);
            fail();
        }
        free(text);
    }
}

static void remove_takes_the_table_and_no_more(void **state)
{
    char *text = weir_toml_remove(HEAD ALICE BOB, "alice");

    (void)state;
    assert_string_equal(text, HEAD BOB);
    free(text);
    text = weir_toml_remove(HEAD ALICE BOB, "bob");
    assert_string_equal(text, HEAD ALICE);
    free(text);
    text = weir_toml_remove(HEAD ALICE BOB, "nobody");
    assert_string_equal(text, HEAD ALICE BOB);
    free(text);
}

static void editable_is_what_stands_in_tables(void **state)
{
    (void)state;
    assert_true(weir_toml_editable(HEAD ALICE BOB) && weir_toml_editable(HEAD) &&
                weir_toml_editable(""));
    assert_false(weir_toml_editable("tenant = [{name = \"a\"}]\n"));
    assert_true(weir_toml_has_tenants("tenant = [{name = \"a\"}]\n"));
    assert_false(weir_toml_has_tenants("# [[tenant]]\n"));
}

/* Whatever a setting may be, the host reads it back as it was. */
static void set_of_every_setting_is_read_back(void **state)
{
    struct weir_tenant_config tenant;

    (void)state;
    weir_tenant_config_default(&tenant, "alice");
    strcpy(tenant.devices, "0,1");
    strcpy(tenant.key, "[]{}@%$#.-:+=^!/*?&<>()abcdefghijklmnopq");
    for (size_t i = 0; i < weir_setting_count(); i++) {
        char value[WEIR_SETTING_TEXT_BYTES], back[WEIR_SETTING_TEXT_BYTES], *text;
        struct weir_host_config *config = malloc(sizeof *config);
        struct weir_diag diag = {0};

        weir_setting_text(i, &tenant, value);
        text = weir_toml_set(HEAD ALICE, "alice", weir_setting_key(i), value);
        assert_non_null(text);
        if (weir_config_parse(text, strlen(text), config, &diag) != WEIR_OK) {
            print_error("%s: %s\n", text, diag.message);
            fail();
        }
        weir_setting_text(i, &config->tenants[0], back);
        assert_string_equal(back, value);
        free(text);
        free(config);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set_changes_one_line_and_keeps_the_rest),
        cmocka_unit_test(remove_takes_the_table_and_no_more),
        cmocka_unit_test(editable_is_what_stands_in_tables),
        cmocka_unit_test(set_of_every_setting_is_read_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
