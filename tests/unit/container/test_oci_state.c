/* What a container's hook reads: the runtime's state and config.json, and odd ones of both. */
#include "container/oci/state.h"

#include "../../lib/tl_cmocka.h"
#include <string.h>

static enum weir_status state_of(const char *text, struct weir_oci_container *c, char *why)
{
    struct weir_diag diag = {0};
    enum weir_status status = weir_oci_state_read(text, strlen(text), c, &diag);

    memcpy(why, diag.message, sizeof diag.message);
    return status;
}

static enum weir_status config_of(const char *text, struct weir_oci_container *c, char *why)
{
    struct weir_diag diag = {0};
    enum weir_status status = weir_oci_config_read(text, strlen(text), c, &diag);

    memcpy(why, diag.message, sizeof diag.message);
    return status;
}

#define FIELDS      "\"ociVersion\": \"1.0.2\", \"id\": \"abc\", \"pid\": 42, \"bundle\": \"/b\""
#define STATE(more) "{" FIELDS more "}"
#define BEGIN       "{" FIELDS ", \"annotations\": {"

static struct weir_oci_container c;
static char why[200];

static void reads_what_a_share_needs(void **state)
{
    (void)state;
    assert_int_equal(state_of(STATE(", \"annotations\": {\"weir.dev/memory\": \"8GiB\", "
                                    "\"io.podman\": \"x\", \"weir.dev/sm-limit\": \"30\"}"),
                              &c, why),
                     WEIR_OK);
    assert_string_equal(c.id, "abc");
    assert_int_equal(c.pid, 42);
    assert_int_equal(
        config_of("{\"root\": {\"path\": \"rootfs\"}, \"process\": {\"env\": [\"A=1\", "
                  "\"WEIR_WEIGHT=5\", \"WEIR_SM_LIMIT=30\", \"WEIR_MEMORY=8gib\", "
                  "\"WEIR_WEIGHT=7\", \"WEIR_SESSIONS=\", \"WEIR_LOG=info\"]}}",
                  &c, why),
        WEIR_OK);
    assert_string_equal(c.root, "/b/rootfs");
    assert_int_equal(c.n_wishes, 3);
    assert_string_equal(c.wishes[0], "memory=8GiB"); /* said twice, once only */
    assert_string_equal(c.wishes[1], "sm-limit=30");
    assert_string_equal(c.wishes[2], "weight=7"); /* the later of two */
    assert_int_equal(config_of("{\"root\": {\"path\": \"/r\"}}", &c, why), WEIR_OK);
    assert_string_equal(c.root, "/r");
}

static void refuses_states_that_lack_something(void **state)
{
    static const struct {
        const char *text, *why;
        enum weir_status status;
    } rows[] = {
        {"", "the container's state: ", WEIR_ERR_SYNTAX},
        {"{", "the container's state: ", WEIR_ERR_SYNTAX},
        {"[1]", "not an object", WEIR_ERR_SYNTAX},
        {"{\"id\": \"a\", \"id\": \"b\"}", "duplicate", WEIR_ERR_SYNTAX},
        {"{\"id\": \"a\", \"bundle\": \"/b\"}", "no pid", WEIR_ERR_INVALID},
        {"{\"id\": \"a\", \"bundle\": \"/b\", \"pid\": -1}", "no pid", WEIR_ERR_INVALID},
        {"{\"id\": \"a\", \"bundle\": \"/b\", \"pid\": 4294967297}", "no pid", WEIR_ERR_INVALID},
        {"{\"id\": \"a\", \"bundle\": \"/b\", \"pid\": \"3\"}", "no pid", WEIR_ERR_INVALID},
        {"{\"id\": 7, \"bundle\": \"/b\", \"pid\": 3}", "no id", WEIR_ERR_INVALID},
        {"{\"id\": \"a\", \"bundle\": \"b\", \"pid\": 3}", "no bundle", WEIR_ERR_INVALID},
        {STATE(", \"annotations\": {\"weir.dev/memory\": 8}"), "is no text", WEIR_ERR_INVALID},
        {STATE(", \"annotations\": {\"weir.dev/memory=1\": \"8\"}"), "odd", WEIR_ERR_INVALID},
        {STATE(", \"annotations\": {\"wier.dev/memory\": \"8\"}"), "mean 'weir.dev/memory'",
         WEIR_ERR_INVALID},
        {STATE(", \"annotations\": {\"weir/sm-limit\": \"8\"}"), "mean 'weir.dev/sm_limit'",
         WEIR_ERR_INVALID},
        {STATE(", \"annotations\": {\"weir.dev.wieght\": \"8\"}"), "mean 'weir.dev/weight'",
         WEIR_ERR_INVALID},
        {STATE(", \"annotations\": {\"weir.dev/sm-limit\": \"8\", \"weir.dev/sm_limit\": \"9\"}"),
         "contradict", WEIR_ERR_INVALID},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(state_of(rows[i].text, &c, why), rows[i].status);
        if (!strstr(why, rows[i].why)) {
            fail_msg("%s: '%s'", rows[i].text, why);
        }
    }
}

static void refuses_what_is_too_much(void **state)
{
    char text[8192] = "", value[WEIR_OCI_WISH_BYTES + 8];
    size_t at = 0;

    (void)state;
    memset(value, 'x', sizeof value - 1);
    value[sizeof value - 1] = 0;
    snprintf(text, sizeof text, STATE(", \"annotations\": {\"weir.dev/memory\": \"%s\"}"), value);
    assert_int_equal(state_of(text, &c, why), WEIR_ERR_INVALID);
    assert_non_null(strstr(why, "'memory' is too long"));
    for (int i = 0; i <= WEIR_OCI_WISHES_MAX; i++) {
        at += (size_t)snprintf(text + at, sizeof text - at, "%s\"weir.dev/k%d\": \"1\"",
                               i == 0 ? BEGIN : ", ", i);
    }
    snprintf(text + at, sizeof text - at, "}}");
    assert_int_equal(state_of(text, &c, why), WEIR_ERR_INVALID);
    assert_non_null(strstr(why, "too many"));
    assert_int_equal(state_of(STATE(""), &c, why), WEIR_OK);
    assert_int_equal(config_of("{\"root\": {}}", &c, why), WEIR_ERR_INVALID);
    assert_int_equal(config_of("{\"process\": {\"env\": 3}}", &c, why), WEIR_ERR_INVALID);
    assert_non_null(strstr(why, "root.path"));
    assert_int_equal(
        config_of("{\"root\": {\"path\": \"r\"}, \"process\": {\"env\": [1, null]}}", &c, why),
        WEIR_OK);
    assert_int_equal(c.n_wishes, 0);
}

#define CONFIG(more) "{\"root\": {\"path\": \"r\"}" more "}"
#define ENV(names)   ", \"process\": {\"env\": [" names "]}"
#define HOOK(args)   "{\"path\": \"/usr/lib/weir/weir-oci-hook\", \"args\": [" args "]}"
#define OURS         "\"weir-oci-hook\", \"/run/weir\""
#define HOOKS(rows)  ", \"hooks\": {\"createRuntime\": [" rows "]}"
#define MOUNT(source)                                                                              \
    ", \"mounts\": [{\"destination\": \"/proc\", \"source\": \"proc\"}, "                          \
    "{\"destination\": \"/run/weir\", \"source\": \"" source "\"}]"

static void refuses_what_contradicts(void **state)
{
    static const struct {
        const char *config, *why;
    } rows[] = {
        {CONFIG(ENV("\"WEIR_MEMORY=4GiB\"")), "memory=8GiB and memory=4GiB contradict"},
        {CONFIG(ENV("\"WEIR_MEMROY=8GiB\"")), "did you mean WEIR_MEMORY?"},
        {CONFIG(HOOKS(HOOK(OURS ", \"alice\"") ", " HOOK(OURS ", \"bob\""))),
         "not both weir.dev/gpu=alice and weir.dev/gpu=bob"},
        {CONFIG(HOOKS(HOOK(OURS) ", " HOOK("\"other\", \"/x\"") ", " HOOK(OURS ", \"bob\""))),
         "not both weir.dev/gpu=new and weir.dev/gpu=bob"},
        {CONFIG(HOOKS(HOOK(OURS ", \"bob\"") ", " HOOK("\"weir-oci-hook\", \"/r\", \"bob\""))),
         "not both weir.dev/gpu=bob and weir.dev/gpu=bob"},
        {CONFIG(HOOKS(HOOK(OURS ", \"bob\"")) MOUNT("/run/weir/containers/alice")),
         "not both weir.dev/gpu=bob and a mount of /run/weir/containers/alice"},
        {CONFIG(HOOKS(HOOK(OURS)) MOUNT("/run/weir/containers/alice")),
         "not both weir.dev/gpu=new and a mount of /run/weir/containers/alice"},
        {CONFIG(HOOKS(HOOK(OURS ", \"bob\"")) MOUNT("/run/weir")), "and a mount of /run/weir"},
    };
    static const char *const good[] = {
        CONFIG(ENV("\"WEIR_MEMORY=\", \"WEIR_PORT=tcp://10.0.0.1:80\"")),
        CONFIG(HOOKS(HOOK(OURS ", \"bob\"") ", " HOOK(OURS ", \"bob\""))),
        CONFIG(HOOKS(HOOK(OURS ", \"bob\"")) MOUNT("/run/weir/users/1000/bob")),
        CONFIG(HOOKS(HOOK(OURS)) MOUNT("/run/weir/shares/none")),
        CONFIG(MOUNT("/run/weir/containers/alice") HOOKS("")),
        CONFIG(", \"mounts\": [7, {\"destination\": \"/run/weir\"}, {\"source\": \"/x\"}]" HOOKS(
            HOOK(OURS))),
        CONFIG(HOOKS("3, {\"args\": 4}, " HOOK("1, 2") ", " HOOK("\"weir-oci-hook\""))),
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(
            state_of(STATE(", \"annotations\": {\"weir.dev/memory\": \"8GiB\"}"), &c, why),
            WEIR_OK);
        assert_int_equal(config_of(rows[i].config, &c, why), WEIR_ERR_INVALID);
        if (!strstr(why, rows[i].why)) {
            fail_msg("%s: '%s'", rows[i].config, why);
        }
    }
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(state_of(STATE(""), &c, why), WEIR_OK);
        assert_int_equal(config_of(good[i], &c, why), WEIR_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_a_share_needs),
        cmocka_unit_test(refuses_states_that_lack_something),
        cmocka_unit_test(refuses_what_is_too_much),
        cmocka_unit_test(refuses_what_contradicts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
