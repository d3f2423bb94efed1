/*
 * Digits are read as one whole number and a count of decimals, so "0.1" is exact. The format is
 * that of Kubernetes' resource.Quantity: a decimal number, and a binary unit, a decimal unit or an
 * exponent.
 */
#include "kubernetes/quantity.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUE_MAX    (UINT64_C(1) << 60)
#define DIGITS_MAX   18 /* fit into 64 bits */
#define EXPONENT_MAX 18

typedef unsigned __int128 wide;

static const char binary[] = "KMGTP", decimal[] = "kMGTP", small[] = "mun";

/* Read the unit behind the digits: a factor, and how many decimals it takes away. */
static bool unit(const char *text, wide *ret_factor, int *ret_decimals)
{
    const char *at;
    char *end;

    *ret_factor = 1;
    *ret_decimals = 0;
    if (*text == 0) {
        return true;
    }
    at = strchr(binary, *text);
    if (at && strcmp(text + 1, "i") == 0) {
        *ret_factor = (wide)1 << (10 * (at - binary + 1));
        return true;
    }
    at = strchr(decimal, *text);
    if (at && text[1] == 0) {
        *ret_decimals = -3 * (int)(at - decimal + 1);
        return true;
    }
    at = strchr(small, *text);
    if (at && text[1] == 0) {
        *ret_decimals = 3 * (int)(at - small + 1);
        return true;
    }
    if (*text == 'E' && text[1] == 'i' && text[2] == 0) {
        *ret_factor = (wide)1 << 60;
        return true;
    }
    if ((*text == 'e' || *text == 'E') && strspn(text + 1, "+-0123456789") == strlen(text + 1)) {
        long exponent = text[1] == 0 ? EXPONENT_MAX : strtol(text + 1, &end, 10); /* "E" is 10^18 */

        *ret_decimals = (int)-exponent;
        return (text[1] == 0 && *text == 'E') ||
               (text[1] != 0 && *end == 0 && labs(exponent) <= EXPONENT_MAX);
    }
    return false;
}

enum weir_status weir_quantity_parse(const char *text, uint64_t *ret_value)
{
    wide value = 0, factor, rest = 0;
    int digits = 0, decimals = 0, scale;
    bool point = false;

    text += *text == '+';
    for (; (*text >= '0' && *text <= '9') || (*text == '.' && !point); text++) {
        if (*text == '.') {
            point = true;
            continue;
        }
        digits++;
        decimals += point;
        value = value * 10 + (wide)(*text - '0');
        if (value > VALUE_MAX || decimals > DIGITS_MAX) {
            return WEIR_ERR_INVALID;
        }
    }
    if (digits == 0 || !unit(text, &factor, &scale)) {
        return WEIR_ERR_INVALID;
    }
    value *= factor; /* both up to 2^60 */
    for (decimals += scale; decimals < 0; decimals++) {
        value *= 10;
        if (value > (wide)VALUE_MAX << 40) {
            return WEIR_ERR_INVALID;
        }
    }
    for (; decimals > 0; decimals--) {
        rest |= value % 10;
        value /= 10;
    }
    value += rest != 0;
    if (value > VALUE_MAX) {
        return WEIR_ERR_INVALID;
    }
    *ret_value = (uint64_t)value;
    return WEIR_OK;
}

void weir_quantity_text(uint64_t value, char text[32])
{
    static const char *const units[] = {"", "Ki", "Mi", "Gi", "Ti", "Pi"};
    size_t i = 0;

    while (value != 0 && value % 1024 == 0 && i + 1 < sizeof units / sizeof units[0]) {
        value /= 1024;
        i++;
    }
    snprintf(text, 32, "%llu%s", (unsigned long long)value, units[i]);
}
