/*
 * Growth in place, as PyTorch's expandable segments do it: several reservations as large as the
 * whole device and an eighth, memory mapped piece by piece at their beginning, some pieces taken
 * out and put back, and a burst of hundreds of small mappings.
 */
#include "vmm.h"

enum { SEGMENTS = 4, PIECES = 12, SMALL = 200 };

static CUmemGenericAllocationHandle pieces[SEGMENTS][PIECES], small[SMALL];
static CUdeviceptr small_at[SMALL];

static void grow(CUdeviceptr base, int segment, size_t piece)
{
    for (int i = 0; i < PIECES; i++) {
        CUdeviceptr at = base + (size_t)i * piece;

        pieces[segment][i] = vmm_create(piece, 0);
        vmm_map(at, piece, pieces[segment][i]);
        DRV(cu.MemsetD32Async(at, (unsigned)(segment * 100 + i), piece / 4, NULL));
    }
}

static int contents_ok(CUdeviceptr base, int segment, size_t piece)
{
    int good = 1;

    for (int i = 0; i < PIECES; i++) {
        CUdeviceptr at = base + (size_t)i * piece;
        unsigned want = (unsigned)(segment * 100 + i);

        good &= vmm_word(at) == want && vmm_word(at + piece - 4) == want;
    }
    return good;
}

static void burst(void)
{
    size_t half = vmm_unit / 2;
    int good = 1;

    for (int i = 0; i < SMALL; i++) {
        small[i] = vmm_create(vmm_unit, 0);
        DRV(cu.MemAddressReserve(&small_at[i], vmm_unit, 0, 0, 0));
        vmm_map(small_at[i], vmm_unit, small[i]);
        DRV(cu.MemRelease(small[i]));
        DRV(cu.MemsetD32Async(small_at[i] + half, (unsigned)i, 16, NULL));
    }
    for (int i = 0; i < SMALL; i++) {
        good &= vmm_word(small_at[i] + half) == (unsigned)i;
    }
    check_true(good, "hundreds of small ones, each with its own contents");
    for (int i = 0; i < SMALL; i++) {
        DRV(cu.MemUnmap(small_at[i], vmm_unit));
        DRV(cu.MemAddressFree(small_at[i], vmm_unit));
    }
}

int main(void)
{
    CUdeviceptr base[SEGMENTS];
    size_t total, size;

    vmm_begin("drv_vmm_grow");
    DRV(cu.DeviceTotalMem_v2(&total, 0));
    size = (total + total / 8) / vmm_unit * vmm_unit;
    for (int s = 0; s < SEGMENTS; s++) {
        DRV(cu.MemAddressReserve(&base[s], size, 0, 0, 0));
        for (int before = 0; before < s; before++) {
            check_true(base[s] >= base[before] + size || base[before] >= base[s] + size,
                       "a place of its own");
        }
    }
    for (int s = 0; s < SEGMENTS; s++) {
        grow(base[s], s, vmm_unit);
    }
    for (int s = 0; s < SEGMENTS; s++) {
        check_true(contents_ok(base[s], s, vmm_unit), "every piece has its contents");
    }
    /* Pieces in the middle go, and new ones come in their place. */
    for (int i = 3; i < 6; i++) {
        CUdeviceptr at = base[1] + (size_t)i * vmm_unit;

        DRV(cu.StreamSynchronize(NULL));
        DRV(cu.MemUnmap(at, vmm_unit));
        DRV(cu.MemRelease(pieces[1][i]));
        pieces[1][i] = vmm_create(vmm_unit, 0);
        vmm_map(at, vmm_unit, pieces[1][i]);
        DRV(cu.MemsetD32_v2(at, 100u + (unsigned)i, vmm_unit / 4));
    }
    check_true(contents_ok(base[1], 1, vmm_unit), "new pieces in the middle");
    burst();
    for (int s = 0; s < SEGMENTS; s++) {
        for (int i = 0; i < PIECES; i++) {
            DRV(cu.MemUnmap(base[s] + (size_t)i * vmm_unit, vmm_unit));
            DRV(cu.MemRelease(pieces[s][i]));
        }
        DRV(cu.MemAddressFree(base[s], size));
    }
    return driver_end();
}
