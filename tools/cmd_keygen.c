#include "proto/wire/keys.h"
#include "tools/command.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Never overwrite a file: a lost secret key cannot be made again. */
static bool write_key(const char *path, const char *key, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0) {
        fprintf(stderr, "weir keygen: %s: %s\n", path, strerror(errno));
        return false;
    }
    bool good = dprintf(fd, "%s\n", key) > 0;
    if (close(fd) != 0 || !good) {
        fprintf(stderr, "weir keygen: %s: %s\n", path, strerror(errno));
        return false;
    }
    return true;
}

int weir_cmd_keygen(int argc, char **argv)
{
    static const struct weir_option options[] = {{.name = NULL}};
    int first;
    int exit_status;
    if (!weir_options_parse(argc, argv, "NAME",
                            "Make a key pair: NAME.secret stays with its owner, the line in "
                            "NAME.public goes to the other side.",
                            options, &first, &exit_status)) {
        return exit_status;
    }
    struct weir_keypair pair;
    enum weir_status status = weir_keypair_generate(&pair);
    if (status != WEIR_OK) {
        fprintf(stderr, "weir keygen: %s\n", weir_status_text(status));
        return WEIR_EXIT_FAILED;
    }
    char secret[PATH_MAX];
    char public[PATH_MAX];
    snprintf(secret, sizeof(secret), "%s.secret", argv[first]);
    snprintf(public, sizeof(public), "%s.public", argv[first]);
    if (!write_key(secret, pair.secret_key, 0600) || !write_key(public, pair.public_key, 0644)) {
        return WEIR_EXIT_FAILED;
    }
    printf("%s\n%s\n", secret, public);
    return WEIR_EXIT_OK;
}
