/*
 * A libcupti that is not Weir's, as PyTorch's wheels bring it: in a guest each of its functions
 * fails.
 */
#include "proto/profile/cupti_abi.h"

#define R(name)                                                                                    \
    __attribute__((visibility("default"))) CUptiResult name(void);                                 \
    CUptiResult name(void)                                                                         \
    {                                                                                              \
        return CUPTI_ERROR_UNKNOWN;                                                                \
    }
#include "tests/e2e/e2e_cupti_functions.def"
#undef R
