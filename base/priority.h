/* The classes of tenants that configuration, scheduler and reports speak of. */
#ifndef WEIR_BASE_PRIORITY_H
#define WEIR_BASE_PRIORITY_H

#include <stdbool.h>

enum weir_priority {
    WEIR_PRIORITY_LOW,
    WEIR_PRIORITY_NORMAL,
    WEIR_PRIORITY_HIGH,
    WEIR_PRIORITY_COUNT
};

/** "low", "normal", "high", by class; NULL behind the last. */
extern const char *const weir_priority_names[WEIR_PRIORITY_COUNT + 1];

/** Find the class of a name. @return false: there is none, and nothing is written. @thread any */
bool weir_priority_find(const char *name, enum weir_priority *ret_priority);

#endif
