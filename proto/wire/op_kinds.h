/*
 * The values of the fields `kind` and `flags` of operations that Weir defines, not CUDA
 * (proto/api/ops.toml). Both ends include this. The values are on the wire and never change.
 */
#pragma once

/* mem_grant */
enum weir_grant_kind {
    WEIR_GRANT_DEVICE,
    WEIR_GRANT_PINNED,  /* host memory, shared with the guest */
    WEIR_GRANT_MANAGED, /* device memory, and host memory that the guest maps at the same address */
    WEIR_GRANT_KIND_COUNT
};

/* managed_place */
enum weir_managed_place {
    WEIR_MANAGED_ANYWHERE,
    WEIR_MANAGED_ON_HOST,
    WEIR_MANAGED_ON_DEVICE,
    WEIR_MANAGED_PLACE_COUNT
};

/* vmm_import: in place of a device, for memory of the host */
#define WEIR_VMM_HOST UINT32_MAX

/* copy: flags */
#define WEIR_COPY_DST_IN_ARENA 1u /* dst is an offset in the arena */
#define WEIR_COPY_SRC_IN_ARENA 2u /* src is an offset in the arena */

/* kind of a copy's source or destination, in copy_3d and graph copies */
enum weir_side_kind {
    WEIR_SIDE_ADDRESS, /* an address of the device */
    WEIR_SIDE_ARENA,   /* an offset in the arena */
    WEIR_SIDE_ARRAY,   /* the handle of an array */
    WEIR_SIDE_KIND_COUNT
};

/* stream_value */
enum weir_value_kind {
    WEIR_VALUE_WRITE32,
    WEIR_VALUE_WAIT32,
    WEIR_VALUE_WRITE64,
    WEIR_VALUE_WAIT64,
    WEIR_VALUE_KIND_COUNT
};

/* kinds of images, in module_load and library_load */
enum weir_image_kind {
    WEIR_IMAGE_PLAIN,  /* one fatbin, cubin or PTX text */
    WEIR_IMAGE_BUNDLE, /* several fatbins to be device-linked (proto/wire/bundle.h) */
    WEIR_IMAGE_KIND_COUNT
};

/* most bytes of a record of host_func_data, host_func_write; as in ops.toml */
#define WEIR_HOST_FUNC_DATA_BYTES 131072u

/* launch: flags */
#define WEIR_LAUNCH_COOPERATIVE 1u

/* tensor_map */
enum weir_tensor_map_kind {
    WEIR_TENSOR_MAP_TILED,
    WEIR_TENSOR_MAP_IM2COL,
    WEIR_TENSOR_MAP_IM2COL_WIDE,
    WEIR_TENSOR_MAP_ADDRESS, /* do not make a map, but replace the address in an old one */
};
