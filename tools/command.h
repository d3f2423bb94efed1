/* What the subcommands share: their signature, option parsing and the places of Weir's files. */
#pragma once

#include "base/text.h"
#include <stdbool.h>
#include <stddef.h>

/* Exit statuses, as those of a shell and of docker run. */
#define WEIR_EXIT_OK          0
#define WEIR_EXIT_FAILED      1
#define WEIR_EXIT_USAGE       2
#define WEIR_EXIT_UNUSED      3 /* weir restart: the host is older and no program uses it */
#define WEIR_EXIT_CANNOT_EXEC 126
#define WEIR_EXIT_NO_PROGRAM  127

/* argv[0] is the subcommand's name. Returns the exit status. */
typedef int (*weir_command_fn)(int argc, char **argv);

#define WEIR_COMMAND(name, function, summary) int function(int argc, char **argv);
#include "tools/commands.def"
#undef WEIR_COMMAND

/* One long option of a subcommand. */
struct weir_option {
    const char *name;  /* without "--" */
    const char *value; /* placeholder of its value in the help; NULL: a flag */
    const char *help;  /* NULL: not in the help: an old option that only names its replacement */
    /* Where the value goes: *text for an option with a value (borrowed from argv), *flag for one
     * without. */
    const char **text;
    bool *flag;
};

/**
 * Parse "--name value", "--name=value" and flags, wherever they stand before "--" (getopt_long).
 *
 * Prints help on -h and --help, and complaints on stderr.
 *
 * @param argv       gets its other words moved behind the options.
 * @param usage      the line after "Usage: weir <command> ". The words that it names, with those in
 *                   [] or without, must be there, unless it has a '|' or '.'.
 * @param about      a paragraph of the help: what the command does.
 * @param options    ended by a row without name.
 * @param ret_first  index in argv of the first word that is not an option.
 * @return true to go on; false to stop with *ret_exit.
 */
bool weir_options_parse(int argc, char **argv, const char *usage, const char *about,
                        const struct weir_option *options, int *ret_first, int *ret_exit);

/** Parse options up to the first other word, which is a program with options of its own. */
bool weir_options_parse_front(int argc, char **argv, const char *usage, const char *about,
                              const struct weir_option *options, int *ret_first, int *ret_exit);

/** Is the word -h or --help? */
bool weir_option_is_help(const char *word);

struct weir_action {
    const char *name;
    weir_command_fn function; /* argv[0] is "COMMAND ACTION" */
    const char *summary;      /* NULL: not in the help, as for an option */
};

/* A command that has actions: weir tenant set, weir trace start. */
struct weir_actions {
    const char *command;
    const char *about;
    const struct weir_action *rows; /* ended by a row without name */
    const char *const *valued;      /* options with a value, of all actions; ended by NULL */
};

/**
 * Run the action that is named, wherever it stands among the options.
 *
 * @param argv  gets the options in front of the action moved behind it.
 * @return the exit status
 */
int weir_actions_run(int argc, char **argv, const struct weir_actions *actions);

/** Read a number; false with a complaint unless it lies in [min, max]. */
bool weir_option_number(const char *name, const char *text, long long min, long long max,
                        long long *ret_value);

/** Read a size such as 512M or 8GiB in bytes; false with a complaint. */
bool weir_option_bytes(const char *name, const char *text, unsigned long long *ret_bytes);

/**
 * The folder with the guest's libcuda.so.1: $WEIR_LIB_DIR, beside this program as installed, or in
 * the build tree. false: not found.
 */
bool weir_path_guest_lib(char *ret_path, size_t bytes);

/** Find softgpu's library in the same way. */
bool weir_path_softgpu(char *ret_path, size_t bytes);

/** Find the program that follows libvirt's domains, in the same way, or else where its package will
 * install it. */
bool weir_path_libvirt(char *ret_path, size_t bytes);

/** Find the program that gives a container a share on demand, in the same way. */
bool weir_path_oci_hook(char *ret_path, size_t bytes);
