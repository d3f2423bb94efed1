#include "proto/wire/keys.h"
#ifdef WEIR_WITH_ZMQ
#include <zmq.h>
#endif

enum weir_status weir_keypair_generate(struct weir_keypair *ret_pair)
{
#ifdef WEIR_WITH_ZMQ
    struct weir_keypair pair;
    if (zmq_curve_keypair(pair.public_key, pair.secret_key) == 0) {
        *ret_pair = pair;
        return WEIR_OK;
    }
#else
    (void)ret_pair;
#endif
    return WEIR_ERR_UNSUPPORTED;
}
