/* Preloaded into a host: a machine with 1 GiB of memory, as far as sysconf() says. */
#include <dlfcn.h>
#include <unistd.h>

long sysconf(int name)
{
    static long (*real)(int);

    if (!real) {
        *(void **)&real = dlsym(RTLD_NEXT, "sysconf");
    }
    return name == _SC_PHYS_PAGES ? (1 << 30) / real(_SC_PAGESIZE) : real(name);
}
