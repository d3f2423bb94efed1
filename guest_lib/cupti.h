/*
 * Weir's libcupti in the place of NVIDIA's, for profilers in the program.
 *
 * Source: docs/design/profiling.md
 */
#pragma once

/**
 * Load Weir's libcupti.
 * @param soname  "libcupti.so.13", or .12.
 * @return NULL: it is not installed
 * @thread any
 */
void *weir_guest_cupti_load(const char *soname);

/**
 * If the process has loaded another libcupti since the last call, redirect it to Weir's. Costs a
 * comparison where nothing has been loaded, and else one walk over the loaded objects.
 * @thread any; no lock held
 */
void weir_guest_cupti_replace(void);
