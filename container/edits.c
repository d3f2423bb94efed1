/*
 * The mounts and variables of a container, and why each is there. One file is mounted in several
 * places: the dynamic loader takes them for one library, since it compares device and inode.
 *
 *   /usr/lib/<triplet>        the loader's default folder in Debian and Ubuntu
 *   /usr/lib64                the same in RHEL and its kin, SUSE and Arch
 *   /usr/local/nvidia/lib64   LD_LIBRARY_PATH of nvidia/cuda images names it; it is searched first
 *
 * libcupti is mounted in the last folder alone: an image may have NVIDIA's libcupti in the others.
 *
 * The names: libcuda.so.1 is what programs and libcudart load; libcuda.so what some programs load
 * and compilers link with -lcuda; libnvidia-ml.so.1 is NVML; libcupti.so what Triton's proton
 * opens.
 *
 * NVIDIA_VISIBLE_DEVICES=void stops NVIDIA's container runtime, where it is a host's default, from
 * adding the real driver because an image says NVIDIA_VISIBLE_DEVICES=all.
 * TRITON_LIBCUDA_PATH: Triton (torch.compile) does not ask the loader but reads ld.so.cache, which
 * only a hook could change; this variable is its own way around that. TRITON_CUPTI_LIB_PATH is the
 * same for libcupti, of which its proton opens a copy of its own otherwise.
 */
#include "container/edits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__aarch64__)
#define MULTIARCH "aarch64-linux-gnu"
#else
#define MULTIARCH "x86_64-linux-gnu"
#endif
#define NVIDIA_FOLDER "/usr/local/nvidia/lib64"

/* A library that lies beside the guest's libcuda.so.1, and the folders where it is mounted. */
static const struct {
    const char *file;
    const char *target;
} libraries[] = {
    {"libcuda.so.1", "/usr/lib/" MULTIARCH "/libcuda.so.1"},
    {"libcuda.so.1", "/usr/lib/" MULTIARCH "/libcuda.so"},
    {"libnvidia-ml.so.1", "/usr/lib/" MULTIARCH "/libnvidia-ml.so.1"},
    {"libcuda.so.1", "/usr/lib64/libcuda.so.1"},
    {"libcuda.so.1", "/usr/lib64/libcuda.so"},
    {"libnvidia-ml.so.1", "/usr/lib64/libnvidia-ml.so.1"},
    {"libcuda.so.1", NVIDIA_FOLDER "/libcuda.so.1"},
    {"libcuda.so.1", NVIDIA_FOLDER "/libcuda.so"},
    {"libnvidia-ml.so.1", NVIDIA_FOLDER "/libnvidia-ml.so.1"},
    {"libcupti.so.12", NVIDIA_FOLDER "/libcupti.so.12"},
    {"libcupti.so.13", NVIDIA_FOLDER "/libcupti.so.13"},
    {"libcupti.so.13", NVIDIA_FOLDER "/libcupti.so"},
};
#define N_LIBRARIES WEIR_COUNT(libraries)
_Static_assert(N_LIBRARIES < WEIR_CONTAINER_MOUNTS_MAX, "room for nvidia-smi, too");

/* Add a mount. Resolve all links first: a bind mount keeps the file that the path led to. */
static enum weir_status add_file(struct weir_container_edits *edits, const char *path,
                                 const char *target)
{
    struct weir_container_mount *mount = &edits->mounts[edits->n_mounts];

    WEIR_FAIL_IF(!realpath(path, mount->source) || access(mount->source, R_OK) != 0,
                 WEIR_ERR_NOT_FOUND);
    mount->target = target;
    edits->n_mounts++;
    return WEIR_OK;
}

static enum weir_status add_libraries(struct weir_container_edits *edits, const char *guest_lib)
{
    for (size_t i = 0; i < N_LIBRARIES; i++) {
        char path[PATH_MAX];
        int n = snprintf(path, sizeof path, "%s/%s", guest_lib, libraries[i].file);

        WEIR_FAIL_IF(n < 0 || (size_t)n >= sizeof path, WEIR_ERR_TOO_BIG);
        WEIR_FAIL_IF(add_file(edits, path, libraries[i].target) != WEIR_OK && i == 0,
                     WEIR_ERR_NOT_FOUND);
    }
    return WEIR_OK;
}

enum weir_status weir_container_edits_common(const char *guest_lib, const char *nvidia_smi,
                                             struct weir_container_edits *ret_edits)
{
    struct weir_container_edits *edits = calloc(1, sizeof *edits);

    WEIR_FAIL_IF(!edits, WEIR_ERR_NO_MEMORY);
    edits->env[edits->n_env++] = "NVIDIA_VISIBLE_DEVICES=void";
    edits->env[edits->n_env++] = "TRITON_LIBCUDA_PATH=" NVIDIA_FOLDER;
    edits->env[edits->n_env++] = "TRITON_CUPTI_LIB_PATH=" NVIDIA_FOLDER;
    enum weir_status status = add_libraries(edits, guest_lib);
    if (status == WEIR_OK) {
        if (nvidia_smi) {
            /* Only if the file exists. */
            (void)!add_file(edits, nvidia_smi, WEIR_CONTAINER_NVIDIA_SMI);
        }
        *ret_edits = *edits;
    }
    free(edits);
    return status;
}

enum weir_status weir_container_folder(const char *run_dir, const char *tenant, char *ret_path,
                                       size_t bytes)
{
    int n = snprintf(ret_path, bytes, "%s/" WEIR_CONTAINER_FOLDER "/%s", run_dir, tenant);

    return n < 0 || (size_t)n >= bytes ? WEIR_ERR_TOO_BIG : WEIR_OK;
}

static enum weir_status only_folder(const char *run_dir, enum weir_status status,
                                    struct weir_container_edits *ret_edits)
{
    WEIR_FAIL_IF(run_dir[0] != '/', WEIR_ERR_INVALID);
    ret_edits->mounts[0].target = WEIR_CONTAINER_RUN_DIR;
    ret_edits->n_mounts = 1;
    ret_edits->n_env = 0;
    return status;
}

enum weir_status weir_container_edits_tenant(const char *run_dir, const char *tenant,
                                             struct weir_container_edits *ret_edits)
{
    char *source = ret_edits->mounts[0].source, resolved[PATH_MAX];
    enum weir_status status = weir_container_folder(run_dir, tenant, source, PATH_MAX);
    struct stat info;

    /* A user's engine may be able to enter the link's target, but not the link's folder. */
    if (status == WEIR_OK && lstat(source, &info) == 0 && S_ISLNK(info.st_mode) &&
        realpath(source, resolved)) {
        memcpy(source, resolved, sizeof resolved);
    }
    return only_folder(run_dir, status, ret_edits);
}

enum weir_status weir_container_edits_new(const char *run_dir,
                                          struct weir_container_edits *ret_edits)
{
    int n = snprintf(ret_edits->mounts[0].source, PATH_MAX, "%s/" WEIR_CONTAINER_SHARES "/none",
                     run_dir);

    return only_folder(run_dir, n < 0 || n >= PATH_MAX ? WEIR_ERR_TOO_BIG : WEIR_OK, ret_edits);
}
