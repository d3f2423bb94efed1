/* "Did you mean": the known word that is closest to a misspelt one. */
#pragma once

#include <stddef.h>

/* Owner thread only. */
struct weir_guess {
    const char *word;  /* borrowed */
    const char *best;  /* one of the names offered, borrowed; NULL: none is close */
    size_t most_edits; /* private: how far the next name may be from the word */
};

/** Begin with a word that is not one of the names. @thread owner */
struct weir_guess weir_guess_begin(const char *word);

/**
 * Offer a name. A name is close if the word differs by one letter: missing, added, wrong or swapped
 * with the next. Words of five and more letters may have two such mistakes. Case, and '-' for '_',
 * are no mistakes.
 *
 * @thread owner
 */
void weir_guess_offer(struct weir_guess *guess, const char *name);

/**
 * "; did you mean 'weight'?", or "" if no name is close.
 *
 * @param room  64 bytes for the text.
 * @return room
 * @thread owner
 */
const char *weir_guess_text(const struct weir_guess *guess, char room[64]);
