/* Texture objects: linear memory, 2D arrays, point and linear filtering, addressing modes. */
#include "check.h"

enum { W = 64, H = 16, SAMPLES = 64 };

__global__ static void fetch_linear(cudaTextureObject_t t, float *out)
{
    out[threadIdx.x] = tex1Dfetch<float>(t, (int)threadIdx.x);
}

__global__ static void sample_2d(cudaTextureObject_t t, const float2 *at, float *out)
{
    float2 p = at[threadIdx.x];
    out[threadIdx.x] = tex2D<float>(t, p.x, p.y);
}

__global__ static void sample_bytes(cudaTextureObject_t t, const float2 *at, uchar4 *out)
{
    float2 p = at[threadIdx.x];
    out[threadIdx.x] = tex2D<uchar4>(t, p.x, p.y);
}

static cudaTextureObject_t object_for(cudaArray_t array, cudaTextureAddressMode mode,
                                      cudaTextureFilterMode filter, int normalized,
                                      cudaTextureReadMode read)
{
    cudaResourceDesc resource;
    cudaTextureDesc texture;
    cudaTextureObject_t object = 0;

    memset(&resource, 0, sizeof(resource));
    memset(&texture, 0, sizeof(texture));
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    texture.addressMode[0] = texture.addressMode[1] = mode;
    texture.filterMode = filter;
    texture.readMode = read;
    texture.normalizedCoords = normalized;
    RT(cudaCreateTextureObject(&object, &resource, &texture, NULL));
    return object;
}

static float field(int x, int y)
{
    return (float)(x * 4 + y * 256);
}

static int clamp(int v, int size)
{
    return v < 0 ? 0 : v >= size ? size - 1 : v;
}

/* The filter unit has its own precision, so a linear filter gets a tolerance. */
static void run(cudaTextureObject_t object, const float2 *points, const float *want,
                double tolerance, const char *label)
{
    float got[SAMPLES];
    double reals[SAMPLES], wanted[SAMPLES];

    float2 *device_points = to_device(points, SAMPLES);
    float *out = device_new<float>(SAMPLES);

    sample_2d<<<1, SAMPLES>>>(object, device_points, out);
    check_launch();
    to_host(got, out, SAMPLES);
    for (int i = 0; i < SAMPLES; i++) {
        reals[i] = got[i];
        wanted[i] = want[i];
    }
    check_close(reals, wanted, SAMPLES, tolerance, label);
    RT(cudaDestroyTextureObject(object));
}

static void arrays(void)
{
    float host[H][W], want[SAMPLES];
    float2 at[SAMPLES];
    cudaArray_t array;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();

    for (int y = 0; y < H; y++) {
        for (int x = 0; x < W; x++) {
            host[y][x] = field(x, y);
        }
    }
    RT(cudaMallocArray(&array, &format, W, H));
    RT(cudaMemcpy2DToArray(array, 0, 0, host, sizeof(host[0]), sizeof(host[0]), H,
                           cudaMemcpyHostToDevice));
    for (int i = 0; i < SAMPLES; i++) {
        int x = i * 3 - 40, y = i - 10;
        at[i] = make_float2(x + 0.5f, y + 0.5f);
        want[i] = field(clamp(x, W), clamp(y, H));
    }
    run(object_for(array, cudaAddressModeClamp, cudaFilterModePoint, 0, cudaReadModeElementType),
        at, want, 0, "point filter, clamped");
    for (int i = 0; i < SAMPLES; i++) {
        int x = i * 3 - 40, y = i - 10;
        want[i] = x < 0 || x >= W || y < 0 || y >= H ? 0 : field(x, y);
    }
    run(object_for(array, cudaAddressModeBorder, cudaFilterModePoint, 0, cudaReadModeElementType),
        at, want, 0, "point filter, border");
    for (int i = 0; i < SAMPLES; i++) {
        at[i] = make_float2(1.0f + i * 0.75f, 1.0f + (i % 13) * 0.25f);
        want[i] = (at[i].x - 0.5f) * 4 + (at[i].y - 0.5f) * 256;
    }
    run(object_for(array, cudaAddressModeClamp, cudaFilterModeLinear, 0, cudaReadModeElementType),
        at, want, 1e-4, "linear filter");
    for (int i = 0; i < SAMPLES; i++) {
        at[i] = make_float2((i + 0.5f) / W + (float)(i % 5 - 2), (i % H + 0.5f) / H);
        want[i] = field(i % W, i % H);
    }
    run(object_for(array, cudaAddressModeWrap, cudaFilterModePoint, 1, cudaReadModeElementType), at,
        want, 0, "normalized coordinates, wrapped");
    for (int i = 0; i < SAMPLES; i++) {
        at[i] = make_float2((i + 0.5f) / W, 1.0f + (i % H + 0.5f) / H);
        want[i] = field(i % W, H - 1 - i % H);
    }
    run(object_for(array, cudaAddressModeMirror, cudaFilterModePoint, 1, cudaReadModeElementType),
        at, want, 0, "normalized coordinates, mirrored");
    RT(cudaFreeArray(array));
}

static void byte_pixels(void)
{
    uchar4 host[H][W], want[SAMPLES];
    float2 at[SAMPLES];
    cudaArray_t array;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<uchar4>(), seen;
    cudaExtent extent;
    unsigned flags;

    for (int i = 0; i < W * H; i++) {
        host[i / W][i % W] =
            make_uchar4((unsigned char)i, (unsigned char)(i / 3), 7, (unsigned char)(255 - i));
    }
    RT(cudaMallocArray(&array, &format, W, H));
    RT(cudaArrayGetInfo(&seen, &extent, &flags, array));
    check_true(seen.x == 8 && seen.w == 8 && seen.f == cudaChannelFormatKindUnsigned &&
                   extent.width == W && extent.height == H,
               "array description");
    RT(cudaMemcpy2DToArray(array, 0, 0, host, sizeof(host[0]), sizeof(host[0]), H,
                           cudaMemcpyHostToDevice));
    for (int i = 0; i < SAMPLES; i++) {
        at[i] = make_float2((float)(i * 7 % W), (float)(i % H));
        want[i] = host[i % H][i * 7 % W];
    }
    cudaTextureObject_t object =
        object_for(array, cudaAddressModeClamp, cudaFilterModePoint, 0, cudaReadModeElementType);
    float2 *device_at = to_device(at, SAMPLES);
    uchar4 *out = device_new<uchar4>(SAMPLES);
    sample_bytes<<<1, SAMPLES>>>(object, device_at, out);
    check_launch();
    check_device(out, want, SAMPLES, "four bytes a pixel");
    RT(cudaDestroyTextureObject(object));
    RT(cudaFreeArray(array));
}

int main(void)
{
    float host[SAMPLES];
    cudaResourceDesc resource;
    cudaTextureDesc texture;
    cudaTextureObject_t object;

    check_begin("texture_objects");
    for (int i = 0; i < SAMPLES; i++) {
        host[i] = i * 1.5f;
    }
    float *memory = to_device(host, SAMPLES), *out = device_new<float>(SAMPLES);
    memset(&resource, 0, sizeof(resource));
    memset(&texture, 0, sizeof(texture));
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = memory;
    resource.res.linear.desc = cudaCreateChannelDesc<float>();
    resource.res.linear.sizeInBytes = sizeof(host);
    texture.readMode = cudaReadModeElementType;
    RT(cudaCreateTextureObject(&object, &resource, &texture, NULL));
    fetch_linear<<<1, SAMPLES>>>(object, out);
    check_launch();
    check_device(out, host, SAMPLES, "linear memory");
    RT(cudaDestroyTextureObject(object));
    arrays();
    byte_pixels();
    return check_end();
}
