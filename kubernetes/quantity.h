/* Kubernetes' quantities: "8Gi", "1500m", "2e9". */
#ifndef WEIR_KUBERNETES_QUANTITY_H
#define WEIR_KUBERNETES_QUANTITY_H

#include "base/status.h"
#include <stdint.h>

/**
 * Read a quantity as a whole number, rounded up as Kubernetes rounds.
 * @param ret_value  up to 2^60.
 * @return WEIR_OK, WEIR_ERR_INVALID (no quantity, negative, or larger)
 * @thread any
 */
enum weir_status weir_quantity_parse(const char *text, uint64_t *ret_value) WEIR_MUST_CHECK;

/** Write a number in the largest binary unit that divides it, "512Mi". @thread any */
void weir_quantity_text(uint64_t value, char text[32]);

#endif
