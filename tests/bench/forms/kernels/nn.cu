/* Nearest neighbour: the distance of every record from one place; the search is the host's. */
extern "C" __global__ void nn(const float2 *records, float *distances, int n, float latitude,
                              float longitude)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n) {
        float2 record = records[i];
        float north = latitude - record.x;
        float east = longitude - record.y;

        distances[i] = sqrtf(north * north + east * east);
    }
}
