/*
 * Reads TOML's words: numbers, true and false. Dates and times are only recognized: no key takes
 * one, so the error is that it has the wrong kind, whatever it says.
 */
#include "host_backend/config/toml_private.h"

#include <stdlib.h>
#include <string.h>

#define WORD_MAX 128 /* a number with more figures is refused */

/* Copy digits of this base to *to, without the single underscores between them; `value` tells a
 * digit. NULL: there is none. */
static const char *take_digits(const char *at, int base, char **to)
{
    static const char all[] = "0123456789abcdef";
    bool digit_before = false;

    for (;; at++) {
        const char lower = (char)(*at >= 'A' && *at <= 'F' ? *at - 'A' + 'a' : *at);
        const char *found = lower != 0 ? strchr(all, lower) : NULL;

        if (found && found - all < base) {
            *(*to)++ = *at;
            digit_before = true;
        } else if (*at == '_' && digit_before) {
            digit_before = false;
        } else {
            return digit_before ? at : NULL;
        }
    }
}

static bool is_zero_led(const char *digits, const char *end)
{
    return digits[0] == '0' && end - digits > 1;
}

static bool integer_of(struct weir_toml_reader *r, const char *digits, int base, bool negative,
                       int64_t *ret)
{
    uint64_t most = (uint64_t)INT64_MAX + negative, value = 0;

    for (; *digits != 0; digits++) {
        const char text[] = {*digits, 0};
        uint64_t digit = strtoull(text, NULL, base);

        WEIR_FAIL_IF(value > (most - digit) / (uint64_t)base,
                     WEIR_TOML_FAIL(r, "the number is too large"));
        value = value * (uint64_t)base + digit;
    }
    *ret = negative ? (int64_t)(0 - value) : (int64_t)value;
    return true;
}

static bool not_a_value(struct weir_toml_reader *r)
{
    return WEIR_TOML_FAIL(r, "a value must be a string in quotes, a number, true, false, a date, "
                             "[...] or {...}");
}

/* Read 0x1f, 0o17, 0b11. */
static bool based_integer(struct weir_toml_reader *r, const char *word, int base,
                          struct weir_toml_value *value)
{
    char digits[WORD_MAX], *to = digits;
    const char *end = take_digits(word + 2, base, &to);

    WEIR_FAIL_IF(!end || *end != 0, not_a_value(r));
    *to = 0;
    value->kind = WEIR_TOML_INTEGER;
    return integer_of(r, digits, base, false, &value->integer);
}

static bool number(struct weir_toml_reader *r, const char *word, struct weir_toml_value *value)
{
    char plain[WORD_MAX], *to = plain, *digits;
    bool negative = *word == '-', is_float = false;
    const char *at = word + (*word == '-' || *word == '+');

    if (strcmp(at, "inf") == 0 || strcmp(at, "nan") == 0) {
        value->kind = WEIR_TOML_FLOAT;
        value->number = strtod(word, NULL);
        return true;
    }
    if (at == word && *at == '0' && at[1] != 0 && strchr("xob", at[1])) {
        return based_integer(r, word, at[1] == 'x' ? 16 : at[1] == 'o' ? 8 : 2, value);
    }
    *to = '-';
    to += negative;
    digits = to;
    at = take_digits(at, 10, &to);
    WEIR_FAIL_IF(at && is_zero_led(digits, to),
                 WEIR_TOML_FAIL(r, "a number does not begin with 0 (an octal one with 0o)"));
    if (at && *at == '.') {
        is_float = true;
        *to++ = *at++;
        at = take_digits(at, 10, &to);
    }
    if (at && (*at == 'e' || *at == 'E')) {
        is_float = true;
        *to++ = *at++;
        if (*at == '-' || *at == '+') {
            *to++ = *at++;
        }
        at = take_digits(at, 10, &to);
    }
    WEIR_FAIL_IF(!at || *at != 0, not_a_value(r));
    *to = 0;
    value->kind = is_float ? WEIR_TOML_FLOAT : WEIR_TOML_INTEGER;
    value->number = is_float ? strtod(plain, NULL) : 0;
    return is_float || integer_of(r, digits, 10, negative, &value->integer);
}

bool weir_toml_scalar(struct weir_toml_reader *r, struct weir_toml_value *value)
{
    size_t n = strspn(r->at, WEIR_TOML_BARE "+.:");
    char word[WORD_MAX];
    bool good = true;

    WEIR_FAIL_IF(n == 0, not_a_value(r));
    WEIR_FAIL_IF(n >= sizeof word, WEIR_TOML_FAIL(r, "the number is too long"));
    memcpy(word, r->at, n);
    word[n] = 0;
    if (strcmp(word, "true") == 0 || strcmp(word, "false") == 0) {
        value->kind = WEIR_TOML_BOOLEAN;
        value->boolean = word[0] == 't';
    } else if (strchr(word, ':') || (n >= 10 && word[4] == '-' && word[7] == '-')) {
        value->kind = WEIR_TOML_TIME;
    } else {
        good = number(r, word, value);
    }
    r->at += good ? n : 0;
    return good;
}
