/* A domain's metadata: what is read keeps the message's limits, and is read the same twice. */
#include "container/libvirt/metadata.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
    if (!condition) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct weir_libvirt_element element, again;
    struct weir_diag diag = {0};
    enum weir_status status = weir_metadata_parse((const char *)data, size, &element, &diag);

    if (status != WEIR_OK) {
        require(status == WEIR_ERR_NO_MEMORY || diag.message[0] != 0);
        return 0;
    }
    require(element.n_settings <= WEIR_LIBVIRT_SETTINGS_MAX);
    require(strnlen(element.tenant, sizeof element.tenant) < sizeof element.tenant);
    for (uint32_t i = 0; i < element.n_settings; i++) {
        const struct weir_libvirt_setting *s = &element.settings[i];

        require(strnlen(s->key, sizeof s->key) < sizeof s->key && s->key[0] != 0);
        require(strnlen(s->value, sizeof s->value) < sizeof s->value);
        require(!strpbrk(s->value, "\n\r\t\x1b"));
    }
    require(weir_metadata_parse((const char *)data, size, &again, &diag) == WEIR_OK);
    require(memcmp(&element, &again, sizeof element) == 0);
    return 0;
}
