#include "proto/wire/accept_stream.h"
#include "base/clock.h"
#include "base/log.h"
#include "proto/transport/fd_message.h"
#include "proto/transport/segment_map.h"
#include "proto/transport/stream.h"
#include "proto/wire/control_codec.h"
#include <stdlib.h>

#define SEND_TIMEOUT_NS (2 * WEIR_NS_PER_S) /* how long a guest may take to receive its Welcome */

enum weir_status weir_stream_hello(struct weir_transport *t, uint64_t timeout_ns,
                                   struct weir_hello **ret_hello)
{
    char why[WEIR_CONTROL_TEXT_BYTES];
    struct weir_hello *hello = NULL;
    const void *bytes;
    size_t len;
    enum weir_status status = weir_stream_hear(t, WEIR_STREAM_HELLO, WEIR_CONTROL_MAX_BYTES,
                                               weir_deadline_after(timeout_ns), &bytes, &len);
    WEIR_THEN(status, weir_hello_decode(bytes, len, &hello));
    if (status == WEIR_OK && !weir_hello_fits(hello, why, sizeof why)) {
        weir_stream_refuse(t, WEIR_ERR_VERSION, WEIR_RESULT_VERSION, why);
        status = WEIR_ERR_VERSION;
    }
    if (status == WEIR_OK) {
        *ret_hello = hello;
    } else {
        weir_hello_destroy(hello);
    }
    return status;
}

static enum weir_status say_welcome(struct weir_transport *t, struct weir_control_bytes *bytes,
                                    uint64_t timeout_ns)
{
    enum weir_status status = weir_stream_say(t, WEIR_STREAM_WELCOME, bytes->bytes, bytes->len,
                                              timeout_ns ? weir_deadline_after(timeout_ns) : 0);
    free(bytes->bytes);
    return status;
}

enum weir_status weir_stream_welcome(struct weir_transport *t,
                                     const struct weir_welcome_params *params)
{
    struct weir_control_bytes bytes = {0};
    struct weir_segment_view view;
    struct weir_welcome welcome;
    WEIR_TRY(weir_segment_create_private(&params->segment, &view));
    weir_stream_set_view(t, &view); /* from here on the transport owns the view */
    weir_welcome_prepare(params, &welcome);
    weir_text_set(welcome.transport, sizeof welcome.transport, t->ops->name);
    welcome.n_words = view.n_words;
    welcome.arena_bytes = view.arena_bytes;
    WEIR_TRY(weir_welcome_encode(&welcome, &bytes));
    return say_welcome(t, &bytes, SEND_TIMEOUT_NS);
}

void weir_stream_refuse(struct weir_transport *t, enum weir_status reason, int32_t result,
                        const char *message)
{
    struct weir_control_bytes bytes = {0};
    enum weir_status status = weir_refusal_encode(reason, result, message, &bytes);
    WEIR_THEN(status, say_welcome(t, &bytes, 0));
    if (status != WEIR_OK) {
        weir_log_debug("accept: refusal not delivered reason=%s", weir_status_text(status));
    }
}
