/* proto/profile/cupti_abi.h against a toolkit's CUPTI headers. */
#include "tests/lib/tl_cmocka.h"
#include "tests/parity/cupti_layout.h"

#include <stdio.h>

#ifdef WITH_TOOLKIT
static void ours_is_as_the_toolkit_has_it(void **state)
{
    (void)state;
    for (int i = 0; cupti_ours[i].name; i++) {
        if (cupti_ours[i].value != cupti_toolkit[i].value) {
            fail_msg("%s: %lld, the toolkit's is %lld", cupti_ours[i].name, cupti_ours[i].value,
                     cupti_toolkit[i].value);
        }
    }
}
#endif

int main(void)
{
#ifdef WITH_TOOLKIT
    const struct CMUnitTest tests[] = {cmocka_unit_test(ours_is_as_the_toolkit_has_it)};
    if (cupti_toolkit[0].name) {
        return cmocka_run_group_tests(tests, NULL, NULL);
    }
    printf("skipped: these are CUPTI headers of CUDA 12 or older\n");
#else
    printf("skipped: there are no CUPTI headers here\n");
#endif
    return 77;
}
