/*
 * Fluxes of an unstructured finite-volume solver: each thread gathers the four neighbours of a
 * cell and sums the local Lax-Friedrichs fluxes of the Euler equations over its faces.
 */
#define GAMMA 1.4f

struct state {
    float density;
    float3 momentum;
    float energy;
};

static __device__ state load(const float *cells, int n, int i)
{
    state s;

    s.density = cells[i];
    s.momentum = make_float3(cells[n + i], cells[2 * n + i], cells[3 * n + i]);
    s.energy = cells[4 * n + i];
    return s;
}

static __device__ float pressure_of(const state &s, float3 v)
{
    float kinetic = 0.5f * (s.momentum.x * v.x + s.momentum.y * v.y + s.momentum.z * v.z);

    return (GAMMA - 1.0f) * (s.energy - kinetic);
}

/* Adds half of the flux through a face of that normal. @return the fastest wave */
static __device__ float add_half(const state &s, float3 normal, state *sum)
{
    float inverse = 1.0f / s.density;
    float3 v = make_float3(s.momentum.x * inverse, s.momentum.y * inverse, s.momentum.z * inverse);
    float p = pressure_of(s, v);
    float through = v.x * normal.x + v.y * normal.y + v.z * normal.z;

    sum->density += 0.5f * s.density * through;
    sum->momentum.x += 0.5f * (s.momentum.x * through + p * normal.x);
    sum->momentum.y += 0.5f * (s.momentum.y * through + p * normal.y);
    sum->momentum.z += 0.5f * (s.momentum.z * through + p * normal.z);
    sum->energy += 0.5f * (s.energy + p) * through;
    return sqrtf(v.x * v.x + v.y * v.y + v.z * v.z) + sqrtf(GAMMA * p * inverse);
}

extern "C" __global__ void cfd(const float *cells, const int *neighbours, const float *normals,
                               float *fluxes, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i >= n) {
        return;
    }
    state mine = load(cells, n, i);
    state sum = {0.0f, {0.0f, 0.0f, 0.0f}, 0.0f};

    for (int face = 0; face < 4; face++) {
        int other = neighbours[face * n + i];
        float3 normal = make_float3(normals[(face * 3 + 0) * n + i], normals[(face * 3 + 1) * n + i],
                                    normals[(face * 3 + 2) * n + i]);

        if (other == -1) { /* a wall passes nothing but pressure */
            float inverse = 1.0f / mine.density;
            float3 v = make_float3(mine.momentum.x * inverse, mine.momentum.y * inverse,
                                   mine.momentum.z * inverse);
            float p = pressure_of(mine, v);

            sum.momentum.x += p * normal.x;
            sum.momentum.y += p * normal.y;
            sum.momentum.z += p * normal.z;
            continue;
        }
        state theirs = {1.0f, {0.5f, 0.0f, 0.0f}, 2.5f};

        if (other >= 0) {
            theirs = load(cells, n, other);
        }
        float area = sqrtf(normal.x * normal.x + normal.y * normal.y + normal.z * normal.z);
        float wave = fmaxf(add_half(mine, normal, &sum), add_half(theirs, normal, &sum));
        float damp = 0.5f * wave * area;

        sum.density -= damp * (theirs.density - mine.density);
        sum.momentum.x -= damp * (theirs.momentum.x - mine.momentum.x);
        sum.momentum.y -= damp * (theirs.momentum.y - mine.momentum.y);
        sum.momentum.z -= damp * (theirs.momentum.z - mine.momentum.z);
        sum.energy -= damp * (theirs.energy - mine.energy);
    }
    fluxes[i] = sum.density;
    fluxes[n + i] = sum.momentum.x;
    fluxes[2 * n + i] = sum.momentum.y;
    fluxes[3 * n + i] = sum.momentum.z;
    fluxes[4 * n + i] = sum.energy;
}
