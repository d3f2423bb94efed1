/* host_backend/supervisor/mps_blame.c: what an MPS server's log says about a fault. */
#include "host_backend/supervisor/mps.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Lines that the server of driver 580 wrote when one of its two clients used a wild address. */
static const char fault[] =
    "[2026-11-25 17:53:06.659 Server  6590] Status of client {PID: 6588, Context ID: 1} is ACTIVE\n"
    "[2026-11-25 17:53:06.911 Server  6590] Client {PID: 6600, Context: 1} encountered a fatal GPU "
    "error.\n"
    "[2026-11-25 17:53:06.911 Server  6590] Server is handling a fatal GPU error.\n"
    "[2026-11-25 17:53:06.911 Server  6590] The following client process have a sticky error set:\n"
    "[2026-11-25 17:53:06.911 Server  6590] 6600\n";

static void the_log_names_the_process(void **state)
{
    (void)state;
    assert_int_equal(weir_mps_log_culprit(fault), 6600);
    assert_int_equal(weir_mps_log_culprit("Client {PID: 17, Context: 1} encountered a fatal GPU "
                                          "error.\n"),
                     17);
}

static void other_lines_name_nobody(void **state)
{
    (void)state;
    assert_int_equal(weir_mps_log_culprit(""), 0);
    assert_int_equal(weir_mps_log_culprit("Client {PID: 17, Context ID: 0} connected\n"), 0);
    assert_int_equal(weir_mps_log_culprit("Client {PID: 17, Context ID: 0} connected\n"
                                          "Somebody encountered a fatal GPU error.\n"),
                     0);
    assert_int_equal(weir_mps_log_culprit("encountered a fatal GPU error, Client {PID: 17"), 0);
    assert_int_equal(weir_mps_log_culprit("Client {PID: x, Context: 1} encountered a fatal GPU "
                                          "error.\n"),
                     0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_log_names_the_process),
        cmocka_unit_test(other_lines_name_nobody),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
