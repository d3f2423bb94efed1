#include "proto/wire/keys.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The 85 characters of ZeroMQ RFC 32. */
static const char z85_alphabet[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                   ".-:+=^!/*?&<>()[]{}@%$#";

bool weir_key_valid(const char *text)
{
    size_t len = strlen(text);
    return len == WEIR_KEY_TEXT_BYTES - 1 && strspn(text, z85_alphabet) == len;
}

static enum weir_status read_line(const char *path, char *line, size_t line_bytes)
{
    int saved_errno = errno;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) {
        int error = errno;
        errno = saved_errno;
        return weir_status_of_errno(error);
    }
    ssize_t len = read(fd, line, line_bytes - 1);
    close(fd);
    errno = saved_errno;
    WEIR_FAIL_IF(len < 0, WEIR_ERR_IO);
    line[len] = '\0';
    line[strcspn(line, " \t\r\n")] = '\0';
    return WEIR_OK;
}

enum weir_status weir_key_read(const char *text_or_path, char ret_key[WEIR_KEY_TEXT_BYTES])
{
    char line[WEIR_KEY_TEXT_BYTES + 8];
    if (weir_key_valid(text_or_path)) {
        memcpy(ret_key, text_or_path, WEIR_KEY_TEXT_BYTES);
        return WEIR_OK;
    }
    WEIR_TRY(read_line(text_or_path, line, sizeof line));
    WEIR_FAIL_IF(!weir_key_valid(line), WEIR_ERR_INVALID);
    memcpy(ret_key, line, WEIR_KEY_TEXT_BYTES);
    return WEIR_OK;
}

const char *weir_key_public_path(const char *secret_path, char buffer[WEIR_KEY_PATH_BYTES])
{
    static const char secret[] = ".secret";
    size_t len = secret_path ? strlen(secret_path) : 0;
    if (len < sizeof secret || strcmp(secret_path + len - (sizeof secret - 1), secret) != 0) {
        return NULL;
    }
    int stem = (int)(len - (sizeof secret - 1));
    if (snprintf(buffer, WEIR_KEY_PATH_BYTES, "%.*s.public", stem, secret_path) >=
            WEIR_KEY_PATH_BYTES ||
        access(buffer, R_OK) != 0) {
        return NULL;
    }
    return buffer;
}
