#include "proto/transport/transport.h"
#include <string.h>

static const struct weir_transport_kind kinds[WEIR_TRANSPORT_COUNT] = {
#define WEIR_TRANSPORT(id, text, can_negotiate, is_remote)                                         \
    [WEIR_TRANSPORT_##id] = {.name = (text), .negotiable = (can_negotiate), .remote = (is_remote)},
#include "proto/transport/transports.def"
#undef WEIR_TRANSPORT
};

const struct weir_transport_kind *weir_transport_kind(enum weir_transport_id id)
{
    return (unsigned)id < WEIR_TRANSPORT_COUNT ? &kinds[id] : NULL;
}

enum weir_transport_id weir_transport_find(const char *name)
{
    int id = 0;
    while (id < WEIR_TRANSPORT_COUNT && strcmp(kinds[id].name, name) != 0) {
        id++;
    }
    return (enum weir_transport_id)id;
}
