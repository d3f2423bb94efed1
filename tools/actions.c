/* Commands with actions, such as weir tenant set and weir trace start. */
#include "base/guess.h"
#include "tools/command.h"

#include <stdio.h>
#include <string.h>

/* Does the option take the next word as its value? As in getopt_long, names may be cut short. */
static bool takes_next(const char *word, const char *const *valued)
{
    if (strncmp(word, "--", 2) != 0 || strchr(word, '=')) {
        return false;
    }
    size_t n = strlen(word + 2);
    while (*valued && strncmp(word + 2, *valued, n) != 0) {
        valued++;
    }
    return *valued;
}

/* The first word that is neither an option nor an option's value; argc: there is none. */
static int find_word(int argc, char **argv, const char *const *valued)
{
    int i = 1;
    while (i < argc && argv[i][0] == '-' && strcmp(argv[i], "--") != 0) {
        i += takes_next(argv[i], valued) ? 2 : 1;
    }
    return i < argc && argv[i][0] != '-' ? i : argc;
}

static void print_help(FILE *to, const struct weir_actions *all)
{
    fprintf(to, "Usage: weir %s ACTION [OPTIONS] ...\n\n%s\n\nActions:\n", all->command,
            all->about);
    for (const struct weir_action *a = all->rows; a->name; a++) {
        if (a->summary) {
            fprintf(to, "  %-10s %s\n", a->name, a->summary);
        }
    }
    fprintf(to, "\nOptions:\n  -h, --help show this text; behind an ACTION, what that does\n");
}

int weir_actions_run(int argc, char **argv, const struct weir_actions *all)
{
    static char full[32]; /* argv[0] of the action, which its help shows */
    int at = find_word(argc, argv, all->valued);
    if (at == argc) {
        for (int i = 1; i < argc; i++) {
            if (weir_option_is_help(argv[i])) {
                print_help(stdout, all);
                return WEIR_EXIT_OK;
            }
        }
        fprintf(stderr, "weir %s: an action is wanted (see weir %s --help)\n", all->command,
                all->command);
        return WEIR_EXIT_USAGE;
    }
    char *word = argv[at];
    struct weir_guess guess = weir_guess_begin(word);
    for (const struct weir_action *a = all->rows; a->name; a++) {
        if (strcmp(a->name, word) == 0) {
            memmove(argv + 2, argv + 1, (size_t)(at - 1) * sizeof argv[0]);
            snprintf(full, sizeof full, "%s %s", all->command, word);
            argv[1] = full;
            return a->function(argc - 1, argv + 1);
        }
        if (a->summary) {
            weir_guess_offer(&guess, a->name);
        }
    }
    char meant[64];
    fprintf(stderr, "weir %s: unknown action '%s'%s (see weir %s --help)\n", all->command, word,
            weir_guess_text(&guess, meant), all->command);
    return WEIR_EXIT_USAGE;
}
