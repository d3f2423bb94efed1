/* weir.toml: what is read, and where and why it is refused. */
#include "host_backend/config/config.h"

#include "../../lib/tl_cmocka.h"
#include <string.h>

static void parse_whole_file_reads_every_key(void **state)
{
    static const char text[] = "# host\n"
                               "[host]\n"
                               "run_dir = \"/tmp/w\" # there\n"
                               "listen_tcp = '0.0.0.0:7000'\n"
                               "server_key = \"/etc/key\"\n"
                               "device = 1\n"
                               "cdi = \"/etc/cdi/w.json\"\n"
                               "socket_mode = 0o666\n"
                               "worker_user = \"gpu\"\n"
                               "window_base = 0x10_0000_0000\n"
                               "window_bytes = \"64GiB\"\n"
                               "\n"
                               "[forms]\n"
                               "mode = \"auto\"\n"
                               "ptx = \"any\"\n"
                               "twins = \"all\"\n"
                               "seed = 7\n"
                               "compiler = \"/opt/ptxas\"\n"
                               "compile_memory = \"2GiB\"\n"
                               "compile_s = 30\n"
                               "cache_dir = \"/var/c\"\n"
                               "cache = \"3MiB\"\n"
                               "[metrics]\n"
                               "listen = \"127.0.0.1:9090\"\n"
                               "[libvirt]\n"
                               "uri = \"qemu:///system\"\n"
                               "create = true\n"
                               "[[tenant]]\r\n"
                               "sm_limit = \"50%\"\n"
                               "forms = \"always\"\n"
                               "name = \"a\"\n"
                               "weight = 300\n"
                               "priority = \"high\"\n"
                               "memory = \"8GiB\"\n"
                               "[[ tenant ]]\n"
                               "name = 'b.c-d'\n"
                               "isolation = \"process\"\n"
                               "memory = \"25%\"\n"
                               "sessions = 2";
    struct weir_host_config c;
    struct weir_diag diag = {0};

    (void)state;
    assert_int_equal(weir_config_parse(text, sizeof text - 1, &c, &diag), WEIR_OK);
    assert_string_equal(c.run_dir, "/tmp/w");
    assert_string_equal(c.listen_tcp, "0.0.0.0:7000");
    assert_string_equal(c.devices, "1");
    assert_string_equal(c.cdi, "/etc/cdi/w.json");
    assert_true(weir_config_cdi_ok(c.cdi) && weir_config_cdi_ok("none") && weir_config_cdi_ok(""));
    assert_false(weir_config_cdi_ok("cdi.json") || weir_config_cdi_ok("/.json") ||
                 weir_config_cdi_ok("/etc/cdi/weir"));
    assert_int_equal(c.socket_mode, 0666);
    assert_string_equal(c.worker_user, "gpu");
    assert_true(c.window_base == 0x1000000000 && c.window_bytes == UINT64_C(64) << 30);
    assert_int_equal(c.forms.mode, WEIR_FORMS_AUTO);
    assert_int_equal(c.forms.ptx, WEIR_FORMS_PTX_ANY);
    assert_int_equal(c.forms.twins, WEIR_FORMS_TWINS_ALL);
    assert_int_equal(c.forms.seed, 7);
    assert_string_equal(c.forms.compiler, "/opt/ptxas");
    assert_int_equal(c.forms.compile_memory_bytes, UINT64_C(2) << 30);
    assert_int_equal(c.forms.compile_s, 30);
    assert_string_equal(c.forms.cache_dir, "/var/c");
    assert_true(c.forms.cache_bytes == 3u << 20);
    assert_string_equal(c.metrics_listen, "127.0.0.1:9090");
    assert_string_equal(c.libvirt_uri, "qemu:///system");
    assert_true(c.libvirt_create);
    assert_int_equal(c.n_tenants, 2);
    assert_int_equal(c.tenants[0].sm_limit_pct, 50);
    assert_int_equal(c.tenants[1].sm_limit_pct, 100);
    assert_int_equal(c.tenants[0].forms, WEIR_FORMS_WISH_ALWAYS);
    assert_int_equal(c.tenants[1].forms, WEIR_FORMS_WISH_DEFAULT);
    assert_int_equal(c.tenants[0].weight, 300);
    assert_int_equal(c.tenants[0].priority, WEIR_PRIORITY_HIGH);
    assert_true(c.tenants[0].memory.bytes == UINT64_C(8) << 30);
    assert_string_equal(c.tenants[1].name, "b.c-d");
    assert_int_equal(c.tenants[1].weight, 100);
    assert_int_equal(c.tenants[1].isolation, WEIR_ISOLATION_TENANT);
    assert_int_equal(c.tenants[1].memory.pct, 25);
    assert_int_equal(c.tenants[1].sessions_max, 2);
}

static void parse_takes_all_forms_of_toml(void **state)
{
    static const char text[] =
        "scheduler = {policy = [\"fair\", \"corun\"], starve_ms = 5}\n"
        "host.devices = [\n  0, # first\n  \"GPU-12\",\n]\n"
        "host.'run_dir' = \"\"\"\n/tmp/\\\n   w\"\"\"\n"
        "tenant = [{name = \"a\", weight = 0b11}, {name = '''b''', devices = [0]}]\n";
    struct weir_host_config c;
    struct weir_diag diag = {0};

    (void)state;
    assert_int_equal(weir_config_parse(text, sizeof text - 1, &c, &diag), WEIR_OK);
    assert_string_equal(c.scheduler.policy, "fair,corun");
    assert_int_equal(c.scheduler.starve_ms, 5);
    assert_string_equal(c.devices, "0,GPU-12");
    assert_string_equal(c.run_dir, "/tmp/w");
    assert_int_equal(c.n_tenants, 2);
    assert_int_equal(c.tenants[0].weight, 3);
    assert_string_equal(c.tenants[1].name, "b");
    assert_string_equal(c.tenants[1].devices, "0");
}

static void parse_nothing_gives_one_default_tenant(void **state)
{
    struct weir_host_config c;
    struct weir_diag diag;

    (void)state;
    assert_int_equal(weir_config_parse("", 0, &c, &diag), WEIR_OK);
    assert_int_equal(c.n_tenants, 1);
    assert_string_equal(c.tenants[0].name, "default");
}

static void parse_takes_the_documented_default_of_vmm_bytes(void **state)
{
    static const char text[] = "[host]\nvmm_bytes = \"14TiB\"\n";
    struct weir_host_config written, left_out;
    struct weir_diag diag = {0};

    (void)state;
    assert_int_equal(weir_config_parse(text, sizeof text - 1, &written, &diag), WEIR_OK);
    assert_int_equal(weir_config_parse("", 0, &left_out, &diag), WEIR_OK);
    assert_true(written.vmm_bytes == left_out.vmm_bytes);
}

static const struct bad_row {
    const char *text;
    uint32_t line, column;
    const char *message;
} bad_rows[] = {
    {"x = 1\n", 1, 1, "stands before any"},
    {"[host]\nwait = 1\n", 2, 1, "unknown key 'wait' in [host]"},
    {"[[tenant]]\nname = \"a\"\nwieght = 5\n", 3, 1,
     "unknown key 'wieght' in [[tenant]]; did you mean 'weight'?"},
    {"[[tenant]]\nname = \"a\"\nweight = 0\n", 3, 10, "between 1 and 10000"},
    {"[[tenant]]\nname = \"a\"\nweight = 10001\n", 3, 10, "between 1 and 10000"},
    {"[[tenant]]\nname = \"a\"\nweight = \"5\"\n", 3, 10, "must be an integer"},
    {"[[tenant]]\nname = \"a\"\nweight = 5\nweight = 6\n", 4, 1, "given twice"},
    {"[[tenant]]\nname = \"a\"\npriority = \"top\"\n", 3, 12, "one of: low, normal, high"},
    {"[[tenant]]\nname = \"a\"\nmemory = \"8 gallons\"\n", 3, 10, "an amount such as"},
    {"[[tenant]]\nname = \"a\"\nmemory = \"101%\"\n", 3, 10, "an amount such as"},
    {"[[tenant]]\nname = \"a\"\nkey = \"short\"\n", 3, 7, "40 Z85"},
    {"[[tenant]]\nname = \"../a\"\n", 2, 8, "a tenant's name"},
    {"[[tenant]]\nname = \"admin\"\n", 2, 8, "a tenant's name"},
    {"[[tenant]]\nweight = 5\n", 1, 1, "has no name"},
    {"[[tenant]]\nname=\"a\"\n[[tenant]]\nname=\"a\"\n", 3, 1, "a second tenant"},
    {"[forms]\nmode = \"on\"\n", 2, 8, "one of: off, auto, always, explore"},
    {"[forms]\nmodes = \"off\"\n", 2, 1, "unknown key 'modes' in [forms]; did you mean 'mode'?"},
    {"[forms]\ncache = \"5%\"\n", 2, 9, "an amount such as"},
    {"[forms]\n[forms]\n", 2, 2, "'forms' has a table above already"},
    {"[[tenant]]\nname = \"a\"\nforms = \"explore\"\n", 3, 9, "one of: default, off"},
    {"[[tenant]]\nname = \"a\"\nsm_limit = 0\n", 3, 12, "between 1 and 100"},
    {"[[tenant]]\nname = \"a\"\nsm_limit = \"2GiB\"\n", 3, 12, "between 1 and 100"},
    {"[libvirt]\ncreate = \"yes\"\n", 2, 10, "must be true or false"},
    {"[metrics]\nport = 1\n", 2, 1, "unknown key 'port' in [metrics]"},
    {"[[metrics]]\n", 1, 1, "'metrics' is one table: [metrics]"},
    {"[tenant]\n", 1, 1, "each tenant is a table in two brackets: [[tenant]]"},
    {"tenant = [1]\n", 1, 11, "a tenant is a table, not an integer"},
    {"[tenants]\n", 1, 2, "unknown table 'tenants'; did you mean 'tenant'?"},
    {"[gpu]\n", 1, 2, "unknown table 'gpu': [host], [default], [forms], [scheduler], [metrics]"},
    {"[host]\n[host]\n", 2, 2, "'host' has a table above already"},
    {"host.run_dir = \"/w\"\nhost.log = 5\n", 2, 12, "must be a string in quotes, not an integer"},
    {"[host]\ndevice = 1\ndevices = 2\n", 3, 1, "'devices' says again what 'device' has said"},
    {"[host]\ndevices = [0, 1.5]\n", 2, 11, "must be an ordinal, or a list"},
    {"[host]\nrun_dir = 2026-01-31\n", 2, 11, "must be a string in quotes, not a date or time"},
    {"[host]\nrun_dir = \"a\\u0000b\"\n", 2, 11, "must not have a NUL inside"},
    {"[host]\nlog = [\"warn\"]\n", 2, 7, "must be a string in quotes, not an array"},
    {"[[tenant]]\nname = \"a\"\nweight = 1.5\n", 3, 10, "must be an integer, not a float"},
    {"[[tenant]]\nname = \"a\"\nuser.name = \"root\"\n", 3, 1, "must be a user's name or number"},
    {"[scheduler]\npolicy = \"fifo\"\n", 2, 10, "no policy is called 'fifo': fair, priority, "},
    {"[scheduler]\npolicy = [\"fair\", \"priority\"]\n", 2, 10, "both of kind"},
    /* keys and words of earlier versions */
    {"[scheduler]\npolicy = \"fair,overlap\"\n", 2, 10, "'overlap' is gone: remove the word"},
    {"[scheduler]\npolicy = \"fair,tensor\"\n", 2, 10, "'tensor' is gone: write 'corun'"},
    {"[scheduler]\norder_window = 8\n", 2, 1, "unknown key 'order_window'"},
    {"[scheduler]\nfill = \"lower\"\n", 2, 8, "'fill' must be one of: none, all"},
    {"[host\n", 1, 6, "']' is missing"},
    {"[host]\ndevice\n", 2, 7, "'=' is missing"},
    {"[host]\ndevice =\n", 2, 9, "a value is missing"},
    {"[host]\ndevice = 1 2\n", 2, 12, "unexpected text"},
    {"[host]\ndevice = 99999999999999999999\n", 2, 10, "too large"},
    {"[host]\nrun_dir = \"a\n", 2, 13, "does not end"},
    {"[host]\nrun_dir = \"\\q\"\n", 2, 13, "unknown escape"},
    {"[host] # a\001b\n", 1, 11, "a control character in a comment"},
    {"[host]\nvmm_base = 0x2000_4000_0000\n", 1, 1, "overlaps the windows"},
    {"[host]\nvmm_base = 0x1200_0020_0000\n", 1, 1, "multiples of 1 GiB"},
    {"[host]\nwindow_bytes = \"3GiB\"\n", 2, 16, "a power of two between 256MiB and 4TiB"},
    {"[host]\nquarantine_s = -1\n", 2, 16, "'quarantine_s' must lie between 0 and 31536000"},
    {"[[tenant]]\nname = \"a\"\norphan_s = 31536001\n", 3, 12, "between 0 and 31536000"},
    {"[host]\nvm_region = \"128GiB\"\n", 2, 13, "a power of two between 64MiB and 64GiB"},
    {"[host]\nvmm_bytes = \"512MiB\"\n", 2, 13, "a multiple of 1GiB between 1GiB and 32TiB"},
    {"[host]\nvmm_bytes = \"1025MiB\"\n", 2, 13, "a multiple of 1GiB between 1GiB and 32TiB"},
    {"[host]\nvmm_bytes = \"33TiB\"\n", 2, 13, "a multiple of 1GiB between 1GiB and 32TiB"},
};

static void parse_wrong_text_says_where_and_why(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_rows / sizeof bad_rows[0]; i++) {
        const struct bad_row *row = &bad_rows[i];
        struct weir_host_config c;
        struct weir_diag diag = {0};
        enum weir_status status = weir_config_parse(row->text, strlen(row->text), &c, &diag);

        if (status != WEIR_ERR_SYNTAX || diag.line != row->line || diag.column != row->column ||
            !strstr(diag.message, row->message)) {
            print_error("row %zu: %u:%u: %s\n", i, diag.line, diag.column, diag.message);
            fail();
        }
    }
}

/* `weir tenant --save` would lose all that stands behind it. */
static void parse_text_with_a_nul_fails(void **state)
{
    static const char text[] = "# a\0b\n[[tenant]]\nname = \"a\"\n";
    struct weir_host_config c;
    struct weir_diag diag = {0};

    (void)state;
    assert_int_equal(weir_config_parse(text, sizeof text - 1, &c, &diag), WEIR_ERR_SYNTAX);
    assert_int_equal(diag.line, 1);
    assert_int_equal(diag.column, 4);
}

static void promised_memory_is_summed_by_devices(void **state)
{
    static const char text[] = "[[tenant]]\nname = \"a\"\nmemory = \"80%\"\n"
                               "[[tenant]]\nname = \"b\"\nmemory = \"2GiB\"\n"
                               "[[tenant]]\nname = \"c\"\n"
                               "[[tenant]]\nname = \"d\"\nmemory = \"50%\"\ndevices = \"1\"\n";
    const struct weir_tenant_config *tenants[4];
    struct weir_host_config c;
    struct weir_diag diag = {0};

    (void)state;
    assert_int_equal(weir_config_parse(text, sizeof text - 1, &c, &diag), WEIR_OK);
    for (uint32_t i = 0; i < 4; i++) {
        tenants[i] = &c.tenants[i];
    }
    assert_int_equal(weir_config_promised_pct(tenants, 4, "", 0), 80);
    assert_int_equal(weir_config_promised_pct(tenants, 4, "", UINT64_C(8) << 30), 105);
    assert_int_equal(weir_config_promised_pct(tenants, 4, "1", UINT64_C(8) << 30), 50);
    assert_int_equal(weir_config_promised_pct(tenants, 4, "2", 0), 0);
    assert_int_equal(weir_config_promised_pct(tenants, 4, "", 1), UINT32_MAX);
}

static void restart_keys_are_those_that_differ_outside_tenants(void **state)
{
    static const char text[] =
        "[host]\nlog = \"warn\"\ndevice = 3\n[forms]\nseed = 1\n"
        "[scheduler]\npolicy = \"priority\"\nstarve_ms = 7\n"
        "[libvirt]\ncreate = true\n[default]\nweight = 7\n[[tenant]]\nname = \"x\"\n";
    struct weir_host_config before, now;
    struct weir_diag diag = {0};
    char keys[200], few[20];

    (void)state;
    weir_config_default(&before);
    memset(before.cdi + 1, 'x', 5); /* behind the end of a text */
    weir_config_restart_keys(&before, &before, keys, sizeof keys);
    assert_string_equal(keys, "");
    assert_int_equal(weir_config_parse(text, sizeof text - 1, &now, &diag), WEIR_OK);
    weir_config_restart_keys(&before, &now, keys, sizeof keys);
    assert_string_equal(keys, "[host] log, [host] devices, [forms] seed, [scheduler] starve_ms, "
                              "[libvirt] create");
    weir_config_restart_keys(&before, &now, few, sizeof few);
    assert_string_equal(few, "[host] log, [host] ");
}

static void amount_of_whole_never_exceeds_it(void **state)
{
    struct weir_amount a;

    (void)state;
    assert_int_equal(weir_amount_parse("1.5GB", &a), WEIR_OK);
    assert_true(a.bytes == 1500000000);
    assert_true(weir_amount_of(a, 1000) == 1000);
    assert_int_equal(weir_amounts_get("1GiB, 25%,2Gi", 1, &a), WEIR_OK);
    assert_true(a.pct == 25 && a.bytes == 0);
    assert_int_equal(weir_amounts_get("1GiB,25%,2Gi", 9, &a), WEIR_OK); /* the last is for all */
    assert_true(a.bytes == UINT64_C(2) << 30);
    assert_int_equal(weir_amounts_get("1GiB,", 1, &a), WEIR_ERR_INVALID);
    assert_int_equal(weir_amounts_get("", 0, &a), WEIR_ERR_NOT_FOUND);
    assert_int_equal(weir_amount_parse("384Mi", &a), WEIR_OK); /* as Kubernetes writes it */
    assert_true(a.bytes == UINT64_C(384) << 20);
    assert_int_equal(weir_amount_parse("50%", &a), WEIR_OK);
    assert_true(weir_amount_of(a, 1000) == 500);
    assert_int_equal(weir_amount_parse("-1", &a), WEIR_ERR_INVALID);
    assert_int_equal(weir_amount_parse("inf", &a), WEIR_ERR_INVALID);
    assert_int_equal(weir_amount_parse("0x10", &a), WEIR_ERR_INVALID);
}

static void devices_are_listed_without_blanks_and_once(void **state)
{
    static const char *const wrong[] = {
        "", " ", "a", "-1", "0,", ",0", "0 1", "0,0", "GPU-", "GPU-xyz", "0,GPU-12,gpu-12", "100"};
    char list[WEIR_DEVICE_LIST_BYTES];

    (void)state;
    assert_int_equal(weir_devices_parse(" 1, 0 ,GPU-12ab-3", list), WEIR_OK);
    assert_string_equal(list, "1,0,GPU-12ab-3");
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(weir_devices_parse(wrong[i], list), WEIR_ERR_INVALID);
    }
    assert_string_equal(list, "1,0,GPU-12ab-3");
    assert_true(weir_devices_among("0", list));
    assert_true(weir_devices_among("gpu-12AB-3,1", list));
    assert_true(weir_devices_among("", list));
    assert_true(weir_devices_among("7", ""));
    assert_false(weir_devices_among("2", list));
    assert_false(weir_devices_among("0,2", list));
    assert_true(weir_devices_meet("0,2", "3,2"));
    assert_false(weir_devices_meet("0,2", "3,1"));
    assert_true(weir_devices_meet("", "3"));
    assert_true(weir_devices_meet("3", ""));
    assert_true(weir_devices_meet("3", "GPU-12ab")); /* it may be that one */
    assert_true(weir_devices_meet("GPU-12ab", "gpu-12AB"));
    assert_false(weir_devices_meet("GPU-12ab", "GPU-12ac"));
}

static void group_and_isolation_fit_together(void **state)
{
    static const struct {
        enum weir_isolation isolation;
        const char *group;
        bool ok;
    } rows[] = {{WEIR_ISOLATION_GROUP, "g", true},    {WEIR_ISOLATION_GROUP, "", false},
                {WEIR_ISOLATION_TENANT, "", true},    {WEIR_ISOLATION_TENANT, "g", false},
                {WEIR_ISOLATION_PROGRAM, "g", false}, {WEIR_ISOLATION_STRICT, "", true}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct weir_tenant_config tenant = {.isolation = rows[i].isolation};

        snprintf(tenant.group, sizeof tenant.group, "%s", rows[i].group);
        assert_int_equal(weir_tenant_group_ok(&tenant), rows[i].ok);
    }
}

/* What a setting is given, and what it then reads as; NULL: it is refused. */
static const struct setting_row {
    const char *key, *value, *text;
} setting_rows[] = {
    {"weight", "300", "300"},
    {"weight", "0", NULL},
    {"weight", "10001", NULL},
    {"weight", "99999999999999999999", NULL},
    {"weight", " 3", NULL},
    {"weight", "3x", NULL},
    {"priority", "high", "high"},
    {"priority", "HIGH", NULL},
    {"sm-limit", "50", "50%"},
    {"sm_limit", "7%", "7%"},
    {"sm_limit", "101", NULL},
    {"share", "no", "no"},
    {"share", "yes", "yes"},
    {"share", "false", NULL},
    {"memory", "8GiB", "8GiB"},
    {"memory", "1536MiB", "1536MiB"},
    {"memory", "1.5 GiB", "1536MiB"},
    {"memory", "1048577", "1048577"},
    {"memory", "1048575", NULL},
    {"memory", "25%", "25%"},
    {"memory", "0", NULL},
    {"memory", "-1GiB", NULL},
    {"pinned", "lots", NULL},
    {"sessions", "12", "12"},
    {"orphan_s", "90", "90"},
    {"load_wait_s", "5", "5"},
    {"load_wait_s", "0", NULL},
    {"user", "root", "root"},
    {"user", "4000000000", "4000000000"}, /* needs no name */
    {"user", "no such user", NULL},
    {"user", "-1", NULL},
    {"user", "4294967295", NULL},
    {"user", "0x10", NULL},
    {"forms", "off", "off"},
    {"isolation", "process", "tenant"}, /* its old name */
    {"isolation", "shared", NULL},      /* gone */
    {"isolation", "program", "program"},
    {"isolation", "strict", "strict"},
    {"devices", "0, 1", "0,1"},
    {"devices", "1", "1"},
    {"devices", "1,1", NULL},
    {"key", "short", NULL},
    {"key", "1234567890123456789012345678901234567890", "1234567890123456789012345678901234567890"},
};

static bool same_settings(const struct weir_tenant_config *a, const struct weir_tenant_config *b)
{
    bool same = true;

    for (size_t i = 0; i < weir_setting_count(); i++) {
        same &= weir_setting_equal(i, a, b);
    }
    return same;
}

static void setting_store_takes_what_a_file_may_say(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof setting_rows / sizeof setting_rows[0]; i++) {
        const struct setting_row *row = &setting_rows[i];
        struct weir_tenant_config before, after, copy;
        int setting = weir_setting_find(row->key);
        char text[WEIR_SETTING_TEXT_BYTES];
        struct weir_diag diag = {0};
        enum weir_status status;

        assert_true(setting >= 0);
        weir_tenant_config_default(&before, "a");
        after = copy = before;
        status = weir_setting_store((size_t)setting, row->value, &after, &diag);
        weir_setting_text((size_t)setting, &after, text);
        if (status != (row->text ? WEIR_OK : WEIR_ERR_INVALID) ||
            (row->text && strcmp(text, row->text) != 0) ||
            (!row->text && (!same_settings(&after, &before) ||
                            !strstr(diag.message, weir_setting_key((size_t)setting))))) {
            print_error("%s=%s gave '%s' (%s)\n", row->key, row->value, text, diag.message);
            fail();
        }
        weir_setting_copy((size_t)setting, &after, &copy);
        assert_true(weir_setting_equal((size_t)setting, &after, &copy));
        assert_true(weir_settings_equal(&after, &copy));
    }
}

static void settings_are_equal_by_what_they_say(void **state)
{
    struct weir_tenant_config a, b;

    (void)state;
    memset(&a, 0x11, sizeof a);
    memset(&b, 0x22, sizeof b);
    weir_tenant_config_default(&a, "a");
    weir_tenant_config_default(&b, "a");
    assert_true(weir_settings_equal(&a, &b));
    memset(a.devices, 'x', sizeof a.devices - 1);
    a.devices[sizeof a.devices - 1] = 0;
    memcpy(b.devices, a.devices, sizeof b.devices);
    assert_true(weir_settings_equal(&a, &b));
    b.devices[sizeof b.devices - 2] = 'y'; /* where its text for people is long cut */
    assert_false(weir_settings_equal(&a, &b));
    memcpy(b.devices, a.devices, sizeof b.devices);
    b.user[0] = 0;
    memset(b.user + 1, 'z', sizeof b.user - 1); /* behind the end */
    assert_true(weir_settings_equal(&a, &b));
    b.pinned.pct = a.pinned.pct + 1;
    assert_false(weir_settings_equal(&a, &b));
}

static void setting_find_knows_every_key_and_no_other(void **state)
{
    static const char *const wrong[] = {"", "name", "wieght", "weigh", "weights", "sm limit"};

    (void)state;
    assert_true(weir_setting_count() <= WEIR_SETTINGS_MAX);
    for (size_t i = 0; i < weir_setting_count(); i++) {
        assert_int_equal(weir_setting_find(weir_setting_key(i)), i);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(weir_setting_find(wrong[i]), -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse_whole_file_reads_every_key),
        cmocka_unit_test(parse_takes_all_forms_of_toml),
        cmocka_unit_test(parse_nothing_gives_one_default_tenant),
        cmocka_unit_test(parse_takes_the_documented_default_of_vmm_bytes),
        cmocka_unit_test(parse_wrong_text_says_where_and_why),
        cmocka_unit_test(parse_text_with_a_nul_fails),
        cmocka_unit_test(promised_memory_is_summed_by_devices),
        cmocka_unit_test(restart_keys_are_those_that_differ_outside_tenants),
        cmocka_unit_test(amount_of_whole_never_exceeds_it),
        cmocka_unit_test(devices_are_listed_without_blanks_and_once),
        cmocka_unit_test(group_and_isolation_fit_together),
        cmocka_unit_test(setting_store_takes_what_a_file_may_say),
        cmocka_unit_test(settings_are_equal_by_what_they_say),
        cmocka_unit_test(setting_find_knows_every_key_and_no_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
