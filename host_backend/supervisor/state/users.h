/*
 * Users who ask for shares on demand. A user may have several shares, one after the other or at
 * once, and may have subordinate users. When something is divided among tenants, all of these count
 * as one.
 *
 * All functions: @thread main
 */
#pragma once

#include "base/log_rate.h"
#include "host_backend/config/config.h"
#include <sys/types.h>

struct weir_supervisor;
struct weir_sup_tenant;

#define WEIR_USERS_MAX WEIR_CONFIG_TENANTS_MAX

/* Holders of parts of a divided supply. Tenants come first, by their slots, then users by theirs; a
 * user holds the part of all of its shares on demand. */
#define WEIR_HOLDERS_MAX (WEIR_CONFIG_TENANTS_MAX + WEIR_USERS_MAX)

/* A user who has asked for a share. Zeroed: none. */
struct weir_sup_user {
    uint32_t uid;
    uint64_t seen_ns;           /* when the user last asked; 0: the slot is free */
    uint64_t quarantine_end_ns; /* end of the quarantine of the user's shares */
    struct weir_log_rate log_rate;
};

/**
 * Find the user for whom a user counts: the owner of a subordinate user (by /etc/subuid, or by the
 * user namespace of a process), else the user itself.
 *
 * @param uid  in this process's user namespace.
 * @param pid  of a process of that user; 0: no process is known.
 */
uint32_t weir_sup_user_owner(uint32_t uid, pid_t pid);
/** Find or make a user's entry. If a new one needs room, it replaces the user without a share who
 * has asked for nothing for longest. Borrowed until the next call. */
struct weir_sup_user *weir_sup_user(struct weir_supervisor *sup, uint32_t uid);
/** Was the tenant made for a user: a share on demand, or a user's tenant? Its name was not chosen
 * by a person. */
bool weir_sup_is_of_user(const struct weir_sup_tenant *tenant);
/** The holder whose part a tenant uses: below WEIR_HOLDERS_MAX. */
uint32_t weir_sup_holder(const struct weir_sup_tenant *tenant);
/** Prepare to count what holders use of a supply (base/account.h): all are 0. Places of holders
 * without a tenant are marked as nobody's. */
void weir_sup_holders(const struct weir_supervisor *sup, uint64_t ret_used[WEIR_HOLDERS_MAX]);
/** Count one unit that a tenant uses. */
void weir_sup_holder_uses(const struct weir_sup_tenant *tenant, uint64_t used[WEIR_HOLDERS_MAX]);
/** The rate limit of log lines that guests of the tenant's holder may cause. */
struct weir_log_rate *weir_sup_log_rate(struct weir_supervisor *sup,
                                        struct weir_sup_tenant *tenant);

struct weir_sup_tenant *weir_sup_tenant_find(struct weir_supervisor *sup, const char *name);
/** The uid of the user for whom such a tenant counts, also after its removal while workers have
 * something of it. -1: the tenant is not a user's. */
int64_t weir_sup_share_user(const struct weir_supervisor *sup, uint32_t tenant);
