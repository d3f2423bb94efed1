/* Loads libzmq into the guest's process, only when a remote host is wanted. */
#include "base/log.h"
#include "proto/transport/zmq_wire.h"
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct weir_zmq_api loaded;
static bool is_loaded;
static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER; /* guards both variables */

/* weir-remote/libzmq.so.5 in the folder that this code was loaded from. */
static void *open_shipped(void)
{
    Dl_info info;
    char path[PATH_MAX];
    WEIR_FAIL_IF(!dladdr(&loaded, &info) || !info.dli_fname, NULL);
    const char *slash = strrchr(info.dli_fname, '/');
    int folder_len = slash ? (int)(slash - info.dli_fname) : 1;
    int len = snprintf(path, sizeof path, "%.*s/weir-remote/libzmq.so.5", folder_len,
                       slash ? info.dli_fname : ".");
    return len > 0 && (size_t)len < sizeof path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

static void *open_library(void)
{
    const char *wanted = getenv("WEIR_LIBZMQ");
    if (wanted && *wanted) {
        /* If a user names a library, no other one is tried. */
        return dlopen(wanted, RTLD_NOW | RTLD_LOCAL);
    }
    void *library = open_shipped();
    return library ? library : dlopen("libzmq.so.5", RTLD_NOW | RTLD_LOCAL);
}

static bool fill(void *library)
{
    struct weir_zmq_api api;
    bool complete = true;
#define WEIR_ZMQ_FUNCTION(type, name, arguments)                                                   \
    *(void **)(void *)&api.name = dlsym(library, #name);                                           \
    complete = complete && api.name;
#include "proto/transport/zmq_functions.def"
#undef WEIR_ZMQ_FUNCTION
    if (complete) {
        loaded = api;
    }
    return complete;
}

const struct weir_zmq_api *weir_zmq_load(void)
{
    int saved_errno = errno;
    pthread_mutex_lock(&load_lock);
    if (!is_loaded) {
        void *library = open_library();
        is_loaded = library && fill(library);
        if (!is_loaded) {
            const char *why = library ? "functions missing" : dlerror();
            weir_log_error("zmq: no usable libzmq.so.5 reason=\"%s\"", why ? why : "unknown");
            if (library) {
                dlclose(library);
            }
        }
    }
    bool usable = is_loaded;
    pthread_mutex_unlock(&load_lock);
    errno = saved_errno;
    return usable ? &loaded : NULL;
}
