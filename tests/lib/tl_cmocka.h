/* cmocka with the headers that it wants included before it. */
#ifndef WEIR_TESTS_LIB_TL_CMOCKA_H
#define WEIR_TESTS_LIB_TL_CMOCKA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#endif
