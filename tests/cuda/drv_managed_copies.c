/*
 * Copies between managed memory and each other kind, in all directions, after the processor and
 * after the GPU have changed it; and what is said of pointers to it.
 */
#include "check_driver.h"

#define WORDS 100000u
#define BYTES ((size_t)WORDS * 4)

enum kind { MANAGED, OTHER_MANAGED, VARIABLE, DEVICE, PINNED, HEAP, KINDS };

static const char *const names[KINDS] = {"managed",       "other managed", "a variable",
                                         "device memory", "pinned memory", "the heap"};
static CUdeviceptr at[KINDS];

static const char image[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                            ".visible .global .attribute(.managed) .align 4 .u32 table[100000];\n";

static int is_managed(enum kind kind)
{
    return kind <= VARIABLE;
}

static uint32_t *words(enum kind kind)
{
    return (uint32_t *)(uintptr_t)at[kind];
}

/* The processor fills it, or, for the device's, a copy does. */
static void fill(enum kind kind, uint32_t first)
{
    uint32_t *heap = words(HEAP), *into = kind == DEVICE ? heap : words(kind);

    for (uint32_t i = 0; i < WORDS; i++) {
        into[i] = first + i;
    }
    if (kind == DEVICE) {
        DRV(cu.MemcpyHtoD_v2(at[DEVICE], heap, BYTES));
    }
}

/* Word i is first + i; but the words from..to, which are `set`. */
static int holds(enum kind kind, uint32_t first, uint32_t from, uint32_t to, uint32_t set)
{
    const uint32_t *found = words(kind);
    static uint32_t copy[WORDS];

    if (kind == DEVICE) {
        DRV(cu.MemcpyDtoH_v2(copy, at[DEVICE], BYTES));
        found = copy;
    }
    for (uint32_t i = 0; i < WORDS; i++) {
        uint32_t want = i >= from && i < to ? set : first + i;

        if (found[i] != want) {
            printf("word %u of %s is %u, not %u\n", i, names[kind], found[i], want);
            return 0;
        }
    }
    return 1;
}

static void copies(enum kind from, enum kind to)
{
    uint32_t seed = 1000u * ((uint32_t)from * KINDS + (uint32_t)to);
    char label[96];
    int good;

    fill(to, 7);
    fill(from, seed);
    DRV(cu.Memcpy(at[to], at[from], BYTES));
    DRV(cu.CtxSynchronize()); /* such a copy may be under way when the call returns */
    good = holds(to, seed, 0, 0, 0) && holds(from, seed, 0, 0, 0);
    /* The GPU changes a part; a copy of a part whose ends lie between pages follows it. */
    if (from != HEAP) {
        DRV(cu.MemsetD32Async(at[from] + 8000, 5, 20000, NULL));
        DRV(CU(MemcpyAsync)(at[to] + 4000, at[from] + 4000, BYTES - 8000, NULL));
        DRV(cu.CtxSynchronize());
        good &= holds(to, seed, 2000, 22000, 5) && holds(from, seed, 2000, 22000, 5);
    }
    snprintf(label, sizeof label, "from %s to %s", names[from], names[to]);
    check_true(good, label);
}

static void of_pointers(enum kind kind)
{
    CUdeviceptr inside = at[kind] + 70000, device = 0, host = 0;
    unsigned type = 99, managed = 0;
    int ordinal = -1;
    CUpointer_attribute which[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
        CU_POINTER_ATTRIBUTE_HOST_POINTER, CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *places[] = {&type, &device, &host, &managed, &ordinal};

    DRV(cu.PointerGetAttributes(5, which, places, inside));
    check_int(type, CU_MEMORYTYPE_DEVICE, names[kind]);
    check_true(device == inside && host == inside, "one address for both");
    check_true((managed & 0xff) == 1 && ordinal == 0, "managed, of this device");
    type = 99;
    DRV(cu.PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at[kind]));
    check_int(type, CU_MEMORYTYPE_DEVICE, "its first byte");
}

int main(void)
{
    CUmodule module;
    size_t bytes;
    void *pinned;

    driver_begin("drv_managed_copies");
    if (CU(MemAllocManaged)(&at[MANAGED], BYTES, CU_MEM_ATTACH_GLOBAL) != CUDA_SUCCESS) {
        check_skip("no managed memory"); /* over a network */
    }
    DRV(CU(MemAllocManaged)(&at[OTHER_MANAGED], BYTES, CU_MEM_ATTACH_GLOBAL));
    DRV(cu.ModuleLoadData(&module, image));
    DRV(cu.ModuleGetGlobal_v2(&at[VARIABLE], &bytes, module, "table"));
    DRV(cu.MemAlloc_v2(&at[DEVICE], BYTES));
    DRV(cu.MemHostAlloc(&pinned, BYTES, 0));
    at[PINNED] = (uintptr_t)pinned;
    at[HEAP] = (uintptr_t)malloc(BYTES);
    for (enum kind kind = 0; kind < KINDS; kind++) {
        for (enum kind other = 0; other < KINDS; other++) {
            if (kind != other && (is_managed(kind) || is_managed(other))) {
                copies(kind, other);
            }
        }
        if (is_managed(kind)) {
            of_pointers(kind);
        }
    }
    free(words(HEAP));
    DRV(cu.MemFreeHost(pinned));
    DRV(cu.ModuleUnload(module));
    for (enum kind kind = 0; kind <= DEVICE; kind++) {
        DRV(kind == VARIABLE ? CUDA_SUCCESS : cu.MemFree_v2(at[kind]));
    }
    return driver_end();
}
