/* Batches of copies, straight and in boxes, and batches of hints about managed memory. */
#include "check_driver.h"

enum { PIECES = 8, PIECE = 4096, W = 24, H = 10, D = 3 };

static unsigned char source[PIECES][PIECE], back[PIECES][PIECE];
static unsigned char box[D][H][W], box_back[D][H][W];
static float texels[H][W], texels_back[H][W];

static void straight(CUstream stream, CUdeviceptr device)
{
    CUdeviceptr dsts[PIECES], srcs[PIECES];
    size_t sizes[PIECES], first = 0;
    CUmemcpyAttributes attributes;

    memset(&attributes, 0, sizeof(attributes));
    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    for (int i = 0; i < PIECES; i++) {
        memset(source[i], 17 * i + 3, PIECE);
        /* in the device, the other way round and with gaps */
        dsts[i] = device + (CUdeviceptr)(PIECES - 1 - i) * 2 * PIECE;
        srcs[i] = (CUdeviceptr)(size_t)source[i];
        sizes[i] = PIECE - (size_t)i;
    }
    DRV(cu.MemcpyBatchAsync_v2(dsts, srcs, sizes, PIECES, &attributes, &first, 1, stream));
    for (int i = 0; i < PIECES; i++) {
        srcs[i] = dsts[i];
        dsts[i] = (CUdeviceptr)(size_t)back[i];
    }
    DRV(cu.MemcpyBatchAsync_v2(dsts, srcs, sizes, PIECES, &attributes, &first, 1, stream));
    DRV(cu.StreamSynchronize(stream));
    int good = 1;
    for (int i = 0; i < PIECES; i++) {
        good &= memcmp(source[i], back[i], sizes[i]) == 0;
    }
    check_true(good, "a batch of copies there and back");
    check_true(cu.MemcpyBatchAsync_v2(dsts, srcs, sizes, 0, &attributes, &first, 1, stream) ==
                   CUDA_ERROR_INVALID_VALUE,
               "a batch of none");
}

static CUmemcpy3DOperand pointer(void *address, CUdeviceptr device, size_t row, size_t rows)
{
    CUmemcpy3DOperand operand;

    memset(&operand, 0, sizeof(operand));
    operand.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    operand.op.ptr.ptr = address ? (CUdeviceptr)(size_t)address : device;
    operand.op.ptr.rowLength = row;
    operand.op.ptr.layerHeight = rows;
    return operand;
}

static void boxes(CUstream stream, CUdeviceptr device)
{
    CUDA_MEMCPY3D_BATCH_OP op;

    for (size_t i = 0; i < sizeof(box); i++) {
        ((unsigned char *)box)[i] = (unsigned char)(i * 7);
    }
    memset(&op, 0, sizeof(op));
    op.extent.width = W;
    op.extent.height = H;
    op.extent.depth = D;
    op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    op.src = pointer(box, 0, 0, 0);
    op.dst = pointer(NULL, device, 64, 16);
    DRV(cu.Memcpy3DBatchAsync_v2(1, &op, 0, stream));
    op.src = pointer(NULL, device, 64, 16);
    op.dst = pointer(box_back, 0, W, H);
    DRV(cu.Memcpy3DBatchAsync_v2(1, &op, 0, stream));
    DRV(cu.StreamSynchronize(stream));
    check_true(memcmp(box, box_back, sizeof(box)) == 0, "boxes with gaps and packed");
}

static void arrays(CUstream stream)
{
    CUDA_ARRAY3D_DESCRIPTOR_v2 shape;
    CUDA_MEMCPY3D_BATCH_OP op;
    CUarray array;

    memset(&shape, 0, sizeof(shape));
    shape.Width = W;
    shape.Height = H;
    shape.Format = CU_AD_FORMAT_FLOAT;
    shape.NumChannels = 1;
    DRV(cu.Array3DCreate_v2(&array, &shape));
    for (int i = 0; i < W * H; i++) {
        texels[i / W][i % W] = (float)i;
    }
    memset(&op, 0, sizeof(op));
    op.extent.width = W;
    op.extent.height = H;
    op.extent.depth = 1;
    op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    op.src = pointer(texels, 0, 0, 0);
    op.dst.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
    op.dst.op.array.array = array;
    DRV(cu.Memcpy3DBatchAsync_v2(1, &op, 0, stream));
    op.src = op.dst;
    op.dst = pointer(texels_back, 0, 0, 0);
    DRV(cu.Memcpy3DBatchAsync_v2(1, &op, 0, stream));
    DRV(cu.StreamSynchronize(stream));
    check_true(memcmp(texels, texels_back, sizeof(texels)) == 0, "an array of floats");
    DRV(cu.ArrayDestroy(array));
}

int main(void)
{
    CUstream stream;
    CUdeviceptr device;

    driver_begin("drv_batches");
    DRV(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DRV(cu.MemAlloc_v2(&device, 1 << 20));
    straight(stream, device);
    boxes(stream, device);
    arrays(stream);
    DRV(cu.MemFree_v2(device));
    DRV(cu.StreamDestroy_v2(stream));
    return driver_end();
}
