/* CURVE keys as text: 32 bytes in Z85, 40 characters. Key files hold one such line. */
#pragma once

#include "base/status.h"
#include <stdbool.h>

#define WEIR_KEY_TEXT_BYTES 41 /* with the NUL */
#define WEIR_KEY_PATH_BYTES 4096

struct weir_keypair {
    char public_key[WEIR_KEY_TEXT_BYTES];
    char secret_key[WEIR_KEY_TEXT_BYTES];
};

/** Is this 40 characters of Z85? @thread any */
bool weir_key_valid(const char *text);

/**
 * Read a key from a user's text: the 40 characters themselves, or the path of a file whose first
 * line they are.
 *
 * @param text_or_path  borrowed.
 * @param ret_key       the text of the key.
 * @return WEIR_OK, WEIR_ERR_INVALID (neither), WEIR_ERR_NOT_FOUND, WEIR_ERR_DENIED, WEIR_ERR_IO
 * @thread any
 */
enum weir_status weir_key_read(const char *text_or_path,
                               char ret_key[WEIR_KEY_TEXT_BYTES]) WEIR_MUST_CHECK;

/**
 * Find the public key's file beside a secret key's, as weir keygen makes them.
 *
 * @param secret_path  "NAME.secret"; may be NULL.
 * @param buffer       room for the answer.
 * @return buffer with "NAME.public"; NULL: secret_path has another ending, or there is no such
 *         file that can be read.
 * @thread any
 */
const char *weir_key_public_path(const char *secret_path, char buffer[WEIR_KEY_PATH_BYTES]);

/**
 * Make a new key pair. Host side only (needs libzmq linked).
 * @return WEIR_OK, WEIR_ERR_UNSUPPORTED (libzmq without CURVE) @thread any
 */
enum weir_status weir_keypair_generate(struct weir_keypair *ret_pair) WEIR_MUST_CHECK;
