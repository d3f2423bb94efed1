/* The tuning constants: one row each in tuning.def, with its unit, reason and measurement. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct weir_tuning {
#define WEIR_TUNING(name, type, value, unit, reason, measurement) type name;
#include "sched/tuning.def"
#undef WEIR_TUNING
};

/** The values in use. Only `weir sim --tune` changes them, before it makes a scheduler. */
extern struct weir_tuning tuning;
