/* Requests to the metrics endpoint: judged within their bytes, the same however they arrive. */
#include "host_backend/supervisor/watch/metrics.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool head;

    size = size < WEIR_HTTP_HEAD_MAX ? size : WEIR_HTTP_HEAD_MAX;
    char *copy = malloc(size != 0 ? size : 1); /* of its size, so that a step beyond is seen */
    if (!copy) {
        return 0;
    }
    memcpy(copy, data, size);
    int status = weir_http_judge(copy, size, &head);

    if (strlen(weir_http_reason(status)) < 5 || (head && status != 200 && status != 404)) {
        abort();
    }
    free(copy);
    return 0;
}
