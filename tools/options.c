#include "tools/command.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_help(const char *command, const char *usage, const char *about,
                       const struct weir_option *options)
{
    printf("Usage: weir %s %s\n\n%s\n", command, usage, about);
    if (options->name) {
        printf("\nOptions:\n");
    }
    for (const struct weir_option *o = options; o->name; o++) {
        char left[64];
        snprintf(left, sizeof(left), "--%s%s%s", o->name, o->value ? " " : "",
                 o->value ? o->value : "");
        printf("  %-28s %s\n", left, o->help);
    }
    printf("  %-28s %s\n", "--help", "show this text");
}

static const struct weir_option *find(const struct weir_option *options, const char *name,
                                      size_t length)
{
    for (const struct weir_option *o = options; o->name; o++) {
        if (strlen(o->name) == length && strncmp(o->name, name, length) == 0) {
            return o;
        }
    }
    return NULL;
}

bool weir_options_parse(int argc, char **argv, const char *usage, const char *about,
                        const struct weir_option *options, int *ret_first, int *ret_exit)
{
    int i = 1;
    for (; i < argc && strncmp(argv[i], "--", 2) == 0; i++) {
        if (argv[i][2] == '\0') {
            i++;
            break;
        }
        const char *name = argv[i] + 2;
        const char *equals = strchr(name, '=');
        size_t length = equals ? (size_t)(equals - name) : strlen(name);
        if (strcmp(name, "help") == 0) {
            print_help(argv[0], usage, about, options);
            *ret_exit = WEIR_EXIT_OK;
            return false;
        }
        const struct weir_option *option = find(options, name, length);
        *ret_exit = WEIR_EXIT_USAGE;
        if (!option) {
            fprintf(stderr, "weir %s: unknown option %s (see weir %s --help)\n", argv[0], argv[i],
                    argv[0]);
            return false;
        }
        if (!option->value) {
            if (equals) {
                fprintf(stderr, "weir %s: --%s takes no value\n", argv[0], option->name);
                return false;
            }
            *option->flag = true;
        } else if (equals) {
            *option->text = equals + 1;
        } else if (i + 1 < argc) {
            *option->text = argv[++i];
        } else {
            fprintf(stderr, "weir %s: --%s needs a value\n", argv[0], option->name);
            return false;
        }
    }
    *ret_first = i;
    return true;
}

bool weir_option_number(const char *name, const char *text, long long min, long long max,
                        long long *ret_value)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 0);
    if (errno || end == text || *end || value < min || value > max) {
        fprintf(stderr, "weir: --%s: '%s' is not a number of %lld .. %lld\n", name, text, min, max);
        return false;
    }
    *ret_value = value;
    return true;
}

bool weir_option_bytes(const char *name, const char *text, unsigned long long *ret_bytes)
{
    static const char units[] = "KMGT";
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 0);
    bool good = !errno && end != text && text[0] != '-';
    unsigned int shift = 0;
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (unit) {
        shift = 10 * (unsigned int)(unit - units + 1);
        end++;
        end += strncmp(end, "iB", 2) == 0 ? 2 : *end == 'B' ? 1 : 0;
    }
    if (!good || *end || (shift && value > (~0ull >> shift))) {
        fprintf(stderr, "weir: --%s: '%s' is not a size (512M, 8GiB, ...)\n", name, text);
        return false;
    }
    *ret_bytes = value << shift;
    return true;
}

const char *weir_human_bytes(unsigned long long bytes, char text[16])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        value /= 1024;
        unit++;
    }
    snprintf(text, 16, unit && value < 10 ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return text;
}
