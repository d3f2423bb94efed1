/*
 * A run as a picture: who held which SMs when, and whose data moved. SVG, readable without scripts;
 * pointing at a piece names tenant and times.
 */
#ifndef WEIR_SCHED_SIM_SVG_H
#define WEIR_SCHED_SIM_SVG_H

#include "sched/sim/sim.h"
#include <stdio.h>

struct weir_sim_svg;

/** Collects holds and spans. @return WEIR_OK, WEIR_ERR_NO_MEMORY */
enum weir_status weir_sim_svg_create(const struct weir_sim_load *load, uint32_t sms,
                                     struct weir_sim_svg **ret_svg) WEIR_MUST_CHECK;

/** For struct weir_sim_watch. */
void weir_sim_svg_span(struct weir_sim_svg *svg, const struct weir_sim_span *span);
void weir_sim_svg_hold(struct weir_sim_svg *svg, const struct weir_sim_hold *hold);

/**
 * Draw the time from from_ns to to_ns.
 *
 * @param title  above it; any text.
 * @return WEIR_OK, WEIR_ERR_INVALID (no time), WEIR_ERR_NO_MEMORY (here or while collecting),
 *         WEIR_ERR_IO
 */
enum weir_status weir_sim_svg_draw(const struct weir_sim_svg *svg, FILE *out, const char *title,
                                   uint64_t from_ns, uint64_t to_ns) WEIR_MUST_CHECK;

/**
 * Draw two runs of one load, the second below the first, with the same time from left to right.
 * @return as weir_sim_svg_draw()
 */
enum weir_status weir_sim_svg_draw_pair(const struct weir_sim_svg *const svg[2], FILE *out,
                                        const char *const title[2], uint64_t from_ns,
                                        uint64_t to_ns) WEIR_MUST_CHECK;

/** Accepts NULL. */
void weir_sim_svg_destroy(struct weir_sim_svg *svg);

#endif
