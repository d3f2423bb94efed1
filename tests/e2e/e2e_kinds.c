/*
 * A program that holds one thing of a kind which another worker must make again.
 *
 * e2e_kinds KIND   prints "ready", and for each line of stdin does a round: a kernel or a copy
 *                  changes what it holds, all of it is compared, and "round N" printed.
 *
 * Kinds: registered (memory of its own), shared (a file that it has mapped twice), host (memory of
 * the host by cuMemCreate).
 */
#include "tests/cuda/vmm.h"
#include "tests/e2e/kernels.h"

#include <fcntl.h>
#include <sys/mman.h>

enum { PAGE = 4096, WORDS = 3 * PAGE / 4 };

static CUfunction mix;

/* Every word becomes three times itself and one. */
static void triple(CUdeviceptr at, uint32_t n)
{
    uint32_t a = 3, b = 1;
    void *params[] = {&at, &n, &a, &b};

    driver_launch(mix, (n + 127) / 128, 128, NULL, params);
    DRV(cu.StreamSynchronize(NULL));
}

static uint32_t tripled(uint32_t word, long times)
{
    for (long i = 0; i < times; i++) {
        word = word * 3 + 1;
    }
    return word;
}

/* ---------------------------------------------------------------- memory of the host */

static uint32_t *words, *others; /* two mappings of the same pages, or one twice */
static CUdeviceptr on_device;

static void fill_words(void)
{
    for (uint32_t i = 0; i < WORDS; i++) {
        words[i] = i;
    }
}

static void hold_registered(void)
{
    words = others = aligned_alloc(PAGE, WORDS * 4);
    fill_words();
    DRV(cu.MemHostRegister_v2(words, WORDS * 4, CU_MEMHOSTREGISTER_DEVICEMAP));
    DRV(cu.MemHostGetDevicePointer_v2(&on_device, words, 0));
}

static uint32_t *map_file(int fd)
{
    uint32_t *at = mmap(NULL, PAGE + WORDS * 4, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (at == MAP_FAILED) {
        check_die("mmap");
    }
    return at + PAGE / 4;
}

static void hold_shared(void)
{
    char name[64];

    snprintf(name, sizeof(name), "/dev/shm/weir-test-%d", (int)getpid());
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, PAGE + WORDS * 4) != 0) {
        check_die("no file in /dev/shm");
    }
    words = map_file(fd);
    others = map_file(fd);
    close(fd);
    fill_words();
    DRV(cu.MemHostRegister_v2(words, WORDS * 4, CU_MEMHOSTREGISTER_DEVICEMAP));
    DRV(cu.MemHostGetDevicePointer_v2(&on_device, words, 0));
    unlink(name);
}

static void hold_host(void)
{
    CUmemAllocationProp prop = vmm_prop(0);
    CUmemGenericAllocationHandle handle = 0;
    CUmemAccessDesc access = {.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

    prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    DRV(cu.MemCreate(&handle, vmm_unit, &prop, 0));
    DRV(cu.MemAddressReserve(&on_device, vmm_unit, 0, 0, 0));
    vmm_map(on_device, vmm_unit, handle);
    DRV(cu.MemSetAccess(on_device, vmm_unit, &access, 1));
    words = others = (uint32_t *)(uintptr_t)on_device;
    fill_words();
}

static void change_words(long round)
{
    int good = 1;

    triple(on_device, WORDS);
    for (uint32_t i = 0; i < WORDS; i++) {
        good &= others[i] == tripled(i, round + 1);
    }
    check_true(good, "what the kernel has written");
}

/* ---------------------------------------------------------------- rounds */

static const struct kind {
    const char *name;
    void (*hold)(void);
    void (*change)(long round); /* and compare */
} kinds[] = {{"registered", hold_registered, change_words},
             {"shared", hold_shared, change_words},
             {"host", hold_host, change_words}};

static const struct kind *find_kind(const char *name)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(kinds[i].name, name) == 0) {
            return &kinds[i];
        }
    }
    check_die("no such kind: %s", name);
}

int main(int argc, char **argv)
{
    const struct kind *kind = find_kind(argc > 1 ? argv[1] : "");
    CUmodule module;
    char line[64];

    vmm_begin("e2e_kinds");
    DRV(cu.ModuleLoadData(&module, e2e_ptx));
    mix = driver_function(module, "mix");
    kind->hold();
    printf("ready\n");
    for (long round = 0; fgets(line, sizeof(line), stdin); round++) {
        kind->change(round);
        printf("round %ld\n", round);
    }
    return driver_end();
}
