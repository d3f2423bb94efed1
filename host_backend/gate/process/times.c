/*
 * Saves the learned durations in a file, so that the next gate process need not learn them again.
 * The supervisor opens it, because it lies where workers can neither read nor write.
 *
 * The file has two halves. They are written in turn, so one is complete whenever this process is
 * killed. A half is a header and a section for each GPU: its UUID, and the image of its predictor
 * (sched/predict_file.c). Sections of GPUs that nobody has used yet are kept as they are.
 *
 * The file is written when the process ends, and each minute if something was learned: at a moment
 * without work, but within ten minutes.
 */
#include "base/fd.h"
#include "host_backend/gate/process/served.h"

#include "base/hash.h"
#include "base/log.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAGIC      "WEIRTIME"
#define VERSION    1u
#define HALF_BYTES (UINT64_C(16) << 20)
#define KEEP_NS    (60 * WEIR_NS_PER_S)
#define WAIT_NS    (600 * WEIR_NS_PER_S)

struct header {
    char magic[8];
    uint32_t version;
    uint32_t zero;
    uint64_t generation; /* the half with the higher number is the newer one */
    uint64_t bytes;      /* size of the sections */
    struct weir_hash hash;
};
_Static_assert(sizeof(struct header) == 48, "written to disk");

struct section {
    uint64_t uuid[2];
    uint64_t sms;
    uint64_t bytes; /* size of the image that follows */
};
_Static_assert(sizeof(struct section) == 32, "written to disk");

/* ---------------------------------------------------------------- the file */

static bool read_at(int fd, void *to, size_t bytes, uint64_t at)
{
    return lseek(fd, (off_t)at, SEEK_SET) == (off_t)at && weir_fd_read(fd, to, bytes) == bytes;
}

static bool write_at(int fd, const void *from, size_t bytes, uint64_t at)
{
    return lseek(fd, (off_t)at, SEEK_SET) == (off_t)at && weir_fd_write(fd, from, bytes) == bytes;
}

/* Read a half. @return the sections, made by malloc; NULL: the half is empty, damaged or of another
 * version. */
static uint8_t *read_half(int fd, uint64_t half, struct header *ret_header)
{
    struct weir_hash hash;
    uint8_t *bytes;

    if (!read_at(fd, ret_header, sizeof *ret_header, half * HALF_BYTES) ||
        (ret_header->generation == 0 && ret_header->bytes == 0)) {
        return NULL; /* the half was never written */
    }
    bytes =
        ret_header->bytes <= HALF_BYTES - sizeof *ret_header ? malloc(ret_header->bytes + 1) : NULL;
    if (bytes && memcmp(ret_header->magic, MAGIC, sizeof ret_header->magic) == 0 &&
        ret_header->version == VERSION && ret_header->generation % 2 == half &&
        read_at(fd, bytes, ret_header->bytes, half * HALF_BYTES + sizeof *ret_header)) {
        hash = weir_hash_of(bytes, ret_header->bytes);
        if (memcmp(&hash, &ret_header->hash, sizeof hash) == 0) {
            return bytes;
        }
    }
    free(bytes);
    weir_log_warn("gate: damaged file of learned durations half=%u", (unsigned)half);
    return NULL;
}

void weir_gate_process_times(struct weir_gate_process *process, int fd)
{
    struct served_times *times = &process->times;
    struct header header[2];
    uint8_t *bytes[2] = {read_half(fd, 0, &header[0]), read_half(fd, 1, &header[1])};
    int newer = bytes[1] && (!bytes[0] || header[1].generation > header[0].generation);

    times->fd = fd;
    if (bytes[newer]) {
        times->found = bytes[newer];
        times->n_found = header[newer].bytes;
        times->generation = header[newer].generation;
        free(bytes[!newer]);
    } else {
        (void)!ftruncate(fd, 0);
    }
}

/* ---------------------------------------------------------------- sections */

/* Find the next section whose image is complete, and move *at behind it. */
static bool next_section(const struct served_times *times, size_t *at, struct section *ret_section,
                         const uint8_t **ret_image)
{
    size_t left = times->n_found - *at;

    if (left < sizeof *ret_section) {
        return false;
    }
    memcpy(ret_section, times->found + *at, sizeof *ret_section);
    if (ret_section->bytes > left - sizeof *ret_section) {
        return false;
    }
    *ret_image = times->found + *at + sizeof *ret_section;
    *at += sizeof *ret_section + ret_section->bytes;
    return true;
}

static bool is_of(const struct section *section, const struct served_gpu *gpu)
{
    return memcmp(section->uuid, gpu->uuid, sizeof section->uuid) == 0 &&
           section->sms == gpu->of->sms;
}

void served_times_open(struct weir_gate_process *process, struct served_gpu *gpu)
{
    struct weir_predict_stats stats;
    struct section section;
    const uint8_t *image;
    size_t at = 0;

    while (next_section(&process->times, &at, &section, &image)) {
        if (is_of(&section, gpu)) {
            enum weir_status status = weir_predict_load(gpu->predict, image, section.bytes);

            if (status != WEIR_OK) {
                weir_log_warn("gate: learned durations are not taken over gpu=%u why=\"%s\"",
                              gpu->index, weir_status_text(status));
            }
        }
    }
    weir_predict_stats(gpu->predict, &stats);
    gpu->keys_found = stats.keys;
}

static bool is_served(const struct weir_gate_process *process, const struct section *section)
{
    return WEIR_ANY(i, process->n_gpus, is_of(section, &process->gpus[i]));
}

/* Add a GPU's section; false: it does not fit. */
static bool add_gpu(const struct served_gpu *gpu, uint8_t *bytes, size_t room, size_t *n)
{
    struct section section = {.uuid = {gpu->uuid[0], gpu->uuid[1]}, .sms = gpu->of->sms};
    size_t image;

    if (room - *n < sizeof section ||
        weir_predict_save(gpu->predict, bytes + *n + sizeof section, room - *n - sizeof section,
                          &image) != WEIR_OK) {
        return false;
    }
    section.bytes = image;
    memcpy(bytes + *n, &section, sizeof section);
    *n += sizeof section + image;
    return true;
}

/* Add the sections of GPUs that nobody has used yet, as far as there is room. */
static void add_found(const struct weir_gate_process *process, uint8_t *bytes, size_t room,
                      size_t *n)
{
    struct section section;
    const uint8_t *image;
    size_t at = 0;

    while (next_section(&process->times, &at, &section, &image)) {
        size_t whole = sizeof section + section.bytes;

        if (!is_served(process, &section) && room - *n >= whole) {
            memcpy(bytes + *n, image - sizeof section, whole);
            *n += whole;
        }
    }
}

/* ---------------------------------------------------------------- keeping */

static uint64_t learned(const struct weir_gate_process *process)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < process->n_gpus; i++) {
        struct weir_predict_stats stats;

        weir_predict_stats(process->gpus[i].predict, &stats);
        sum += stats.learned;
    }
    return sum;
}

static bool is_idle(const struct weir_gate_process *process)
{
    for (uint32_t i = 0; i < process->n_gpus; i++) {
        struct weir_sched_counts counts;

        weir_sched_count(process->gpus[i].sched, &counts);
        if (counts.items != 0) {
            return false;
        }
    }
    return true;
}

static size_t room_for(const struct weir_gate_process *process)
{
    size_t room = process->times.n_found;

    for (uint32_t i = 0; i < process->n_gpus; i++) {
        room += sizeof(struct section) + weir_predict_save_bytes(process->gpus[i].predict);
    }
    return room < HALF_BYTES - sizeof(struct header) ? room : HALF_BYTES - sizeof(struct header);
}

static bool write_half(struct weir_gate_process *process)
{
    struct served_times *times = &process->times;
    struct header header = {
        .magic = MAGIC, .version = VERSION, .generation = times->generation + 1};
    size_t room = room_for(process), n = 0;
    uint8_t *bytes = malloc(room + 1);
    uint64_t at = header.generation % 2 * HALF_BYTES;
    bool good = bytes != NULL;

    for (uint32_t i = 0; good && i < process->n_gpus; i++) {
        good = add_gpu(&process->gpus[i], bytes, room, &n);
    }
    if (good) {
        add_found(process, bytes, room, &n);
        header.bytes = n;
        header.hash = weir_hash_of(bytes, n);
        good = write_at(times->fd, bytes, n, at + sizeof header) &&
               write_at(times->fd, &header, sizeof header, at);
    }
    free(bytes);
    times->generation += good;
    return good;
}

static void keep(struct weir_gate_process *process)
{
    struct served_times *times = &process->times;
    uint64_t all = learned(process);

    if (times->fd < 0 || all == times->learned) {
        return;
    }
    times->kept_ns = weir_clock_now_ns();
    if (write_half(process)) {
        times->learned = all;
    } else if (!times->told) {
        times->told = true;
        weir_log_warn("gate: learned durations cannot be kept");
    }
}

void served_times_tick(struct weir_gate_process *process, uint64_t now_ns)
{
    uint64_t since_ns = now_ns - process->times.kept_ns;

    if (since_ns >= KEEP_NS && (since_ns >= WAIT_NS || is_idle(process))) {
        keep(process);
    }
}

void served_times_close(struct weir_gate_process *process)
{
    keep(process);
    weir_fd_close(process->times.fd);
    free(process->times.found);
}
