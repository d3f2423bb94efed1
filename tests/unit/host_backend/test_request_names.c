/* Variables that ask for a share, misspelt ones, and those that are others'. */
#include "host_backend/config/request_names.h"

#include "../../lib/tl_cmocka.h"
#include <string.h>

static void knows_what_asks(void **state)
{
    const struct weir_request_name *row;
    const char *value = "";
    struct weir_diag diag = {0};

    (void)state;
    assert_int_equal(weir_request_variable("WEIR_SM_LIMIT=a=b", &row, &value, &diag), WEIR_OK);
    assert_string_equal(row->key, "sm_limit");
    assert_string_equal(value, "a=b");
    assert_int_equal(weir_request_variable("WEIR_MEMORY=", &row, &value, &diag), WEIR_OK);
    assert_null(row); /* as if it were not set */
}

static void refuses_what_is_misspelt(void **state)
{
    static const struct {
        const char *assignment, *meant; /* "": none is close */
    } rows[] = {
        {"WEIR_MEMROY=1G", "WEIR_MEMORY"},
        {"WEIR_MEMORYY=1G", "WEIR_MEMORY"},
        {"weir_memory=1G", "WEIR_MEMORY"},
        {"WIER_MEMORY=1G", "WEIR_MEMORY"},
        {"WEIRMEMORY=1G", "WEIR_MEMORY"},
        {"WEIR_WIEGHT=3", "WEIR_WEIGHT"},
        {"WEIR_SMLIMIT=30", "WEIR_SM_LIMIT"},
        {"WEIR_SESSION=1", "WEIR_SESSIONS"},
        {"WEIR_HOSTS=x", "WEIR_HOST"},
        {"WEIR_MEM=1G", ""},
        {"WEIR_GPU_MEMORY_MB=1", ""},
        {"WEIR_MAX_WEIGHTS=1", ""},
        {"WEIR_SM=30", ""},
        {"WEIR_PRIO=low", ""},
        {"WEIR_TENANT=bob", ""},
        {"WEIR_EMMORY=1G", "WEIR_MEMORY"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct weir_request_name *row;
        const char *value;
        struct weir_diag diag = {0};

        if (weir_request_variable(rows[i].assignment, &row, &value, &diag) != WEIR_ERR_INVALID ||
            !strstr(diag.message, rows[i].meant) ||
            (rows[i].meant[0] != 0) != (strstr(diag.message, "did you mean") != NULL)) {
            fail_msg("%s: '%s'", rows[i].assignment, diag.message);
        }
    }
}

/* Weir's own, of its tests, of a Kubernetes service called weir, and of anybody. */
static void leaves_others_alone(void **state)
{
    static const char *const names[] = {
        "WEIR_LOG=info",
        "WEIR_SOFTGPU_MEMORY=1G",
        "WEIR_LAUNCH_BLOCKING=1",
        "WEIR_E2E_IMAGES=/x",
        "WEIR_PORT=tcp://a:1",
        "WEIR_SERVICE_HOST=10.0.0.1",
        "WEIR_PORT_9835_TCP=x",
        "WEB_MEMORY=512M",
        "MEMORY=1G",
        "PEER_MEMORY=1",
        "WEIR_WERROR=ON",
        "WEIR_MEMROY=",
        "WEIGHT=3",
        "WEIR_HEIGHT=2.5",
        "WEIR_MEMBERS=a",
        "WEIR_SMALL=1",
        "WEIR__=1",
        "=",
        "nothing",
    };

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const struct weir_request_name *row;
        const char *value;
        struct weir_diag diag = {0};

        if (weir_request_variable(names[i], &row, &value, &diag) != WEIR_OK || row) {
            fail_msg("%s: '%s'", names[i], diag.message);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knows_what_asks),
        cmocka_unit_test(refuses_what_is_misspelt),
        cmocka_unit_test(leaves_others_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
