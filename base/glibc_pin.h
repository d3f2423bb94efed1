/*
 * Bind to the oldest version of those glibc functions that glibc 2.29 .. 2.34 gave a new version.
 *
 * Built on a new system, the guest library would otherwise ask for GLIBC_2.34 and not load on RHEL
 * 8 or Debian 11. The functions themselves did not change: libpthread and libdl were merged into
 * libc, and merging gave their symbols a new default version. Old systems still have them in
 * libpthread.so.0 and libdl.so.2, so a library that is built with this file must list those two as
 * needed.
 *
 * Force-included (gcc -include) into everything that links weir_base, except under sanitizers,
 * whose interceptors a versioned reference would bypass. A pin of a function that a file does not
 * use leaves no trace. Functions without an old version (stat, fstat: 2.33; gettid: 2.30;
 * arc4random: 2.36) must not be used in code that the guest library links;
 * tests/unit/base/test_symbols checks that.
 */
#pragma once

#include <features.h>

/* glibc 2.38 renames strtol and similar functions for C23's binary literals; no code here wants
 * those. */
#undef __GLIBC_USE_C2X_STRTOL
#define __GLIBC_USE_C2X_STRTOL 0
#undef __GLIBC_USE_C23_STRTOL
#define __GLIBC_USE_C23_STRTOL 0

#if defined(__x86_64__) && defined(__GLIBC__)
#define WEIR_PIN(function, version) __asm__(".symver " #function "," #function "@GLIBC_" #version)

WEIR_PIN(dladdr, 2.2.5);
WEIR_PIN(dlclose, 2.2.5);
WEIR_PIN(dlerror, 2.2.5);
WEIR_PIN(dlopen, 2.2.5);
WEIR_PIN(dlsym, 2.2.5);
WEIR_PIN(dlvsym, 2.2.5);
WEIR_PIN(pthread_attr_setstacksize, 2.2.5);
WEIR_PIN(pthread_barrier_destroy, 2.2.5);
WEIR_PIN(pthread_barrier_init, 2.2.5);
WEIR_PIN(pthread_barrier_wait, 2.2.5);
WEIR_PIN(pthread_condattr_setclock, 2.3.3);
WEIR_PIN(pthread_condattr_setpshared, 2.2.5);
WEIR_PIN(pthread_create, 2.2.5);
WEIR_PIN(pthread_detach, 2.2.5);
WEIR_PIN(pthread_getaffinity_np, 2.3.4);
WEIR_PIN(pthread_getspecific, 2.2.5);
WEIR_PIN(pthread_join, 2.2.5);
WEIR_PIN(pthread_key_create, 2.2.5);
WEIR_PIN(pthread_key_delete, 2.2.5);
WEIR_PIN(pthread_kill, 2.2.5);
WEIR_PIN(pthread_mutex_timedlock, 2.2.5);
WEIR_PIN(pthread_mutex_trylock, 2.2.5);
WEIR_PIN(pthread_mutexattr_destroy, 2.2.5);
WEIR_PIN(pthread_mutexattr_init, 2.2.5);
WEIR_PIN(pthread_mutexattr_setpshared, 2.2.5);
WEIR_PIN(pthread_mutexattr_settype, 2.2.5);
WEIR_PIN(pthread_once, 2.2.5);
WEIR_PIN(pthread_rwlock_destroy, 2.2.5);
WEIR_PIN(pthread_rwlock_init, 2.2.5);
WEIR_PIN(pthread_rwlock_rdlock, 2.2.5);
WEIR_PIN(pthread_rwlock_tryrdlock, 2.2.5);
WEIR_PIN(pthread_rwlock_trywrlock, 2.2.5);
WEIR_PIN(pthread_rwlock_unlock, 2.2.5);
WEIR_PIN(pthread_rwlock_wrlock, 2.2.5);
WEIR_PIN(pthread_setaffinity_np, 2.3.4);
WEIR_PIN(pthread_setname_np, 2.12);
WEIR_PIN(pthread_setspecific, 2.2.5);
WEIR_PIN(pthread_sigmask, 2.2.5);
WEIR_PIN(sem_destroy, 2.2.5);
WEIR_PIN(sem_init, 2.2.5);
WEIR_PIN(sem_post, 2.2.5);
WEIR_PIN(sem_timedwait, 2.2.5);
WEIR_PIN(sem_trywait, 2.2.5);
WEIR_PIN(sem_wait, 2.2.5);
#undef WEIR_PIN
#endif
