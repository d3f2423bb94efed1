#include "base/guess.h"
#include "base/search.h"
#include "tools/command.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    weir_command_fn function;
    const char *summary;
} commands[] = {
#define WEIR_COMMAND(name, function, summary) {name, function, summary},
#include "tools/commands.def"
#undef WEIR_COMMAND
};

static void print_help(FILE *to)
{
    fprintf(to, "Usage: weir COMMAND [OPTIONS]\n\n"
                "Weir shares NVIDIA GPUs between virtual machines, containers and processes.\n\n"
                "Commands:\n");
    for (size_t i = 0; i < WEIR_COUNT(commands); i++) {
        if (commands[i].summary) {
            fprintf(to, "  %-11s %s\n", commands[i].name, commands[i].summary);
        }
    }
    fprintf(to, "\n`weir COMMAND --help` tells more; so does weir(1).\n");
}

int weir_cmd_version(int argc, char **argv)
{
    static const struct weir_option options[] = {{.name = NULL}};
    int first;
    int exit_status;
    if (!weir_options_parse(argc, argv, "", "Print the version.", options, &first, &exit_status)) {
        return exit_status;
    }
    printf("weir %s\n", WEIR_VERSION);
    return WEIR_EXIT_OK;
}

/* A command fails if its output could not be written, for example to a full disk. */
static int written(int exit_status)
{
    if ((fflush(stdout) != 0 || ferror(stdout)) && exit_status == WEIR_EXIT_OK) {
        fprintf(stderr, "weir: standard output: %s\n", strerror(errno));
        exit_status = WEIR_EXIT_FAILED;
    }
    return exit_status;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return WEIR_EXIT_USAGE;
    }
    if (strcmp(argv[1], "help") == 0) { /* "help COMMAND" means "COMMAND --help" */
        static char help[] = "--help";
        memmove(argv + 1, argv + 2, (size_t)(argc - 2) * sizeof argv[0]);
        argv[argc - 1] = help;
    }
    if (weir_option_is_help(argv[1])) {
        print_help(stdout);
        return WEIR_EXIT_OK;
    }
    if (argv[1][0] == '-' && strcmp(argv[1], "--version") != 0) {
        fprintf(stderr, "weir: '%s': options stand behind the command (see weir --help)\n",
                argv[1]);
        return WEIR_EXIT_USAGE;
    }
    const char *name = strcmp(argv[1], "--version") == 0 ? "version" : argv[1];
    struct weir_guess guess = weir_guess_begin(name);
    for (size_t i = 0; i < WEIR_COUNT(commands); i++) {
        if (strcmp(commands[i].name, name) == 0) {
            return written(commands[i].function(argc - 1, argv + 1));
        }
        if (commands[i].summary) {
            weir_guess_offer(&guess, commands[i].name);
        }
    }
    char meant[64];
    fprintf(stderr, "weir: unknown command '%s'%s (see weir --help)\n", argv[1],
            weir_guess_text(&guess, meant));
    return WEIR_EXIT_USAGE;
}
