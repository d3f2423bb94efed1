/* Handles what remote guests report about their calls. */
#include "host_backend/worker/ops/ops.h"
#include "host_backend/worker/session/stats_page.h"

CUresult weir_host_stats_put(struct weir_session *s, const struct weir_op_stats_put_in *in)
{
    WEIR_FAIL_IF(!weir_session_is_remote(s),
                 CUDA_ERROR_NOT_SUPPORTED); /* a local guest's page has them */
    struct weir_stats_set *set = weir_stats_read_rows(in->data, in->n_data);
    WEIR_FAIL_IF(!set, CUDA_ERROR_INVALID_VALUE);
    weir_session_say_stats(s, set);
    return CUDA_SUCCESS;
}
