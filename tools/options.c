#include "base/guess.h"
#include "tools/command.h"

#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONS_MAX 32

static void print_help(const char *command, const char *usage, const char *about,
                       const struct weir_option *options)
{
    printf("Usage: weir %s%s%s\n\n%s\n\nOptions:\n", command, *usage ? " " : "", usage, about);
    for (const struct weir_option *o = options; o->name; o++) {
        char left[64];
        if (!o->help) {
            continue;
        }
        snprintf(left, sizeof(left), "--%s%s%s", o->name, o->value ? " " : "",
                 o->value ? o->value : "");
        printf("  %-28s %s\n", left, o->help);
    }
    printf("  %-28s %s\n", "-h, --help", "show this text");
}

/* Translate the rows into getopt_long's form, and add --help. */
static void list_options(const struct weir_option *options, struct option list[OPTIONS_MAX])
{
    size_t n = 0;
    for (; options[n].name; n++) {
        assert(n + 2 < OPTIONS_MAX);
        list[n] = (struct option){.name = options[n].name,
                                  .has_arg = options[n].value ? required_argument : no_argument};
    }
    list[n] = (struct option){.name = "help", .val = 'h'};
    list[n + 1] = (struct option){.name = NULL};
}

/* Returns the name that getopt_long has complained about, if no option begins with it. */
static void suggest(const char *word, const struct weir_option *options)
{
    char name[64];
    if (strncmp(word, "--", 2) != 0) {
        return;
    }
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(word + 2, "="), word + 2);
    struct weir_guess guess = weir_guess_begin(name);
    for (const struct weir_option *o = options; o->name; o++) {
        if (strncmp(o->name, name, strlen(name)) == 0) {
            return;
        }
        if (o->help) {
            weir_guess_offer(&guess, o->name);
        }
    }
    if (guess.best) {
        fprintf(stderr, "Did you mean --%s? ", guess.best);
    }
}

/*
 * Do the words behind the options fit the usage? It names those that are wanted, such as TENANT,
 * and in brackets those that may be missing. With '|' or '.' in it, the command looks at them
 * itself.
 */
static bool words_fit(const char *command, const char *usage, int n, char **words)
{
    char names[128], *at = names;
    const char *name;
    int most = 0;

    if (strpbrk(usage, "|.")) {
        return true;
    }
    snprintf(names, sizeof names, "%s", usage);
    while ((name = strsep(&at, " "))) {
        if (strncmp(name, "--", 2) == 0) {
            (void)strsep(&at, " "); /* an option that must be there, and its value */
        } else if (*name != 0 && strcmp(name, "[OPTIONS]") != 0 && most++ >= n && *name != '[') {
            fprintf(stderr, "weir %s: %s is missing (see weir %s --help)\n", command, name,
                    command);
            return false;
        }
    }
    if (n > most) {
        fprintf(stderr, "weir %s: unexpected '%s' (see weir %s --help)\n", command, words[most],
                command);
    }
    return n <= most;
}

static bool parse(int argc, char **argv, const char *letters, const char *usage, const char *about,
                  const struct weir_option *options, int *ret_first, int *ret_exit)
{
    struct option list[OPTIONS_MAX];
    char full[64];
    char *command = argv[0];
    int index, found;

    list_options(options, list);
    snprintf(full, sizeof(full), "weir %s", command);
    argv[0] = full; /* getopt_long begins its complaints with argv[0] */
    optind = 0;
    while ((found = getopt_long(argc, argv, letters, list, &index)) == 0) {
        if (options[index].value) {
            *options[index].text = optarg;
        } else {
            *options[index].flag = true;
        }
    }
    argv[0] = command;
    if (found == 'h') {
        print_help(command, usage, about, options);
    } else if (found != -1) {
        suggest(argv[optind - 1], options);
        fprintf(stderr, "See weir %s --help.\n", command);
    }
    *ret_exit = found == 'h' ? WEIR_EXIT_OK : WEIR_EXIT_USAGE;
    *ret_first = optind;
    return found == -1;
}

bool weir_options_parse(int argc, char **argv, const char *usage, const char *about,
                        const struct weir_option *options, int *ret_first, int *ret_exit)
{
    return parse(argc, argv, "h", usage, about, options, ret_first, ret_exit) &&
           words_fit(argv[0], usage, argc - *ret_first, argv + *ret_first);
}

bool weir_options_parse_front(int argc, char **argv, const char *usage, const char *about,
                              const struct weir_option *options, int *ret_first, int *ret_exit)
{
    return parse(argc, argv, "+h", usage, about, options, ret_first, ret_exit);
}

bool weir_option_is_help(const char *word)
{
    return strcmp(word, "-h") == 0 || strcmp(word, "--help") == 0;
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
