/*
 * Lets the guest's `weir` start on an old glibc, as the guest's libraries do (base/glibc_pin.h).
 *
 * The start files that a compiler links ask for __libc_start_main, which has a new version since
 * glibc 2.34. They find this function, which calls the old version. On a new glibc both are the
 * same function. An old glibc expects init and fini from its own start files and gets NULLs from
 * new ones, so no constructors run; this program has none.
 */
#if defined(__x86_64__) && defined(__GLIBC__)
__attribute__((visibility("hidden"))) /* else libc's own calls would get it */
                                      int
                                      __libc_start_main(int (*main)(int, char **, char **),
                                                        int argc, char **argv, void (*init)(void),
                                                        void (*fini)(void), void (*rtld_fini)(void),
                                                        void *stack_end);
int old_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void),
                   void (*fini)(void), void (*rtld_fini)(void), void *stack_end);

__asm__(".symver old_start_main,__libc_start_main@GLIBC_2.2.5");

int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*rtld_fini)(void), void *stack_end)
{
    return old_start_main(main, argc, argv, init, fini, rtld_fini, stack_end);
}
#endif
