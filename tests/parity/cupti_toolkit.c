#include <cupti.h>
#include <stddef.h>

#include "tests/parity/cupti_layout.h"

/* CUDA 12's headers have these structs by other names; its own are beginnings of them. */
const struct cupti_row cupti_toolkit[] = {
#if CUPTI_API_VERSION >= 130000
#include "tests/parity/cupti_layout.def"
#endif
    {0, 0}};
