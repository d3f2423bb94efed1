#include "base/guess.h"

#include "base/search.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define WORD_MAX 32 /* all names are shorter */

static int plain(char c)
{
    return c == '_' ? '-' : tolower((unsigned char)c);
}

static size_t least(size_t a, size_t b, size_t c)
{
    size_t ab = WEIR_MIN(a, b);

    return WEIR_MIN(ab, c);
}

/* The number of letters to insert, remove, change, or swap with the next (optimal string
 * alignment). */
static size_t edits(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    size_t row[3][WORD_MAX + 1]; /* this row, the one before, and the one before that */

    for (size_t j = 0; j <= b_bytes; j++) {
        row[0][j] = j;
    }
    for (size_t i = 1; i <= a_bytes; i++) {
        size_t *now = row[i % 3], *before = row[(i + 2) % 3], *two_before = row[(i + 1) % 3];

        now[0] = i;
        for (size_t j = 1; j <= b_bytes; j++) {
            int x = plain(a[i - 1]), y = plain(b[j - 1]);

            now[j] = least(before[j] + 1, now[j - 1] + 1, before[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == plain(b[j - 2]) && y == plain(a[i - 2]) &&
                two_before[j - 2] + 1 < now[j]) {
                now[j] = two_before[j - 2] + 1;
            }
        }
    }
    return row[a_bytes % 3][b_bytes];
}

struct weir_guess weir_guess_begin(const char *word)
{
    size_t n = strlen(word);

    return (struct weir_guess){.word = word, .most_edits = n < 3 ? 0 : n < 5 ? 1 : 2};
}

void weir_guess_offer(struct weir_guess *guess, const char *name)
{
    size_t a = strlen(guess->word), b = strlen(name), n;

    if (a > WORD_MAX || b > WORD_MAX) {
        return;
    }
    n = edits(guess->word, a, name, b);
    if (n < guess->most_edits || (n == guess->most_edits && !guess->best)) {
        guess->best = name;
        guess->most_edits = n;
    }
}

const char *weir_guess_text(const struct weir_guess *guess, char room[64])
{
    snprintf(room, 64, guess->best ? "; did you mean '%.40s'?" : "%s",
             guess->best ? guess->best : "");
    return room;
}
