/*
 * Finds Weir's libraries: where the environment says, installed beside the program
 * (PREFIX/bin/weir, PREFIX/lib/weir/...), in one folder with it (a bundle), or in the build tree.
 */
#include "base/status.h"
#include "tools/command.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool program_folder(char *ret_path, size_t bytes)
{
    ssize_t n = readlink("/proc/self/exe", ret_path, bytes - 1);
    WEIR_FAIL_IF(n <= 0, false);
    ret_path[n] = '\0';
    char *slash = strrchr(ret_path, '/');
    WEIR_FAIL_IF(!slash, false);
    *slash = '\0';
    return true;
}

/* Find the first of the folders below the program's that holds file. */
static bool find(const char *file, const char *const *folders, char *ret_folder, size_t bytes)
{
    char base[PATH_MAX];
    WEIR_FAIL_IF(!program_folder(base, sizeof(base)), false);
    for (; *folders; folders++) {
        char path[PATH_MAX + 512];
        snprintf(path, sizeof(path), "%s/%s/%s", base, *folders, file);
        if (access(path, R_OK) == 0) {
            char joined[PATH_MAX + 256];
            snprintf(joined, sizeof(joined), "%s/%s", base, *folders);
            char resolved[PATH_MAX];
            const char *result = realpath(joined, resolved) ? resolved : joined;
            return snprintf(ret_folder, bytes, "%s", result) < (int)bytes;
        }
    }
    return false;
}

bool weir_path_guest_lib(char *ret_path, size_t bytes)
{
    static const char *const folders[] = {"../" WEIR_LIBDIR "/weir/guest", "../lib/weir/guest",
                                          "guest", "../guest_lib/lib", NULL};
    const char *named = getenv("WEIR_LIB_DIR");
    if (named && *named) {
        return snprintf(ret_path, bytes, "%s", named) < (int)bytes;
    }
    return find("libcuda.so.1", folders, ret_path, bytes);
}

bool weir_path_softgpu(char *ret_path, size_t bytes)
{
    static const char *const folders[] = {
        "../" WEIR_LIBDIR "/weir", "../lib/weir", ".", "../softgpu", "../softgpu/lib", NULL};
    static const char file[] = "libweir-softgpu.so";
    char folder[PATH_MAX];
    WEIR_FAIL_IF(!find(file, folders, folder, sizeof(folder)), false);
    return snprintf(ret_path, bytes, "%s/%s", folder, file) < (int)bytes;
}

/* Find a helper program that users do not run. @param folder its folder in the build tree. */
static bool find_program(const char *file, const char *folder, char *ret_path, size_t bytes)
{
    const char *const folders[] = {"../" WEIR_LIBDIR "/weir", "../lib/weir", ".", folder, NULL};
    char found[PATH_MAX];
    return find(file, folders, found, sizeof(found)) &&
           snprintf(ret_path, bytes, "%s/%s", found, file) < (int)bytes;
}

bool weir_path_libvirt(char *ret_path, size_t bytes)
{
    static const char file[] = "weir-libvirt";
    char base[PATH_MAX];
    return find_program(file, "../container/libvirt", ret_path, bytes) ||
           (program_folder(base, sizeof(base)) &&
            snprintf(ret_path, bytes, "%s/../" WEIR_LIBDIR "/weir/%s", base, file) < (int)bytes);
}

bool weir_path_oci_hook(char *ret_path, size_t bytes)
{
    static const char file[] = "weir-oci-hook";
    const char *named = getenv("WEIR_LIB_DIR");

    /* The host's image keeps both in a folder that has the same path on the machine. */
    return (named && *named && snprintf(ret_path, bytes, "%s/%s", named, file) < (int)bytes &&
            access(ret_path, X_OK) == 0) ||
           find_program(file, "../container/oci", ret_path, bytes);
}
