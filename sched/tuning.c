#include "sched/tuning.h"

struct weir_tuning tuning = {
#define WEIR_TUNING(name, type, value, unit, reason, measurement) .name = (value),
#include "sched/tuning.def"
#undef WEIR_TUNING
};
