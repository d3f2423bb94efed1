#include "guest_lib/memory.h"
#include "guest_lib/module.h"
#include "proto/guest_calls.h"
#include "proto/guest_hand.h"

/* One fill: rows of width elements. */
struct fill {
    CUdeviceptr dst;
    uint64_t pitch;
    uint32_t value;
    uint32_t element_bytes;
    uint64_t width;
    uint64_t height;
};

/* The bytes from the first to the last that are written, or 0 for nonsense. */
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
    CUresult rc = weir_guest_capturing() ? weir_call_memset(weir_guest_channel(), &in, NULL)
                                         : weir_post_memset(weir_guest_channel(), &in);
    return weir_guest_stream_work_end(stream, rc);
}

/* sync: host memory is filled when the call returns; device memory in stream order, as natively. */
static CUresult memset_on(const struct fill *fill, CUstream hStream, bool sync)
{
    struct weir_guest_stream *stream;
    CUresult rc = weir_guest_stream_get(hStream, &stream);
    if (rc != CUDA_SUCCESS || !fill->width || !fill->height) {
        return rc;
    }
    uint64_t bytes = extent(fill);
    struct weir_mem mem;
    rc = !bytes || fill->dst % fill->element_bytes ? CUDA_ERROR_INVALID_VALUE
                                                   : weir_mem_check(fill->dst, bytes, &mem);
    if (rc == CUDA_SUCCESS && mem.kind == WEIR_MEM_REGISTERED &&
        mem.flags & CU_MEMHOSTREGISTER_READ_ONLY) {
        rc = CUDA_ERROR_INVALID_VALUE;
    }
    if (rc != CUDA_SUCCESS) {
        return rc;
    }
    rc = weir_managed_push();
    rc = rc == CUDA_SUCCESS ? post_fill(fill, &mem, stream) : rc;
    if (rc == CUDA_SUCCESS && sync && !weir_mem_on_device(&mem)) {
        rc = weir_guest_stream_synchronize(stream);
    }
    return rc;
}

static struct fill linear(CUdeviceptr dst, uint32_t value, uint32_t element_bytes, uint64_t n)
{
    return (struct fill){
        .dst = dst, .value = value, .element_bytes = element_bytes, .width = n, .height = 1};
}

static struct fill pitched(CUdeviceptr dst, uint64_t pitch, uint32_t value, uint32_t element_bytes,
                           uint64_t width, uint64_t height)
{
    return (struct fill){.dst = dst,
                         .pitch = pitch,
                         .value = value,
                         .element_bytes = element_bytes,
                         .width = width,
                         .height = height};
}

CUresult weir_guest_cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N,
                                  CUstream default_stream)
{
    struct fill fill = linear(dstDevice, uc, 1, N);
    return memset_on(&fill, default_stream, true);
}

CUresult weir_guest_cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N,
                                   CUstream default_stream)
{
    struct fill fill = linear(dstDevice, us, 2, N);
    return memset_on(&fill, default_stream, true);
}

CUresult weir_guest_cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N,
                                   CUstream default_stream)
{
    struct fill fill = linear(dstDevice, ui, 4, N);
    return memset_on(&fill, default_stream, true);
}

CUresult weir_guest_cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc,
                                    size_t Width, size_t Height, CUstream default_stream)
{
    struct fill fill = pitched(dstDevice, dstPitch, uc, 1, Width, Height);
    return memset_on(&fill, default_stream, true);
}

CUresult weir_guest_cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us,
                                     size_t Width, size_t Height, CUstream default_stream)
{
    struct fill fill = pitched(dstDevice, dstPitch, us, 2, Width, Height);
    return memset_on(&fill, default_stream, true);
}

CUresult weir_guest_cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui,
                                     size_t Width, size_t Height, CUstream default_stream)
{
    struct fill fill = pitched(dstDevice, dstPitch, ui, 4, Width, Height);
    return memset_on(&fill, default_stream, true);
}

CUresult weir_guest_cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N,
                                    CUstream hStream)
{
    struct fill fill = linear(dstDevice, uc, 1, N);
    return memset_on(&fill, hStream, false);
}

CUresult weir_guest_cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N,
                                     CUstream hStream)
{
    struct fill fill = linear(dstDevice, us, 2, N);
    return memset_on(&fill, hStream, false);
}

CUresult weir_guest_cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N,
                                     CUstream hStream)
{
    struct fill fill = linear(dstDevice, ui, 4, N);
    return memset_on(&fill, hStream, false);
}

CUresult weir_guest_cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc,
                                      size_t Width, size_t Height, CUstream hStream)
{
    struct fill fill = pitched(dstDevice, dstPitch, uc, 1, Width, Height);
    return memset_on(&fill, hStream, false);
}

CUresult weir_guest_cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us,
                                       size_t Width, size_t Height, CUstream hStream)
{
    struct fill fill = pitched(dstDevice, dstPitch, us, 2, Width, Height);
    return memset_on(&fill, hStream, false);
}

CUresult weir_guest_cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui,
                                       size_t Width, size_t Height, CUstream hStream)
{
    struct fill fill = pitched(dstDevice, dstPitch, ui, 4, Width, Height);
    return memset_on(&fill, hStream, false);
}
