/*
 * The API server writes amounts in one form of resource.Quantity: a whole number, and a binary
 * unit, a decimal unit or an exponent. Fractions are thousandths ("m") and less.
 */
#include "kubernetes/plan.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUE_MAX  (UINT64_C(1) << 60)
#define DIGITS_MAX 18 /* fit into 64 bits */

/* Find the unit behind the digits: a power of ten, or of two. */
static bool unit(const char *text, long *ret_tens, long *ret_twos)
{
    static const char big[] = " kMGTPE", binary[] = " KMGTPE", small[] = " mun";
    const char *at = strchr(small, *text), *upper = strchr(big, *text);
    char *end = NULL;

    if (*text == 0) {
        return true;
    }
    if (at && text[1] == 0) {
        *ret_tens = -3 * (at - small);
    } else if (upper && text[1] == 0) {
        *ret_tens = 3 * (upper - big);
    } else if (strchr(binary, *text) && strcmp(text + 1, "i") == 0) {
        *ret_twos = 10 * (strchr(binary, *text) - binary);
    } else if (*text == 'e' && text[1] >= '0' && text[1] <= '9') {
        *ret_tens = strtol(text + 1, &end, 10);
    } else {
        return false;
    }
    return *text != ' ' && (!end || *end == 0);
}

enum weir_status weir_quantity_parse(const char *text, uint64_t *ret_value)
{
    size_t digits = strspn(text, "0123456789");
    long tens = 0, twos = 0;
    bool rest = false;

    if (digits == 0 || digits > DIGITS_MAX || !unit(text + digits, &tens, &twos) || tens > 18) {
        return WEIR_ERR_INVALID;
    }
    uint64_t value = strtoull(text, NULL, 10);
    for (; tens < 0; tens++) {
        rest |= value % 10 != 0;
        value /= 10;
    }
    value += rest;
    for (; tens > 0 && value <= VALUE_MAX; tens--) {
        value *= 10;
    }
    WEIR_FAIL_IF(value > VALUE_MAX >> twos, WEIR_ERR_INVALID);
    *ret_value = value << twos;
    return WEIR_OK;
}

void weir_quantity_text(uint64_t value, char text[32])
{
    static const char *const units[] = {"", "Ki", "Mi", "Gi", "Ti", "Pi"};
    size_t i = 0;

    for (; value != 0 && value % 1024 == 0 && i + 1 < WEIR_COUNT(units); i++) {
        value /= 1024;
    }
    snprintf(text, 32, "%llu%s", (unsigned long long)value, units[i]);
}
