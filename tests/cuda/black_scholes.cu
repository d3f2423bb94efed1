/* Option prices by the Black-Scholes formula in float, against double on the host. */
#include "check.h"

enum { N = 4000 };

__device__ static float normal(float d)
{
    return 0.5f * erfcf(-d * 0.70710678f);
}

__global__ static void price(const float *spot, const float *strike, const float *years,
                             float *call, float *put, float rate, float volatility)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < N; i += gridDim.x * blockDim.x) {
        float root = sqrtf(years[i]);
        float d1 =
            (logf(spot[i] / strike[i]) + (rate + 0.5f * volatility * volatility) * years[i]) /
            (volatility * root);
        float d2 = d1 - volatility * root, discount = expf(-rate * years[i]);
        call[i] = spot[i] * normal(d1) - strike[i] * discount * normal(d2);
        put[i] = strike[i] * discount * normal(-d2) - spot[i] * normal(-d1);
    }
}

int main(void)
{
    float *spot = host_new<float>(N), *strike = host_new<float>(N), *years = host_new<float>(N);
    float *call = host_new<float>(N), *put = host_new<float>(N);
    const double rate = 0.02f, volatility = 0.30f;
    int calls_good = 1, puts_good = 1, parity = 1;
    uint32_t seed = 5347;

    check_begin("black_scholes");
    for (int i = 0; i < N; i++) {
        spot[i] = 5.0f + (float)(check_random(&seed) % 2500) / 100.0f;
        strike[i] = 1.0f + (float)(check_random(&seed) % 9900) / 100.0f;
        years[i] = 0.25f + (float)(check_random(&seed) % 975) / 100.0f;
    }
    float *device_call = device_new<float>(N), *device_put = device_new<float>(N);
    price<<<16, 128>>>(to_device(spot, N), to_device(strike, N), to_device(years, N), device_call,
                       device_put, (float)rate, (float)volatility);
    check_launch();
    to_host(call, device_call, N);
    to_host(put, device_put, N);
    for (int i = 0; i < N; i++) {
        double s = spot[i], k = strike[i], t = years[i], root = sqrt(t);
        double d1 = (log(s / k) + (rate + 0.5 * volatility * volatility) * t) / (volatility * root);
        double d2 = d1 - volatility * root, discount = exp(-rate * t);
        double c = s * 0.5 * erfc(-d1 / sqrt(2.0)) - k * discount * 0.5 * erfc(-d2 / sqrt(2.0));
        double p = c - s + k * discount;
        calls_good &= fabs(call[i] - c) < 1e-3;
        puts_good &= fabs(put[i] - p) < 1e-3;
        parity &= fabs((call[i] - put[i]) - (s - k * discount)) < 1e-3;
    }
    check_true(calls_good, "call prices");
    check_true(puts_good, "put prices");
    check_true(parity, "put-call parity");
    return check_end();
}
