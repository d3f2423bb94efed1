// Texture and surface objects, assertions, device malloc, alloca, virtual calls.
#include <cassert>
#include <cuda_runtime.h>
extern "C" __global__ void textures(cudaTextureObject_t t, cudaSurfaceObject_t s, float4 *out)
{
    out[0] = tex2D<float4>(t, 0.5f, 0.25f);
    out[1] = tex1Dfetch<float4>(t, 3);
    out[2] = tex3D<float4>(t, 1, 2, 3);
    out[3] = tex2DLayered<float4>(t, 1, 2, 3);
    out[4] = texCubemap<float4>(t, 1, 2, 3);
    out[5] = tex2DLod<float4>(t, 1, 2, 3);
    out[6] = tex2Dgather<float4>(t, 1, 2, 0);
    out[7] = surf2Dread<float4>(s, 16, 2);
    surf2Dwrite(out[1], s, 16, 2);
    surf3Dwrite((unsigned char)out[1].x, s, 1, 2, 3);
}
struct Shape {
    __device__ virtual float area() = 0;
    __device__ virtual ~Shape() {}
};
struct Square : Shape {
    float side;
    __device__ Square(float s) : side(s) {}
    __device__ float area() override { return side * side; }
};
struct Circle : Shape {
    float radius;
    __device__ Circle(float r) : radius(r) {}
    __device__ float area() override { return 3 * radius * radius; }
};
extern "C" __global__ void shapes(float *out, int n)
{
    Shape *s = n > 3 ? (Shape *)new Square(2) : (Shape *)new Circle(3);
    assert(n != 77);
    out[0] = s->area();
    delete s;
    int *a = (int *)alloca(n * sizeof(int));
    for (int i = 0; i < n; i++) {
        a[i] = i * n;
    }
    out[1] = a[n / 2];
}
