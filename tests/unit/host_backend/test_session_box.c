/* Boxes that a worker must not believe: each is refused, and leaves nothing behind. */
#include "base/memfd.h"
#include "host_backend/config/link.h"
#include "host_backend/worker/memory/tenant_window.h"
#include "host_backend/worker/rebuild/private.h"
#include "session_fixture.h"
#include <dirent.h>
#include <unistd.h>

#define WORDS 12

static void serve_one_program(void)
{
    f.worker.platform.by_program = true;
}

static uint32_t count_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    uint32_t n = 0;

    assert_non_null(folder);
    while (readdir(folder)) {
        n++;
    }
    closedir(folder);
    return n;
}

/* Send a box, and open it as the other worker does. */
static enum weir_status pass(struct weir_box *box, struct weir_moved **ret_moved)
{
    int fd;

    assert_int_equal(weir_box_send(box, &fd), WEIR_OK);
    weir_box_finish(box, false);
    return weir_moved_open(fd, ret_moved);
}

static void what_is_no_head_is_refused(void **state)
{
    struct weir_box_head head = {.version = WEIR_LINK_VERSION + 1};
    uint32_t before = count_descriptors();
    struct weir_moved *moved;
    struct weir_box box = {0};

    (void)state;
    (void)weir_box_put(&box, &head, sizeof head);
    weir_box_put_file(&box, WEIR_BOX_SEGMENT, 0, STDIN_FILENO);
    assert_int_equal(pass(&box, &moved), WEIR_ERR_VERSION);
    head.version = WEIR_LINK_VERSION;
    (void)weir_box_put(&box, &head, sizeof head - 8);
    weir_box_put_file(&box, WEIR_BOX_SEGMENT, 0, STDIN_FILENO);
    assert_int_equal(pass(&box, &moved), WEIR_ERR_VERSION);
    assert_int_equal(count_descriptors(), before);
}

static void without_its_channel_a_session_is_refused(void **state)
{
    static const enum weir_box_kind rows[][3] = {
        {WEIR_BOX_CHUNK, WEIR_BOX_CHUNK, WEIR_BOX_CHUNK},
        {WEIR_BOX_SEGMENT, WEIR_BOX_SEGMENT, WEIR_BOX_PROCESS},
        {WEIR_BOX_SOCKET, WEIR_BOX_PROCESS, WEIR_BOX_ALLOC},
        {WEIR_BOX_SEGMENT, WEIR_BOX_SOCKET, WEIR_BOX_PROCESS}, /* a pipe is no segment */
    };
    uint32_t before = count_descriptors();

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct weir_box_head head = {.version = WEIR_LINK_VERSION, .segment_bytes = 1 << 16};
        struct weir_transport *transport;
        struct weir_moved *moved;
        struct weir_box box = {0};
        int pair[2];

        assert_int_equal(pipe(pair), 0);
        (void)weir_box_put(&box, &head, sizeof head);
        for (int k = 0; k < 3; k++) {
            weir_box_put_file(&box, rows[i][k], 0, pair[k & 1]);
        }
        assert_int_equal(pass(&box, &moved), WEIR_OK);
        close(pair[0]);
        close(pair[1]);
        assert_int_not_equal(weir_moved_transport(moved, &transport), WEIR_OK);
        weir_moved_close(moved);
        assert_int_equal(count_descriptors(), before);
    }
}

struct row {
    const char *what;
    const char *why; /* what could not be made */
    CUresult result;
    struct weir_box_head head; /* as a good one differs */
    uint64_t words[WORDS];
    uint32_t n;
    enum weir_box_kind file; /* if it is not 0; a pipe */
    uint64_t number;         /* of the file; 0: 1 */
    uint64_t file_bytes;     /* a sealed file of this size; 0: a pipe */
    uint16_t op;             /* of a record, if it is not 0 */
    uint32_t record_bytes, device;
};

#define BAD CUDA_ERROR_INVALID_VALUE
#define AT  UINT64_C(0x600000000000) /* where nothing is mapped */

static const struct row rows[] = {
    {"another window", "its window of addresses", CUDA_ERROR_ALREADY_MAPPED,
     .head.window_base = 4096},
    {"no image", "its images", BAD, .head.n_images = UINT32_MAX},
    {"an image longer than the box", "its images", BAD, .head.n_images = 1,
     .words = {1, 2, 1 << 20}, .n = 4},
    {"an image of endless length", "its images", BAD, .head.n_images = 1,
     .words = {1, 2, UINT64_MAX}, .n = 4},
    {"an image of another name", "its images", BAD, .head.n_images = 1, .words = {1, 2, 8, 3},
     .n = 4},
    {"no chunk", "its memory", BAD, .head.memory.chunks = UINT32_MAX},
    {"a chunk without a descriptor", "its memory", BAD, .head.memory.chunks = 1,
     .words = {1, UNIT, UNIT, 0}, .n = 4},
    {"a chunk with another's descriptor", "its memory", BAD, .head.memory.chunks = 1,
     .words = {1, UNIT, UNIT, 0}, .n = 4, .file = WEIR_BOX_ALLOC},
    {"a chunk of no device", "its memory", BAD, .head.memory.chunks = 1,
     .words = {1, UNIT, UNIT, 2}, .n = 4, .file = WEIR_BOX_CHUNK},
    {"a chunk outside the window", "its memory", CUDA_ERROR_ALREADY_MAPPED, .head.memory.chunks = 1,
     .words = {1, UINT64_MAX - UNIT + 1, UNIT, 0}, .n = 4, .file = WEIR_BOX_CHUNK},
    {"pinned memory outside the window", "its memory", CUDA_ERROR_ALREADY_MAPPED,
     .head.memory.chunks = 1, .words = {1, 8 * UNIT, 4096, UINT64_C(1) << 32}, .n = 4,
     .file = WEIR_BOX_CHUNK},
    {"pinned memory over the quota", "its memory", CUDA_ERROR_OUT_OF_MEMORY,
     .head.memory.chunks = 1, .words = {1, 8 * UNIT, UNIT, UINT64_C(1) << 32}, .n = 4,
     .file = WEIR_BOX_CHUNK},
    {"more allocations than descriptors", "its memory", BAD, .head.memory.allocs = UINT32_MAX},
    {"an allocation without a descriptor", "its memory", BAD, .head.memory.allocs = 1,
     .words = {1, UNIT, 0, 0}, .n = 5, .file = WEIR_BOX_CHUNK},
    {"an allocation cleared beyond its end", "its memory", BAD, .head.memory.allocs = 1,
     .words = {1, UNIT, UNIT + 1, 0}, .n = 5, .file = WEIR_BOX_ALLOC},
    {"memory of the host in a pipe", "its memory", BAD, .head.memory.allocs = 1,
     .words = {1, 4096, 4096, 0, 1}, .n = 5, .file = WEIR_BOX_ALLOC},
    {"memory of the host that is larger than its file", "its memory", BAD, .head.memory.allocs = 1,
     .words = {1, 8192, 8192, 0, 1}, .n = 5, .file = WEIR_BOX_ALLOC, .file_bytes = 4096},
    {"no registered memory", "its memory", BAD, .head.memory.registered = UINT32_MAX},
    {"registered memory without a file", "its memory", BAD, .head.memory.registered = 1,
     .words = {AT, 4096, 0, 0, 1}, .n = 5},
    {"registered memory in a pipe", "its memory", BAD, .head.memory.registered = 1,
     .words = {AT, 4096, 0, 0, 1}, .n = 5, .file = WEIR_BOX_REGISTERED, .number = AT},
    {"registered memory behind its file", "its memory", BAD, .head.memory.registered = 1,
     .words = {AT, 4096, 4096, 0, 1}, .n = 5, .file = WEIR_BOX_REGISTERED, .number = AT,
     .file_bytes = 4096},
    {"registered memory of half a page", "its memory", BAD, .head.memory.registered = 1,
     .words = {AT, 2048, 0, 0, 1}, .n = 5, .file = WEIR_BOX_REGISTERED, .number = AT,
     .file_bytes = 4096},
    {"registered memory where reservations are", "its memory", CUDA_ERROR_ALREADY_MAPPED,
     .head.memory.registered = 1, .words = {FAKE_VMM_BASE, 4096, 0, 0, 1}, .n = 5,
     .file = WEIR_BOX_REGISTERED, .number = FAKE_VMM_BASE, .file_bytes = 4096},
    {"registered memory beside its window", "its memory", CUDA_ERROR_ALREADY_MAPPED,
     .head.memory.registered = 1, .words = {AT, 4096, 0, UINT64_C(1) << 32, 1}, .n = 5,
     .file = WEIR_BOX_REGISTERED, .number = AT, .file_bytes = 4096},
    {"registered memory over the quota", "its memory", CUDA_ERROR_OUT_OF_MEMORY,
     .head.memory.registered = 1, .words = {AT, UNIT, 0, 0, 1}, .n = 5, .file = WEIR_BOX_REGISTERED,
     .number = AT, .file_bytes = UNIT},
    {"a reservation outside", "its memory", CUDA_ERROR_ALREADY_MAPPED, .head.memory.spaces = 1,
     .words = {FAKE_VMM_BASE - UNIT, UNIT, 0}, .n = 3},
    {"two reservations at one place", "its memory", CUDA_ERROR_ALREADY_MAPPED,
     .head.memory.spaces = 2, .words = {FAKE_VMM_BASE, 2 * UNIT, 0, FAKE_VMM_BASE + UNIT, UNIT, 0},
     .n = 6},
    {"a mapping of nothing", "its memory", BAD, .head.memory.maps = 1,
     .words = {FAKE_VMM_BASE, UNIT, 7, 3}, .n = 4},
    {"a handle of nothing", "its memory", BAD, .head.memory.handles = 1, .words = {1, 7}, .n = 2},
    {"no record", "its objects", BAD, .head.n_records = UINT32_MAX},
    {"a record longer than the box", "its objects", BAD, .head.n_records = 1,
     .op = WEIR_OP_event_create, .record_bytes = 4096},
    {"a record shorter than its header", "its objects", BAD, .head.n_records = 1,
     .op = WEIR_OP_event_create, .record_bytes = 8},
    {"a record that is cut off", "its objects", BAD, .head.n_records = 1,
     .op = WEIR_OP_event_create, .record_bytes = sizeof(struct weir_record)},
    {"a record that is no operation", "its objects", BAD, .head.n_records = 1, .op = WEIR_OP_COUNT,
     .record_bytes = sizeof(struct weir_record)},
    {"work", "its objects", BAD, .head.n_records = 1, .op = WEIR_OP_launch,
     .record_bytes = sizeof(struct weir_record)},
    {"a record of no device", "its objects", BAD, .head.n_records = 1, .op = WEIR_OP_event_create,
     .record_bytes = sizeof(struct weir_record), .device = 2},
    {"no variables", "its variables", BAD, .head.n_variables = UINT32_MAX},
    {"variables of nothing", "its variables", BAD, .head.n_variables = 1,
     .words = {7, 8, WEIR_KIND_MODULE, 0}, .n = 4},
    {"variables of a stream", "its variables", BAD, .head.n_variables = 1,
     .words = {7, 8, WEIR_KIND_STREAM, 0}, .n = 4},
    {"variables of endless length", "its variables", BAD, .head.n_variables = 1,
     .words = {7, UINT64_MAX, WEIR_KIND_MODULE, 0}, .n = 4},
    {"no arrays", "its arrays", BAD, .head.n_arrays = UINT32_MAX},
    {"no time", "times of its events", BAD, .head.n_times = 1},
    {"a time of nothing", "times of its events", BAD, .head.n_times = 1, .words = {7, 0}, .n = 2},
};

static void fill(struct weir_box *box, const struct row *row, int file)
{
    struct weir_box_head head = row->head;

    head.version = WEIR_LINK_VERSION;
    head.window_base += weir_tenant_window_base(f.tenant);
    (void)weir_box_put(box, &head, sizeof head);
    (void)weir_box_put(box, row->words, row->n * sizeof row->words[0]);
    if (row->op != 0) {
        struct weir_record record = {
            .len_bytes = row->record_bytes, .op = row->op, .device = (uint8_t)row->device};

        (void)weir_box_put(box, &record, sizeof record);
    }
    if (row->file != WEIR_BOX_BYTES) {
        weir_box_put_file(box, row->file, row->number != 0 ? row->number : 1, file);
    }
}

/* A box has been filled for a fresh session: what becomes of it? */
static CUresult rebuild(struct weir_box *box, const char **ret_why)
{
    struct weir_moved *moved;
    CUresult result;

    assert_int_equal(pass(box, &moved), WEIR_OK);
    result = weir_moved_rebuild(moved, f.session, weir_session_replay, ret_why);
    weir_moved_close(moved);
    return result;
}

static void begin(void **state)
{
    prepare = serve_one_program;
    no_thread = true;
    assert_int_equal(set_up(state), 0);
    weir_account_limit_set(&f.tenant->account, WEIR_ACCOUNT_HOST_MEMORY, 1 << 30);
}

/* @param file_bytes  0: a pipe */
static int make_file(uint64_t file_bytes)
{
    int pair[2];

    if (file_bytes != 0) {
        return weir_memfd_sealed("weir-test", file_bytes);
    }
    assert_int_equal(pipe(pair), 0);
    close(pair[0]);
    return pair[1];
}

static void what_is_damaged_is_refused(void **state)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t before = count_descriptors();
        struct weir_box box = {0};
        const char *why = NULL;
        CUresult result;
        int file;

        begin(state);
        file = make_file(rows[i].file_bytes);
        fill(&box, &rows[i], file);
        result = rebuild(&box, &why);
        if (result != rows[i].result || strcmp(why, rows[i].why) != 0) {
            fail_msg("%s: %d, %s", rows[i].what, (int)result, why);
        }
        close(file);
        (void)tear_down(state);
        if (count_descriptors() != before) {
            fail_msg("%s: %u descriptors, before it %u", rows[i].what, count_descriptors(), before);
        }
    }
}

static void put_record(struct weir_box *box, enum weir_op op, const void *in, const uint64_t *names,
                       uint64_t n_names)
{
    struct weir_record record = {.op = (uint16_t)op};
    uint8_t body[256];

    assert_true(weir_ops[op].in_bytes(in) <= sizeof body);
    weir_ops[op].in_encode(in, body);
    record.len_bytes = (uint32_t)(sizeof record + weir_ops[op].in_bytes(in));
    (void)weir_box_put(box, &record, sizeof record);
    (void)weir_box_put(box, body, weir_ops[op].in_bytes(in));
    (void)weir_box_put(box, &n_names, sizeof n_names);
    (void)weir_box_put(box, names, n_names * sizeof *names);
}

#define ARRAY_BYTES 64u /* of the one that follows */

/* @param head  beside what all boxes have; its first two records are an array's. */
static void put_array(struct weir_box *box, struct weir_box_head head)
{
    const struct weir_op_ctx_create_in context = {
        .c = name(WEIR_KIND_CONTEXT, 1), .legacy = name(WEIR_KIND_STREAM, 1), .legacy_word = 1};
    struct weir_op_array_create_in array;

    memset(&array, 0, sizeof array); /* its padding, too */
    array.c = context.c;
    array.a = name(WEIR_KIND_ARRAY, 1);
    array.desc.Width = array.desc.Height = 4;
    array.desc.Format = CU_AD_FORMAT_FLOAT;
    array.desc.NumChannels = 1;
    head.version = WEIR_LINK_VERSION;
    head.window_base = weir_tenant_window_base(f.tenant);
    head.n_records += 2;
    (void)weir_box_put(box, &head, sizeof head);
    put_record(box, WEIR_OP_ctx_create, &context, NULL, 0);
    put_record(box, WEIR_OP_array_create, &array, NULL, 0);
}

/* An array with contents that are not its own. */
static void contents_of_arrays_are_checked(void **state)
{
    static const struct {
        const char *what;
        CUresult result;
        uint32_t kind, index, n, files;
        uint64_t bytes, file_bytes, quota;
    } all[] = {
        {"good", CUDA_SUCCESS, WEIR_KIND_ARRAY, 1, 1, 1, ARRAY_BYTES, ARRAY_BYTES, 1 << 20},
        {"another array's", BAD, WEIR_KIND_ARRAY, 2, 1, 1, ARRAY_BYTES, ARRAY_BYTES, 1 << 20},
        {"a stream's", BAD, WEIR_KIND_STREAM, 1, 1, 1, ARRAY_BYTES, ARRAY_BYTES, 1 << 20},
        {"of another size", BAD, WEIR_KIND_ARRAY, 1, 1, 1, ARRAY_BYTES / 2, ARRAY_BYTES, 1 << 20},
        {"without a file", BAD, WEIR_KIND_ARRAY, 1, 1, 0, ARRAY_BYTES, ARRAY_BYTES, 1 << 20},
        {"in a pipe", BAD, WEIR_KIND_ARRAY, 1, 1, 1, ARRAY_BYTES, 0, 1 << 20},
        {"in a short file", BAD, WEIR_KIND_ARRAY, 1, 1, 1, ARRAY_BYTES, ARRAY_BYTES - 1, 1 << 20},
        {"twice", BAD, WEIR_KIND_ARRAY, 1, 2, 2, ARRAY_BYTES, ARRAY_BYTES, 1 << 20},
        {"over the quota", CUDA_ERROR_OUT_OF_MEMORY, WEIR_KIND_ARRAY, 1, 1, 1, ARRAY_BYTES,
         ARRAY_BYTES, ARRAY_BYTES - 1},
    };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        uint32_t before = count_descriptors();
        struct weir_box box = {0};
        const char *why = NULL;
        CUresult result;
        int file;

        begin(state);
        weir_account_limit_set(&f.tenant->account, WEIR_ACCOUNT_HOST_MEMORY, all[i].quota);
        file = make_file(all[i].file_bytes);
        put_array(&box, (struct weir_box_head){.n_arrays = all[i].n});
        for (uint32_t k = 0; k < all[i].n; k++) {
            const uint64_t words[] = {name((enum weir_kind)all[i].kind, all[i].index), all[i].bytes,
                                      all[i].kind};

            (void)weir_box_put(&box, words, sizeof words);
        }
        for (uint32_t k = 0; k < all[i].files; k++) {
            weir_box_put_file(&box, WEIR_BOX_ARRAY, k, file);
        }
        result = rebuild(&box, &why);
        if (result != all[i].result || (result != CUDA_SUCCESS && strcmp(why, "its arrays") != 0)) {
            fail_msg("%s: %d, %s", all[i].what, (int)result, why);
        }
        close(file);
        (void)tear_down(state);
        if (count_descriptors() != before) {
            fail_msg("%s: %u descriptors, before it %u", all[i].what, count_descriptors(), before);
        }
    }
}

/* Three surfaces, whose numbers this driver may not give. */
static void numbers_of_surfaces_come_out_equal(void **state)
{
    static const struct {
        uint64_t numbers[3];
        uint32_t step;
        CUresult result;
    } all[] = {{{1, 2, 3}, 1, CUDA_SUCCESS},
               {{3, 4, 40000}, 1, CUDA_SUCCESS}, /* others had the numbers in between */
               {{2, 6, 8}, 2, CUDA_SUCCESS},
               {{2, 1, 3}, 1, CUDA_ERROR_INVALID_ADDRESS_SPACE},
               {{2, 5, 6}, 2, CUDA_ERROR_INVALID_ADDRESS_SPACE},
               {{1, 2, UINT64_MAX}, 1, CUDA_ERROR_INVALID_ADDRESS_SPACE}};
    const struct weir_op_surface_create_in in = {.c = name(WEIR_KIND_CONTEXT, 1),
                                                 .a = name(WEIR_KIND_ARRAY, 1)};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct weir_box box = {0};
        const char *why = NULL;

        begin(state);
        fake_surface_step = all[i].step;
        put_array(&box, (struct weir_box_head){.n_records = 3});
        for (uint32_t k = 0; k < 3; k++) {
            const uint64_t names[] = {all[i].numbers[k],
                                      weir_handle_make(WEIR_KIND_SURFACE, true, 1, k + 1)};

            put_record(&box, WEIR_OP_surface_create, &in, names, 2);
        }
        assert_int_equal(rebuild(&box, &why), all[i].result);
        for (uint32_t k = 0; all[i].result == CUDA_SUCCESS && k < 3; k++) {
            assert_non_null(weir_host_object_find(f.session, WEIR_KIND_SURFACE,
                                                  (void *)(uintptr_t)all[i].numbers[k]));
        }
        (void)tear_down(state); /* nothing else is left */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_head_is_refused),
        cmocka_unit_test(without_its_channel_a_session_is_refused),
        cmocka_unit_test(what_is_damaged_is_refused),
        cmocka_unit_test(contents_of_arrays_are_checked),
        cmocka_unit_test(numbers_of_surfaces_come_out_equal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
