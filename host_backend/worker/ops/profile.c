/* Hands out records of profiled work. */
#include "host_backend/worker/profile/profile.h"
#include "host_backend/worker/ops/ops.h"

CUresult weir_host_profile_take(struct weir_session *s, struct weir_op_profile_take_out *out)
{
    weir_profile_take(s, out);
    return CUDA_SUCCESS;
}
