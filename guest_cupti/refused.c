/* The functions of CUPTI that this library does not support: all return the same error. */
#include "guest_cupti/lib.h"

#define R(name)                                                                                    \
    WEIR_CUPTI_EXPORT CUptiResult name(void);                                                      \
    CUptiResult name(void)                                                                         \
    {                                                                                              \
        return CUPTI_ERROR_NOT_SUPPORTED;                                                          \
    }
#include "guest_cupti/refused.def"
#undef R
