/* Priority classes of tenants, for configuration, scheduler and reports. */
#pragma once

#include <stdbool.h>

enum weir_priority {
    WEIR_PRIORITY_LOW,
    WEIR_PRIORITY_NORMAL,
    WEIR_PRIORITY_HIGH,
    WEIR_PRIORITY_COUNT
};

/** Names of the classes, "low", "normal", "high"; NULL after the last. */
extern const char *const weir_priority_names[WEIR_PRIORITY_COUNT + 1];

/** Find the class of a name. @return false: there is none, and nothing is written. @thread any */
bool weir_priority_find(const char *name, enum weir_priority *ret_priority);
