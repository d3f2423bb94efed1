/*
 * The block that makes a guest's kernel show an NVDIMM as a dax device.
 *
 * Without it the kernel makes a block device (/dev/pmem0), whose mappings use the guest's page
 * cache and are not shared with the host. Usually the administrator writes the block inside the
 * guest (ndctl create-namespace --mode=devdax); here the host does, before the guest starts.
 * Private to host_backend/supervisor.
 */
#pragma once

#include <stdint.h>

#define WEIR_DAX_INFO_OFFSET 4096u /* offset at which the kernel looks for the block */
#define WEIR_DAX_INFO_BYTES  4096u

/**
 * Make the block.
 *
 * The guest maps pages of 4 KiB, because registered memory has the alignment of the program's own.
 *
 * @param nvdimm_bytes  all of the NVDIMM.
 * @param data_offset   offset at which the dax device begins, a multiple of 2 MiB.
 * @param name          unique among the NVDIMMs of the guest; becomes the block's UUID.
 * @param ret_block     WEIR_DAX_INFO_BYTES, for WEIR_DAX_INFO_OFFSET.
 * @thread any
 * @source Linux, drivers/nvdimm/pfn.h (struct nd_pfn_sb, version 1.4) and nd_sb_checksum()
 */
void weir_dax_info_make(uint64_t nvdimm_bytes, uint64_t data_offset, const char *name,
                        uint8_t *ret_block);
