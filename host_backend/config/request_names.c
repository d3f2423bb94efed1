/* Decides which variables ask for a share, and which are misspelt requests. */
#include "host_backend/config/request_names.h"

#include "base/guess.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define PREFIX "WEIR_"

const struct weir_request_name weir_request_names[] = {
    {"WEIR_MEMORY", "memory"},     {"WEIR_WEIGHT", "weight"},     {"WEIR_PRIORITY", "priority"},
    {"WEIR_SM_LIMIT", "sm_limit"}, {"WEIR_SESSIONS", "sessions"}, {NULL, NULL}};

/* Weir's variables that ask for nothing: see weir-libcuda(7), weir-run(1) and weir-serve(1). */
static const char *const others[] = {
    "WEIR_HOST",    "WEIR_TRANSPORT", "WEIR_KEY",   "WEIR_SERVER_KEY",
    "WEIR_LOG",     "WEIR_STATS",     "WEIR_TRACE", "WEIR_LAUNCH_BLOCKING",
    "WEIR_LIB_DIR", "WEIR_LIBZMQ",    NULL};
#define SOFTGPU "SOFTGPU_" /* variables of softgpu begin with WEIR_SOFTGPU_ */

/* Words that occur only in requests, as in WEIR_MEM, WEIR_GPU_MEMORY_MB, WEIR_TENANT. */
static const char *const words[] = {"MEM",     "MEMORY",   "VRAM",     "QUOTA", "WEIGHT",
                                    "PRIO",    "PRIORITY", "SESSIONS", "SM",    "SMS",
                                    "SMLIMIT", "TENANT",   NULL};

/* Could the word be a typing error for another? Errors seldom hit the first letter: "height" is not
 * "weight". */
static bool is_close(const struct weir_guess *guess)
{
    return guess->best && (toupper((unsigned char)guess->word[0]) == guess->best[0] ||
                           toupper((unsigned char)guess->word[1]) == guess->best[0]);
}

static bool has_word(const char *rest)
{
    while (*rest) {
        char word[32];
        size_t n = strcspn(rest, "_");

        snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : 0), rest);
        struct weir_guess guess = weir_guess_begin(word);
        for (size_t i = 0; words[i]; i++) {
            if (strlen(words[i]) < 5 && strcasecmp(word, words[i]) != 0) {
                continue; /* too many words are close to a short one */
            }
            weir_guess_offer(&guess, words[i]);
        }
        if (is_close(&guess)) {
            return true;
        }
        rest += n + (rest[n] == '_');
    }
    return false;
}

/* Compare with all names, without their first `skip` letters. */
static void offer(struct weir_guess *guess, size_t skip)
{
    for (size_t i = 0; weir_request_names[i].variable; i++) {
        weir_guess_offer(guess, weir_request_names[i].variable + skip);
    }
    for (size_t i = 0; others[i]; i++) {
        weir_guess_offer(guess, others[i] + skip);
    }
}

static bool is_other(const char *name)
{
    for (size_t i = 0; others[i]; i++) {
        if (strcmp(name, others[i]) == 0) {
            return true;
        }
    }
    return strncmp(name, PREFIX SOFTGPU, strlen(PREFIX SOFTGPU)) == 0;
}

/* Is an unknown name a misspelt name of Weir's? ret_meant: the similar name, if there is one,
 * without its first letters. The prefix itself may have one mistake. */
static bool is_misspelt(const char *name, const char **ret_meant)
{
    size_t skip = strncasecmp(name, PREFIX, strlen(PREFIX)) == 0 ? strlen(PREFIX) : 0;
    struct weir_guess guess = weir_guess_begin(name + skip);

    if (skip == 0 && (name[0] | 0x20) != 'w') {
        return false;
    }
    guess.most_edits = skip == 0 ? 1 : guess.most_edits;
    offer(&guess, skip);
    bool is_near = skip == 0 ? guess.best != NULL : is_close(&guess);
    *ret_meant = is_near ? guess.best - skip : NULL;
    return is_near || (skip != 0 && has_word(name + skip));
}

enum weir_status weir_request_variable(const char *assignment,
                                       const struct weir_request_name **ret_row,
                                       const char **ret_value, struct weir_diag *ret_diag)
{
    const char *equals = strchr(assignment, '='), *meant = NULL;
    char name[64];
    size_t n = equals ? (size_t)(equals - assignment) : 0;

    *ret_row = NULL;
    if (n == 0 || n >= sizeof name || equals[1] == 0) {
        return WEIR_OK;
    }
    memcpy(name, assignment, n);
    name[n] = 0;
    for (size_t i = 0; weir_request_names[i].variable; i++) {
        if (strcmp(name, weir_request_names[i].variable) == 0) {
            *ret_row = &weir_request_names[i];
            *ret_value = equals + 1;
            return WEIR_OK;
        }
    }
    if (is_other(name) || !is_misspelt(name, &meant)) {
        return WEIR_OK;
    }
    if (meant) {
        weir_diag_set(ret_diag, 0, 0, "the variable %s is none of Weir's; did you mean %s?", name,
                      meant);
    } else {
        weir_diag_set(ret_diag, 0, 0,
                      "the variable %s is none of Weir's: WEIR_MEMORY, WEIR_WEIGHT, WEIR_PRIORITY, "
                      "WEIR_SM_LIMIT and WEIR_SESSIONS ask for a share",
                      name);
    }
    return WEIR_ERR_INVALID;
}
