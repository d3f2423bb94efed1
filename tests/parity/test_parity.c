/*
 * Our ABI header against the toolkit's: every size, alignment, offset, enumerator and constant
 * here, every prototype and typedef at compile time (parity/toolkit.c).
 */
#include "tests/lib/tl_cmocka.h"
#include "tests/parity/parity.h"

static void abi_every_measurement_equals_the_toolkits(void **state)
{
    (void)state;
    assert_int_equal(parity_ours_count, parity_toolkit_count);
    unsigned differences = 0;
    for (unsigned i = 0; i < parity_ours_count; i++) {
        assert_string_equal(parity_ours[i].name, parity_toolkit[i].name);
        if (parity_ours[i].value != parity_toolkit[i].value) {
            print_error("%s: %lld, toolkit %lld\n", parity_ours[i].name, parity_ours[i].value,
                        parity_toolkit[i].value);
            differences++;
        }
    }
    assert_int_equal(differences, 0);
    print_message("%u measurements equal\n", parity_ours_count);
}

int main(void)
{
    if (!parity_toolkit_count) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(abi_every_measurement_equals_the_toolkits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
