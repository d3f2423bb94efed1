/*
 * WEIR_TEST_FILTER chooses which of a program's tests run: a name, or a pattern with * and ?.
 * cmocka has a function for that but reads no variable. In every program that weir_test() makes.
 */
#include "tl_cmocka.h"

#include <stdlib.h>

__attribute__((constructor)) static void set_filter(void)
{
    const char *pattern = getenv("WEIR_TEST_FILTER");

    if (pattern) {
        cmocka_set_test_filter(pattern);
    }
}
