#include <cupti.h>
#include <stddef.h>

#include "tests/parity/cupti_layout.h"

/* CUDA 12's headers have these structs by other names; its own are beginnings of them. */
const struct cupti_row cupti_toolkit[] = {
#if CUPTI_API_VERSION >= 130000
#include "tests/parity/cupti_layout.def"
#endif
    {0, 0}};

#if CUPTI_API_VERSION >= 130000
/* CUDA 13's headers have those of 12, too. */
#define BEGINS(older, newer, next)                                                                 \
    _Static_assert(sizeof(older) == offsetof(newer, next), #older " is the beginning of " #newer)
BEGINS(CUpti_ActivityDevice4, CUpti_ActivityDevice5, isNumaNode);
BEGINS(CUpti_ActivityContext, CUpti_ActivityContext3, parentContextId);
BEGINS(CUpti_ActivityContext2, CUpti_ActivityContext3, cigMode);
#endif
