/* Black-Scholes: call and put of European options, one for each thread. */
static __device__ float normal(float x)
{
    return 0.5f * erfcf(x * -0.70710678f);
}

extern "C" __global__ void bs(const float *spots, const float *strikes, const float *years,
                              float *calls, float *puts, float rate, float volatility, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n) {
        float spot = spots[i];
        float strike = strikes[i];
        float time = years[i];
        float spread = volatility * sqrtf(time);
        float d1 = (logf(spot / strike) + (rate + 0.5f * volatility * volatility) * time) / spread;
        float d2 = d1 - spread;
        float discounted = strike * expf(-rate * time);

        calls[i] = spot * normal(d1) - discounted * normal(d2);
        puts[i] = discounted * normal(-d2) - spot * normal(-d1);
    }
}
