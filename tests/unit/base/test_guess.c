/* "Did you mean": which name is close to a misspelt one. */
#include "base/guess.h"

#include "../../lib/tl_cmocka.h"
#include <string.h>

static const char *const names[] = {"weight", "memory", "sm_limit", "key", "run-dir", "status"};

static const struct row {
    const char *word, *meant;
} rows[] = {
    {"wieght", "weight"}, /* two swapped */
    {"weigh", "weight"},
    {"weights", "weight"},
    {"WEIGHT", "weight"},
    {"memmry", "memory"},
    {"stauts", "status"},
    {"sm-limit", "sm_limit"},
    {"run_dir", "run-dir"},
    {"keys", "key"},
    {"ke", NULL},
    {"k", NULL},
    {"", NULL},
    {"bandwidth", NULL},
    {"xstatusx", "status"},
    {"sttaus", "status"},
    {"a-word-that-is-much-longer-than-every-name", NULL},
};

static void guess_offers_the_closest_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct weir_guess guess = weir_guess_begin(rows[i].word);
        char text[64], expected[64] = "";

        for (size_t j = 0; j < sizeof names / sizeof names[0]; j++) {
            weir_guess_offer(&guess, names[j]);
        }
        if (rows[i].meant) {
            snprintf(expected, sizeof expected, "; did you mean '%s'?", rows[i].meant);
        }
        if (strcmp(weir_guess_text(&guess, text), expected) != 0) {
            print_error("'%s' gave '%s'\n", rows[i].word, text);
            fail();
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(guess_offers_the_closest_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
