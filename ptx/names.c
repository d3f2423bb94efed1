#include "ptx/names.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define FIRST_BUCKETS 1024u
#define FIRST_SLOTS   1024u

static uint64_t rotl(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotl(v[1], 13) ^ v[0];
    v[0] = rotl(v[0], 32);
    v[2] += v[3];
    v[3] = rotl(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotl(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotl(v[1], 17) ^ v[2];
    v[2] = rotl(v[2], 32);
}

/* SipHash-1-3 (Aumasson and Bernstein 2012): it has a key, so that nobody can write a text that
 * makes long chains. */
static uint64_t hash_text(const uint64_t key[2], const char *text, size_t len)
{
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575ull, key[1] ^ 0x646f72616e646f6dull,
                     key[0] ^ 0x6c7967656e657261ull, key[1] ^ 0x7465646279746573ull};
    uint64_t word;
    size_t i = 0;

    for (; i + 8 <= len; i += 8) {
        memcpy(&word, text + i, 8);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    word = (uint64_t)len << 56;
    for (size_t j = i; j < len; j++) {
        word |= (uint64_t)(unsigned char)text[j] << (8 * (j - i));
    }
    v[3] ^= word;
    sip_round(v);
    v[0] ^= word;
    v[2] ^= 0xff;
    sip_round(v);
    sip_round(v);
    sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* Get a random key. If the system gives no random numbers, use addresses, which are random, too. */
static void random_key(uint64_t *key, size_t len_bytes)
{
    if (getrandom(key, len_bytes, GRND_NONBLOCK) != (ssize_t)len_bytes) {
        memset(key, 0, len_bytes);
        *key = (uintptr_t)key;
    }
}

bool weir_ptx_names_init(struct weir_ptx_names *names)
{
    memset(names, 0, sizeof(*names));
    random_key(names->key, sizeof(names->key));
    names->buckets = calloc(FIRST_BUCKETS, sizeof(*names->buckets));
    names->n_buckets = names->buckets ? FIRST_BUCKETS : 0;
    return names->buckets != NULL;
}

static void remove_newest(struct weir_ptx_names *names)
{
    struct weir_ptx_name *name = names->newest;

    names->buckets[name->hash & (names->n_buckets - 1)] = name->chain;
    names->newest = name->older;
    names->n_names--;
    name->chain = names->free_list;
    names->free_list = name;
}

void weir_ptx_names_finish(struct weir_ptx_names *names)
{
    while (names->newest) {
        remove_newest(names);
    }
    for (struct weir_ptx_name *name = names->free_list, *next; name; name = next) {
        next = name->chain;
        free(name);
    }
    free(names->buckets);
    memset(names, 0, sizeof(*names));
}

void weir_ptx_names_open(struct weir_ptx_names *names)
{
    names->depth++;
}

void weir_ptx_names_close(struct weir_ptx_names *names)
{
    while (names->newest && names->newest->depth == names->depth) {
        remove_newest(names);
    }
    names->depth--;
}

struct weir_ptx_name *weir_ptx_names_find(const struct weir_ptx_names *names, const char *text,
                                          size_t len, bool range)
{
    uint64_t hash = hash_text(names->key, text, len);
    struct weir_ptx_name *name = names->buckets[hash & (names->n_buckets - 1)];

    for (; name; name = name->chain) {
        if (name->hash == hash && name->len == len && memcmp(name->text, text, len) == 0 &&
            (name->kind == WEIR_PTX_NAME_RANGE) == range) {
            return name;
        }
    }
    return NULL;
}

/*
 * Rebuild the chains, oldest name first, so that each chain keeps its newest at the head. The list
 * begins with the newest, so it is reversed twice.
 */
static bool grow(struct weir_ptx_names *names)
{
    size_t n_buckets = names->n_buckets * 2;
    struct weir_ptx_name **buckets = calloc(n_buckets, sizeof(*buckets));
    struct weir_ptx_name *oldest = NULL;

    WEIR_FAIL_IF(!buckets, false);
    for (struct weir_ptx_name *name = names->newest, *next; name; name = next) {
        next = name->older;
        name->older = oldest;
        oldest = name;
    }
    names->newest = NULL;
    for (struct weir_ptx_name *name = oldest, *next; name; name = next) {
        struct weir_ptx_name **bucket = &buckets[name->hash & (n_buckets - 1)];

        next = name->older;
        name->older = names->newest;
        names->newest = name;
        name->chain = *bucket;
        *bucket = name;
    }
    free(names->buckets);
    names->buckets = buckets;
    names->n_buckets = n_buckets;
    return true;
}

struct weir_ptx_name *weir_ptx_names_add(struct weir_ptx_names *names, const char *text, size_t len,
                                         enum weir_ptx_name_kind kind)
{
    WEIR_FAIL_IF(names->n_names >= names->n_buckets && !grow(names), NULL);
    struct weir_ptx_name *name = names->free_list;

    if (name) {
        names->free_list = name->chain;
    } else {
        name = malloc(sizeof(*name));
        WEIR_FAIL_IF(!name, NULL);
    }
    memset(name, 0, sizeof(*name));
    name->text = text;
    name->len = (uint32_t)len;
    name->depth = names->depth;
    name->hash = hash_text(names->key, text, len);
    name->kind = (uint8_t)kind;
    name->older = names->newest;
    names->newest = name;

    struct weir_ptx_name **bucket = &names->buckets[name->hash & (names->n_buckets - 1)];

    name->chain = *bucket;
    *bucket = name;
    names->n_names++;
    return name;
}

static struct weir_ptx_regmap_slot *probe(const struct weir_ptx_regmap *map, uint64_t key)
{
    uint64_t hash = (key ^ map->seed) * 0x9e3779b97f4a7c15ull;

    hash = (hash ^ hash >> 29) * (map->seed | 1);
    for (size_t i = hash >> 20;; i++) {
        struct weir_ptx_regmap_slot *slot = &map->slots[i & (map->n_slots - 1)];

        if (slot->key == key || slot->key == 0) {
            return slot;
        }
    }
}

static bool regmap_grow(struct weir_ptx_regmap *map)
{
    struct weir_ptx_regmap bigger = {.n_slots = map->n_slots ? map->n_slots * 2 : FIRST_SLOTS,
                                     .n_used = map->n_used};

    random_key(&bigger.seed, sizeof(bigger.seed));
    bigger.slots = calloc(bigger.n_slots, sizeof(*bigger.slots));
    WEIR_FAIL_IF(!bigger.slots, false);
    for (size_t i = 0; i < map->n_slots; i++) {
        if (map->slots[i].key) {
            *probe(&bigger, map->slots[i].key) = map->slots[i];
        }
    }
    free(map->slots);
    *map = bigger;
    return true;
}

uint32_t *weir_ptx_regmap_get(struct weir_ptx_regmap *map, uint64_t key)
{
    WEIR_FAIL_IF(map->n_used * 2 >= map->n_slots && !regmap_grow(map), NULL);
    struct weir_ptx_regmap_slot *slot = probe(map, key);

    if (!slot->key) {
        slot->key = key;
        slot->id = UINT32_MAX;
        map->n_used++;
    }
    return &slot->id;
}

void weir_ptx_regmap_finish(struct weir_ptx_regmap *map)
{
    free(map->slots);
    memset(map, 0, sizeof(*map));
}
