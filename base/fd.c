#include "base/fd.h"

#include <errno.h>
#include <stdlib.h>

#define ROOM_BYTES (64u << 10)

size_t weir_fd_read(int fd, void *to, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = read(fd, (char *)to + done, bytes - done);
        if (n == 0) {
            errno = 0;
            break;
        }
        if (n < 0 && errno != EINTR) {
            break;
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return done;
}

size_t weir_fd_write(int fd, const void *from, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = write(fd, (const char *)from + done, bytes - done);
        if (n == 0 || (n < 0 && errno != EINTR)) {
            break;
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return done;
}

char *weir_fd_text(int fd, size_t max_bytes, size_t *ret_bytes)
{
    char *text = NULL;
    size_t used = 0;
    for (size_t room = ROOM_BYTES;; room *= 2) {
        char *larger = used <= max_bytes ? realloc(text, room + 1) : NULL;
        if (!larger) {
            errno = used <= max_bytes ? ENOMEM : EFBIG;
            break;
        }
        text = larger;
        used += weir_fd_read(fd, text + used, room - used);
        if (used < room && errno == 0 && used <= max_bytes) {
            text[used] = 0;
            *ret_bytes = used;
            return text;
        }
        if (used < room && errno != 0) {
            break;
        }
    }
    free(text);
    return NULL;
}
