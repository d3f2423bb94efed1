/* How Weir's libraries in a program reach each other, and the private tables of Weir's libcuda.so.1
 * (cuGetExportTable). */
#pragma once

#include <dlfcn.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* What each table begins with. */
struct weir_table_head {
    size_t table_bytes;
    uint32_t version;
};

/** The program's libcuda.so.1, if it has one. @return NULL: it has none yet @thread any */
static inline void *weir_libcuda_loaded(void)
{
    return dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
}

/**
 * Load another library from the folder of the calling one.
 * @param function  a function of the calling library.
 * @param name      the other's file name.
 * @return NULL: it cannot be loaded
 * @thread any
 */
static inline void *weir_library_beside(uintptr_t function, const char *name)
{
    Dl_info info;
    char path[PATH_MAX];
    WEIR_FAIL_IF(!dladdr((void *)function, &info) || !info.dli_fname, NULL);
    const char *slash = strrchr(info.dli_fname, '/');
    int folder = slash ? (int)(slash - info.dli_fname + 1) : 0;
    int bytes = snprintf(path, sizeof path, "%.*s%s", folder, info.dli_fname, name);
    return bytes < (int)sizeof path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

/**
 * Ask a libcuda.so.1 for a private table of Weir's.
 * @param library  as of the functions above; NULL: none.
 * @param id       the table's UUID.
 * @param bytes    the least size of a table of this version.
 * @return NULL: it has no such table, or one of another version of Weir's
 * @thread any
 */
static inline const void *weir_libcuda_table(void *library, const uint8_t id[16], size_t bytes,
                                             uint32_t version)
{
    int (*get)(const void **ret_table, const void *id);
    const void *found = NULL;
    *(void **)&get = library ? dlsym(library, "cuGetExportTable") : NULL;
    WEIR_FAIL_IF(!get || get(&found, id) != 0 || !found, NULL);
    const struct weir_table_head *head = found;
    return head->table_bytes >= bytes && head->version == version ? found : NULL;
}
