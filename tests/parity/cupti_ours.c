#include "proto/profile/cupti_abi.h"
#include "tests/parity/cupti_layout.h"

const struct cupti_row cupti_ours[] = {
#include "tests/parity/cupti_layout.def"
    {0, 0}};
