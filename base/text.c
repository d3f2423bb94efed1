#include "base/text.h"
#include "base/search.h"
#include <stdbool.h>
#include <string.h>

int32_t weir_utf8_next(const char **at)
{
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    const unsigned char *byte = (const unsigned char *)*at;
    unsigned more = byte[0] >= 0xf0 ? 3 : byte[0] >= 0xe0 ? 2 : byte[0] >= 0xc0 ? 1 : 0;
    uint32_t code = more > 0 ? byte[0] & (0x3fu >> more) : byte[0];

    *at += 1;
    if ((byte[0] >= 0x80 && more == 0) || byte[0] > 0xf4) {
        return -1;
    }
    for (unsigned i = 1; i <= more; i++) {
        if ((byte[i] & 0xc0) != 0x80) { /* the NUL counts, too */
            return -1;
        }
        code = code << 6 | (byte[i] & 0x3f);
    }
    if (code < least[more] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) {
        return -1;
    }
    *at += more;
    return (int32_t)code;
}

static bool is_control(int32_t code)
{
    return code < 0x20 || (code >= 0x7f && code <= 0x9f) || code == 0x61c ||
           (code >= 0x200e && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
           (code >= 0x2066 && code <= 0x2069);
}

/* Convert one character for a JSON string: unchanged, or escaped if it is a quote, a backslash or a
 * control character. A byte that is no UTF-8 becomes \ufffd. @param at  as weir_utf8_next() */
static const char *next_piece(const char **at, char *piece)
{
    const char *from = *at;
    int32_t code = weir_utf8_next(at);
    size_t bytes = (size_t)(*at - from);

    if (code == '"' || code == '\\') {
        snprintf(piece, WEIR_JSON_PIECE_BYTES, "\\%c", (char)code);
    } else if (is_control(code)) {
        snprintf(piece, WEIR_JSON_PIECE_BYTES, "\\u%04x",
                 (code < 0 ? 0xfffdu : (unsigned)code) & 0xffff);
    } else {
        memcpy(piece, from, bytes);
        piece[bytes] = 0;
    }
    return piece;
}

void weir_json_put_part(FILE *out, const char *text)
{
    char piece[WEIR_JSON_PIECE_BYTES];

    while (*text != 0) {
        fputs(next_piece(&text, piece), out);
    }
}

void weir_json_put(FILE *out, const char *text)
{
    putc('"', out);
    weir_json_put_part(out, text);
    putc('"', out);
}

const char *weir_text_visible(const char *text, char *room, size_t room_bytes)
{
    char *end = room;

    while (*text != 0) {
        const char *from = text;
        int32_t code = weir_utf8_next(&text);
        bool plain = !is_control(code) && code != '\\';
        size_t bytes = (size_t)(text - from);

        if ((plain ? bytes : 4 * bytes) >= room_bytes - (size_t)(end - room)) {
            break;
        }
        if (plain) {
            memcpy(end, from, bytes);
            end += bytes;
        }
        for (; !plain && from < text; from++) {
            end += sprintf(end, "\\x%02x", (unsigned char)*from);
        }
    }
    *end = 0;
    return room;
}

size_t weir_text_blot(char *text)
{
    const char *at = text;
    char *end = text;

    while (*at != 0) {
        const char *from = at;

        if (is_control(weir_utf8_next(&at))) {
            *end++ = '?';
        } else {
            memmove(end, from, (size_t)(at - from));
            end += at - from;
        }
    }
    *end = 0;
    return (size_t)(end - text);
}

const char *weir_human_bytes(unsigned long long bytes, char text[16])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < WEIR_COUNT(units)) {
        value /= 1024;
        unit++;
    }
    snprintf(text, 16, unit && value < 10 ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return text;
}

const char *weir_human_quota(unsigned long long bytes, char text[16])
{
    return bytes != 0 ? weir_human_bytes(bytes, text) : strcpy(text, "?");
}
