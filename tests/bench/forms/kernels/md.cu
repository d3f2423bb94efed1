/* Molecular dynamics: the Lennard-Jones force on each atom from its list of neighbours. */
extern "C" __global__ void md(const float4 *places, const int *neighbours, int per_atom,
                              float4 *forces, float cut_squared, float repulsion, float attraction,
                              int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i >= n) {
        return;
    }
    float4 mine = places[i];
    float4 force = make_float4(0.0f, 0.0f, 0.0f, 0.0f);

    for (int k = 0; k < per_atom; k++) {
        float4 other = places[neighbours[k * n + i]];
        float dx = mine.x - other.x;
        float dy = mine.y - other.y;
        float dz = mine.z - other.z;
        float squared = dx * dx + dy * dy + dz * dz;

        if (squared < cut_squared) {
            float inverse = 1.0f / squared;
            float sixth = inverse * inverse * inverse;
            float strength = inverse * sixth * (repulsion * sixth - attraction);

            force.x += dx * strength;
            force.y += dy * strength;
            force.z += dz * strength;
        }
    }
    forces[i] = force;
}
