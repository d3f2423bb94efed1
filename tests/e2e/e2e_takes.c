/*
 * A guest that takes as much as it is given of one thing, and keeps it until stdin ends.
 *
 * e2e_takes exports    descriptors of one piece of memory.
 * e2e_takes pinned     pinned memory, in pieces that are chunks of their own.
 * e2e_takes chunks     device memory without addresses, 2 MiB at a time.
 * e2e_takes globals    modules with a variable of 32 MiB.
 *
 * Prints "KIND N, then ERROR".
 */
#include "tests/cuda/vmm.h"

#define PIECE_BYTES (2u << 20)
#define CHUNK_BYTES (18u << 20) /* more than half of what the library asks for at a time */
#define MANY        100000

static CUmemGenericAllocationHandle exported;

static CUresult take_export(void)
{
    int fd;

    return cu.MemExportToShareableHandle(&fd, exported, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                         0);
}

static CUresult take_pinned(void)
{
    void *memory;

    return cu.MemHostAlloc(&memory, CHUNK_BYTES, 0);
}

static CUresult take_chunk(void)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle handle;

    return cu.MemCreate(&handle, PIECE_BYTES, &prop, 0);
}

static CUresult take_global(void)
{
    static const char text[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                               ".visible .global .align 8 .b8 big[33554432];\n";
    CUmodule module;

    return cu.ModuleLoadData(&module, text);
}

static const struct {
    const char *name;
    CUresult (*take)(void);
} kinds[] = {
    {"exports", take_export},
    {"pinned", take_pinned},
    {"chunks", take_chunk},
    {"globals", take_global},
};

static void take_all(const char *name, CUresult (*take)(void))
{
    CUresult result = CUDA_SUCCESS;
    int n = 0;

    for (; n < MANY && (result = take()) == CUDA_SUCCESS; n++) {
    }
    printf("%s %d, then %d\n", name, n, (int)result);
    while (getchar() != EOF) {
    }
}

int main(int argc, char **argv)
{
    driver_begin("e2e_takes");
    exported = vmm_create(PIECE_BYTES, 1);
    for (size_t i = 0; argc == 2 && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(argv[1], kinds[i].name) == 0) {
            take_all(kinds[i].name, kinds[i].take);
            return driver_end();
        }
    }
    fprintf(stderr, "usage: e2e_takes exports|pinned|chunks|globals\n");
    return 2;
}
