/*
 * Makes foreign text safe for JSON and for people's terminals.
 *
 * "Control characters" here are those that can move a cursor, end a line or change the direction of
 * writing: C0, DEL, C1 and Unicode's line separators and marks of direction.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define WEIR_JSON_PIECE_BYTES 8

/**
 * Decode one character of UTF-8.
 *
 * @param at  the text, not at its NUL; moved behind the character, or behind one byte that begins
 *            none.
 * @return the code point, 1 to 0x10ffff; -1: no UTF-8 (too long forms and surrogates included).
 * @thread any
 */
int32_t weir_utf8_next(const char **at);

/** Write a text as the inside of a JSON string. @thread any */
void weir_json_put_part(FILE *out, const char *text);

/** Write a text as a JSON string. Every JSON string is also a YAML string. @thread any */
void weir_json_put(FILE *out, const char *text);

/**
 * Make a text safe for a terminal: each byte of control characters, backslashes and invalid UTF-8
 * becomes \xNN.
 *
 * @param room_bytes  at least 1, with the NUL; the text ends before the first character that does
 *                    not fit.
 * @return room.
 * @thread any
 */
const char *weir_text_visible(const char *text, char *room, size_t room_bytes);

/**
 * Replace each control character, and each byte that is no UTF-8, by a '?'.
 *
 * @param text  changed; grows shorter, never longer.
 * @return its new length.
 * @thread owner
 */
size_t weir_text_blot(char *text);

/** Print a size as "512 MiB", "1.5 GiB" and so on. @return text @thread any */
const char *weir_human_bytes(unsigned long long bytes, char text[16]);
/** The same for a tenant's quota, which is 0 as long as no worker has said how much memory there
 * is: then it is "?". @return text @thread any */
const char *weir_human_quota(unsigned long long bytes, char text[16]);
