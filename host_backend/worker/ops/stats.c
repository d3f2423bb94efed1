/* What remote guests tell about their calls. */
#include "host_backend/worker/ops/ops.h"
#include "host_backend/worker/session/stats_page.h"
#include <stdlib.h>

CUresult weir_host_stats_put(struct weir_session *s, const struct weir_op_stats_put_in *in,
                             struct weir_op_stats_put_out *out)
{
    struct weir_stats_set *set, *old;

    (void)out;
    if (!weir_session_is_remote(s)) {
        return CUDA_ERROR_NOT_SUPPORTED; /* its page says it */
    }
    set = weir_stats_read_rows(in->data, in->n_data);
    if (set == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_lock(&s->worker->lock);
    old = s->stats;
    s->stats = set;
    pthread_mutex_unlock(&s->worker->lock);
    free(old);
    return CUDA_SUCCESS;
}
