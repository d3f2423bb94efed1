#include "base/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Without this, SIGXFSZ would end a program that has a small RLIMIT_FSIZE. */
static bool set_size(int fd, uint64_t bytes)
{
    static const struct timespec now = {0, 0};
    sigset_t too_large, before, pending;

    sigemptyset(&too_large);
    sigaddset(&too_large, SIGXFSZ);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &too_large, &before);
    bool done = ftruncate(fd, (off_t)bytes) == 0;
    if (!done) {
        int why = errno;

        if (why == EFBIG && !sigismember(&pending, SIGXFSZ)) {
            (void)sigtimedwait(&too_large, NULL, &now);
        }
        errno = why;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return done;
}

int weir_memfd_sealed(const char *name, uint64_t bytes)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd >= 0 && (!set_size(fd, bytes) ||
                    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)) {
        int why = errno;

        close(fd);
        errno = why;
        fd = -1;
    }
    return fd;
}

bool weir_memfd_is_sealed(int fd, uint64_t bytes)
{
    int seals = fcntl(fd, F_GET_SEALS);

    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 &&
           lseek(fd, 0, SEEK_END) == (off_t)bytes; /* fstat() would need a newer libc */
}
