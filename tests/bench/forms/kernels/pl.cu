/*
 * Likelihood of the particles of a particle filter: each compares the pixels of a disc around its
 * place with a background of 100 and an object of 228; then the block sums its weights.
 */
#define WIDTH 256 /* threads of a block, a power of two */

extern "C" __global__ void pl(const float2 *places, const int2 *disc, int points,
                              const unsigned char *frame, int side, float *likelihoods,
                              float *sums, int n)
{
    __shared__ float weights[WIDTH];
    int i = blockIdx.x * WIDTH + threadIdx.x;
    float weight = 0.0f;

    if (i < n) {
        float2 place = places[i];
        int cx = (int)place.x;
        int cy = (int)place.y;
        float sum = 0.0f;

        for (int p = 0; p < points; p++) {
            int x = min(max(cx + disc[p].x, 0), side - 1);
            int y = min(max(cy + disc[p].y, 0), side - 1);
            float pixel = (float)frame[y * side + x];
            float ground = pixel - 100.0f;
            float object = pixel - 228.0f;

            sum += (ground * ground - object * object) / 50.0f;
        }
        float likelihood = sum / (float)points;

        likelihoods[i] = likelihood;
        weight = expf(likelihood * 0.03125f);
    }
    weights[threadIdx.x] = weight;
    __syncthreads();
    for (int half = WIDTH / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            weights[threadIdx.x] += weights[threadIdx.x + half];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = weights[0];
    }
}
