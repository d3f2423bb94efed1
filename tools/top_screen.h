/* weir top: a frame as text, in place on a terminal, or one after the other. */
#pragma once

#include "tools/top_rates.h"

struct weir_top_screen {
    bool in_place; /* draw on a terminal, over the last frame */
    bool colours;
};

/** Print a frame to stdout. */
void weir_top_draw(const struct weir_top_screen *screen, const struct weir_status_report *now,
                   const struct weir_top_rates *rates, enum weir_top_sort sort);
