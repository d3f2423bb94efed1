#include "base/priority.h"
#include <string.h>

const char *const weir_priority_names[WEIR_PRIORITY_COUNT + 1] = {"low", "normal", "high", NULL};

bool weir_priority_find(const char *name, enum weir_priority *ret_priority)
{
    for (int i = 0; i < WEIR_PRIORITY_COUNT; i++) {
        if (strcmp(name, weir_priority_names[i]) == 0) {
            *ret_priority = (enum weir_priority)i;
            return true;
        }
    }
    return false;
}
