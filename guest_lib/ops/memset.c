#include "guest_lib/module.h"
#include "guest_lib/ops/forward.h"
#include "proto/guest_calls.h"

/* One fill: rows of width elements. */
struct fill {
    CUdeviceptr dst;
    uint64_t pitch;
    uint32_t value;
    uint32_t element_bytes;
    uint64_t width;
    uint64_t height;
};

/* The bytes from the first to the last written one; 0: the fill is invalid. */
static uint64_t extent(const struct fill *fill)
{
    uint64_t row, before;
    if (__builtin_mul_overflow(fill->width, fill->element_bytes, &row) ||
        (fill->height > 1 && fill->pitch < row) ||
        __builtin_mul_overflow(fill->pitch, fill->height - 1, &before) ||
        before > UINT64_MAX - row) {
        return 0;
    }
    return before + row;
}

static CUresult post_fill(const struct fill *fill, const struct weir_mem *mem,
                          struct weir_guest_stream *stream)
{
    struct weir_op_memset_in in = {.dst = mem->device_base + (fill->dst - mem->base),
                                   .pitch = fill->pitch,
                                   .value = fill->value,
                                   .element_bytes = fill->element_bytes,
                                   .width = fill->width,
                                   .height = fill->height,
                                   .s = stream->handle};
    weir_guest_stream_work_begin(stream);
    CUresult result = weir_guest_capturing() ? weir_call_memset(weir_guest_channel(), &in, NULL)
                                             : weir_post_memset(weir_guest_channel(), &in);
    return weir_guest_stream_work_end(stream, result);
}

CUresult weir_guest_memset(CUdeviceptr dst, size_t pitch, uint32_t value, uint32_t element_bytes,
                           size_t width, size_t height, CUstream hStream, bool sync)
{
    const struct fill fill = {dst, pitch, value, element_bytes, width, height};
    struct weir_guest_stream *stream;
    CUresult result = weir_guest_stream_get(hStream, &stream);
    if (result != CUDA_SUCCESS || !width || !height) {
        return result;
    }
    uint64_t bytes = extent(&fill);
    struct weir_mem mem;
    WEIR_TRY(!bytes || dst % element_bytes ? CUDA_ERROR_INVALID_VALUE
                                           : weir_mem_check(dst, bytes, &mem));
    WEIR_FAIL_IF(mem.kind == WEIR_MEM_REGISTERED && mem.flags & CU_MEMHOSTREGISTER_READ_ONLY,
                 CUDA_ERROR_INVALID_VALUE);
    result = weir_managed_before_use(dst, bytes);
    result = result == CUDA_SUCCESS ? post_fill(&fill, &mem, stream) : result;
    if (result == CUDA_SUCCESS && sync && !weir_mem_on_device(&mem)) {
        result = weir_guest_stream_synchronize(stream);
    }
    return result;
}
