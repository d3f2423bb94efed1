/* Traces: what is written is read, what is hostile is refused with its place. */
#include "sched/trace/trace.h"

#include "../../lib/tl_cmocka.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct file {
    uint8_t *data;
    uint64_t bytes;
};

static struct weir_sched_config config(void)
{
    struct weir_sched_config c;
    weir_sched_config_init(&c, 132);
    return c;
}

/* A trace into a memory file; *ret_fd reads it. */
static struct weir_sched_trace *begin_with(struct weir_sched_config c, uint32_t ring, int *ret_fd)
{
    struct weir_sched_trace *trace;
    int fd = memfd_create("trace", MFD_CLOEXEC);
    assert_true(fd >= 0);
    *ret_fd = dup(fd);
    assert_int_equal(weir_sched_trace_create(&c, 0, 7, ring, fd, &trace), WEIR_OK);
    return trace;
}

static struct weir_sched_trace *begin(uint32_t ring, int *ret_fd)
{
    return begin_with(config(), ring, ret_fd);
}

static struct file slurp(int fd)
{
    struct file f = {.bytes = (uint64_t)lseek(fd, 0, SEEK_END)};
    f.data = malloc(f.bytes + 1);
    assert_non_null(f.data);
    assert_int_equal(pread(fd, f.data, f.bytes, 0), f.bytes);
    close(fd);
    return f;
}

static struct weir_sched_record arrival(uint64_t at_ns, uint64_t item)
{
    return (struct weir_sched_record){.at_ns = at_ns,
                                      .tenant = 5,
                                      .queue = 6,
                                      .item = item,
                                      .key = 77,
                                      .bytes = 8,
                                      .value = 1000,
                                      .blocks = 9,
                                      .blocks_per_sm = 2,
                                      .kind = WEIR_SCHED_REC_ARRIVE,
                                      .class = WEIR_SCHED_KERNEL,
                                      .flags = WEIR_SCHED_STOPPABLE};
}

static void put_and_read_gives_the_same(void **state)
{
    (void)state;
    int fd;
    struct weir_sched_trace *trace = begin(64, &fd);
    const struct weir_sched_trace_nature nature = {1000000, 500000};
    const struct weir_sched_record one = arrival(10, 3);
    struct weir_sched_trace_reader reader;
    struct weir_sched_trace_error error;
    struct weir_sched_record r;
    char text[WEIR_SCHED_TRACE_TEXT_BYTES + 1];
    char name[80];

    memset(name, 'n', sizeof name);
    name[63] = '\0';
    weir_sched_trace_policy(trace, 1, 0, "fair");
    weir_sched_trace_policy(trace, 0, 1, NULL);
    weir_sched_trace_tenant_name(trace, 99, 5, name); /* its time is the last one's */
    weir_sched_trace_kernel(trace, 2, 77, &nature);
    assert_true(weir_sched_trace_put(trace, &one));
    assert_int_equal(weir_sched_trace_destroy(trace), WEIR_OK);

    struct file f = slurp(fd);
    assert_int_equal(f.bytes, 128 + 7 * 80);
    assert_int_equal(weir_sched_trace_open(f.data, f.bytes, &reader, &error), WEIR_OK);
    assert_int_equal(reader.header.sms, 132);
    assert_int_equal(reader.header.wall_ns, 7);
    assert_int_equal(reader.header.starve_ns, config().starve_ns);
    assert_int_equal(weir_sched_trace_next(&reader, &r, &error), WEIR_OK);
    weir_sched_trace_text(&r, text);
    assert_string_equal(text, "fair");
    assert_int_equal(r.at_ns, 1);
    assert_int_equal(weir_sched_trace_next(&reader, &r, &error), WEIR_OK);
    assert_int_equal(r.flags, 1);
    for (int part = 0; part < 2; part++) {
        assert_int_equal(weir_sched_trace_next(&reader, &r, &error), WEIR_OK);
        weir_sched_trace_text(&r, text);
        assert_int_equal(r.flags, part);
        assert_int_equal(strlen(text), part ? 3 : 60);
    }
    assert_int_equal(weir_sched_trace_next(&reader, &r, &error), WEIR_OK);
    assert_int_equal(weir_sched_trace_nature_of(&r).memory_ppm, 500000);
    assert_int_equal(weir_sched_trace_next(&reader, &r, &error), WEIR_OK);
    assert_memory_equal(&r, &one, sizeof r);
    assert_int_equal(weir_sched_trace_next(&reader, &r, &error), WEIR_OK);
    assert_int_equal(r.kind, WEIR_SCHED_TRACE_END);
    assert_int_equal(r.at_ns, 10);
    assert_int_equal(weir_sched_trace_next(&reader, &r, &error), WEIR_ERR_NOT_FOUND);
    assert_true(reader.has_ended);
    free(f.data);
}

static void who_may_fill_is_kept(void **state)
{
    (void)state;
    for (int fill = 0; weir_sched_fill_words[fill]; fill++) {
        struct weir_sched_config c = config();
        struct weir_sched_trace_reader reader;
        struct weir_sched_trace_error error;
        int fd;
        c.fill = (enum weir_sched_fill)fill;
        assert_int_equal(weir_sched_trace_destroy(begin_with(c, 16, &fd)), WEIR_OK);
        struct file f = slurp(fd);
        assert_int_equal(weir_sched_trace_open(f.data, f.bytes, &reader, &error), WEIR_OK);
        c = config();
        weir_sched_trace_config(&reader.header, &c);
        assert_int_equal(c.fill, fill);
        free(f.data);
    }
}

static void put_into_a_full_ring_loses_and_says_so(void **state)
{
    (void)state;
    int fd;
    struct weir_sched_trace *trace = begin(16, &fd);
    struct weir_sched_trace_reader reader;
    struct weir_sched_trace_error error;
    struct weir_sched_record r;
    for (uint64_t i = 1; i <= 20; i++) {
        r = arrival(i, i);
        assert_int_equal(weir_sched_trace_put(trace, &r), i <= 16);
    }
    assert_int_equal(weir_sched_trace_lost(trace), 4);
    assert_int_equal(weir_sched_trace_flush(trace), WEIR_OK);
    r = arrival(21, 21);
    assert_true(weir_sched_trace_put(trace, &r));
    assert_int_equal(weir_sched_trace_destroy(trace), WEIR_OK);

    struct file f = slurp(fd);
    assert_int_equal(weir_sched_trace_open(f.data, f.bytes, &reader, &error), WEIR_OK);
    for (uint64_t i = 1; i <= 16; i++) {
        assert_int_equal(weir_sched_trace_next(&reader, &r, &error), WEIR_OK);
        assert_int_equal(r.item, i);
    }
    assert_int_equal(weir_sched_trace_next(&reader, &r, &error), WEIR_OK);
    assert_int_equal(r.kind, WEIR_SCHED_TRACE_LOST);
    assert_int_equal(r.value, 4);
    assert_int_equal(weir_sched_trace_next(&reader, &r, &error), WEIR_OK);
    assert_int_equal(r.item, 21);
    free(f.data);
}

#define RACED 20000u

static void *flush_often(void *argument)
{
    struct weir_sched_trace *trace = argument;
    for (int i = 0; i < 300; i++) {
        assert_int_equal(weir_sched_trace_flush(trace), WEIR_OK);
    }
    return NULL;
}

/* Producer and consumer at once: nothing is torn, what is missing is counted. */
static void put_beside_a_flusher_keeps_order(void **state)
{
    (void)state;
    int fd;
    struct weir_sched_trace *trace = begin(1024, &fd);
    struct weir_sched_trace_reader reader;
    struct weir_sched_trace_error error;
    struct weir_sched_record r;
    pthread_t thread;
    uint64_t seen = 0, last = 0, lost = 0;
    assert_int_equal(pthread_create(&thread, NULL, flush_often, trace), 0);
    for (uint64_t i = 1; i <= RACED; i++) {
        r = arrival(i, i);
        (void)weir_sched_trace_put(trace, &r);
    }
    pthread_join(thread, NULL);
    assert_int_equal(weir_sched_trace_destroy(trace), WEIR_OK);

    struct file f = slurp(fd);
    assert_int_equal(weir_sched_trace_open(f.data, f.bytes, &reader, &error), WEIR_OK);
    while (weir_sched_trace_next(&reader, &r, &error) == WEIR_OK) {
        if (r.kind == WEIR_SCHED_TRACE_LOST) {
            lost += r.value;
            last += r.value;
        } else if (r.kind == WEIR_SCHED_REC_ARRIVE) {
            assert_int_equal(r.item, last + 1);
            last = r.item;
            seen++;
        }
    }
    assert_true(reader.has_ended);
    assert_int_equal(seen + lost, RACED);
    free(f.data);
}

static void flush_to_a_full_disk_fails_for_good(void **state)
{
    (void)state;
    struct weir_sched_config c = config();
    struct weir_sched_trace *trace;
    struct weir_sched_record r = arrival(1, 1);
    int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        skip();
    }
    assert_int_equal(weir_sched_trace_create(&c, 0, 0, 64, fd, &trace), WEIR_ERR_NO_SPACE);
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    assert_int_equal(weir_sched_trace_create(&c, 0, 0, 4096, ends[1], &trace), WEIR_OK);
    for (int i = 0; i < 4096; i++) {
        assert_true(weir_sched_trace_put(trace, &r)); /* five times what a pipe takes */
    }
    assert_int_equal(weir_sched_trace_flush(trace), WEIR_ERR_IO);
    assert_true(weir_sched_trace_put(trace, &r));
    assert_int_equal(weir_sched_trace_destroy(trace), WEIR_ERR_IO);
    close(ends[0]);
}

static void create_refuses_nonsense(void **state)
{
    (void)state;
    struct weir_sched_config c = config();
    struct weir_sched_trace *trace;
    assert_int_equal(weir_sched_trace_create(&c, 0, 0, 15, memfd_create("t", 0), &trace),
                     WEIR_ERR_INVALID);
    c.sms = 0;
    assert_int_equal(weir_sched_trace_create(&c, 0, 0, 64, memfd_create("t", 0), &trace),
                     WEIR_ERR_INVALID);
}

/* A file with one record at its only place. */
static struct file file_of(const struct weir_sched_record *record)
{
    int fd;
    struct weir_sched_trace *trace = begin(16, &fd);
    assert_true(weir_sched_trace_put(trace, record));
    assert_int_equal(weir_sched_trace_destroy(trace), WEIR_OK);
    return slurp(fd);
}

static void open_refuses_other_files(void **state)
{
    (void)state;
    const struct {
        const char *name;
        size_t offset;
        uint32_t value;
        enum weir_status status;
        uint64_t where;
    } rows[] = {
        {"magic", 0, 0, WEIR_ERR_SYNTAX, 0},
        {"version", 8, 2, WEIR_ERR_VERSION, 8},
        {"header size", 12, 64, WEIR_ERR_SYNTAX, 12},
        {"record size", 16, 0, WEIR_ERR_SYNTAX, 12},
        {"no SMs", 20, 0, WEIR_ERR_SYNTAX, 20},
        {"SMs", 20, 1u << 20, WEIR_ERR_SYNTAX, 20},
        {"flags", 24, 0x80, WEIR_ERR_SYNTAX, 24},
        {"a time", 44, 0x80000000u, WEIR_ERR_SYNTAX, 40},
    };
    const struct weir_sched_record one = arrival(1, 1);
    struct weir_sched_trace_reader reader;
    struct weir_sched_trace_error error;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct file f = file_of(&one);
        memcpy(f.data + rows[i].offset, &rows[i].value, 4);
        print_message("%s\n", rows[i].name);
        assert_int_equal(weir_sched_trace_open(f.data, f.bytes, &reader, &error), rows[i].status);
        assert_int_equal(error.offset, rows[i].where);
        assert_true(error.text[0]);
        for (uint64_t cut = 0; cut < 128; cut++) {
            assert_int_equal(weir_sched_trace_open(f.data, cut, &reader, &error), WEIR_ERR_SYNTAX);
        }
        free(f.data);
    }
}

static void next_refuses_hostile_records(void **state)
{
    (void)state;
    const struct {
        const char *name;
        struct weir_sched_record record;
    } rows[] = {
        {"unknown kind", {.kind = 100}},
        {"unknown own kind", {.kind = 250}},
        {"weight 0", {.kind = WEIR_SCHED_REC_TENANT_ADD, .tenant = 1, .value = 100ull << 40}},
        {"weight", {.kind = WEIR_SCHED_REC_TENANT_SET, .tenant = 1, .value = 10001}},
        {"class",
         {.kind = WEIR_SCHED_REC_TENANT_ADD, .tenant = 1, .value = 1 | 3ull << 32 | 100ull << 40}},
        {"limit", {.kind = WEIR_SCHED_REC_TENANT_ADD, .tenant = 1, .value = 1 | 101ull << 40}},
        {"no tenant", {.kind = WEIR_SCHED_REC_TENANT_REMOVE}},
        {"no queue", {.kind = WEIR_SCHED_REC_QUEUE_ADD, .tenant = 1}},
        {"no item", {.kind = WEIR_SCHED_REC_ARRIVE, .tenant = 1, .queue = 1}},
        {"class of work",
         {.kind = WEIR_SCHED_REC_ARRIVE, .tenant = 1, .queue = 1, .item = 1, .class = 6}},
        {"flags",
         {.kind = WEIR_SCHED_REC_ARRIVE, .tenant = 1, .queue = 1, .item = 1, .flags = 512}},
        {"time", {.kind = WEIR_SCHED_REC_TICK, .at_ns = UINT64_MAX}},
        {"place", {.kind = WEIR_SCHED_REC_START, .item = 1, .place = {0, 133, 0}}},
        {"place that overflows",
         {.kind = WEIR_SCHED_REC_RESIZE, .item = 1, .place = {UINT32_MAX, 2, 0}}},
        {"running", {.kind = WEIR_SCHED_REC_RUNNING, .item = 1, .value = 2}},
        {"duration", {.kind = WEIR_SCHED_REC_FINISH, .item = 1, .value = UINT64_MAX - 1}},
        {"name with a blank", {.kind = WEIR_SCHED_TRACE_NAME, .tenant = 1, .queue = ' '}},
        {"name behind its NUL", {.kind = WEIR_SCHED_TRACE_NAME, .tenant = 1, .item = 'a'}},
        {"third part", {.kind = WEIR_SCHED_TRACE_NAME, .tenant = 1, .flags = 2}},
        {"nature", {.kind = WEIR_SCHED_TRACE_KERNEL, .value = 1000001}},
    };
    struct weir_sched_trace_reader reader;
    struct weir_sched_trace_error error;
    struct weir_sched_record r;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct file f = file_of(&rows[i].record);
        print_message("%s\n", rows[i].name);
        assert_int_equal(weir_sched_trace_open(f.data, f.bytes, &reader, &error), WEIR_OK);
        assert_int_equal(weir_sched_trace_next(&reader, &r, &error), WEIR_ERR_SYNTAX);
        assert_int_equal(error.offset, 128);
        assert_true(error.text[0]);
        free(f.data);
    }
}

static void next_takes_a_time_that_is_not_known(void **state)
{
    const struct weir_sched_record one = {
        .kind = WEIR_SCHED_REC_FINISH, .item = 1, .value = WEIR_SCHED_UNKNOWN};
    struct file f = file_of(&one);
    struct weir_sched_trace_reader reader;
    struct weir_sched_trace_error error;
    struct weir_sched_record r;

    (void)state;
    assert_int_equal(weir_sched_trace_open(f.data, f.bytes, &reader, &error), WEIR_OK);
    assert_int_equal(weir_sched_trace_next(&reader, &r, &error), WEIR_OK);
    assert_true(r.value == WEIR_SCHED_UNKNOWN);
    free(f.data);
}

static void next_refuses_time_that_runs_back_and_more_behind_the_end(void **state)
{
    (void)state;
    int fd;
    struct weir_sched_trace *trace = begin(16, &fd);
    struct weir_sched_trace_reader reader;
    struct weir_sched_trace_error error;
    struct weir_sched_record r = arrival(5, 1);
    assert_true(weir_sched_trace_put(trace, &r));
    r = arrival(4, 2);
    assert_true(weir_sched_trace_put(trace, &r));
    assert_int_equal(weir_sched_trace_destroy(trace), WEIR_OK);
    struct file f = slurp(fd);
    assert_int_equal(weir_sched_trace_open(f.data, f.bytes, &reader, &error), WEIR_OK);
    assert_int_equal(weir_sched_trace_next(&reader, &r, &error), WEIR_OK);
    assert_int_equal(weir_sched_trace_next(&reader, &r, &error), WEIR_ERR_SYNTAX);
    assert_int_equal(error.offset, 208);
    free(f.data);

    r = (struct weir_sched_record){.kind = WEIR_SCHED_TRACE_END};
    f = file_of(&r); /* and its own end behind it */
    assert_int_equal(weir_sched_trace_open(f.data, f.bytes, &reader, &error), WEIR_OK);
    assert_int_equal(weir_sched_trace_next(&reader, &r, &error), WEIR_OK);
    assert_int_equal(weir_sched_trace_next(&reader, &r, &error), WEIR_ERR_SYNTAX);
    free(f.data);
}

static void next_at_a_cut_says_so(void **state)
{
    (void)state;
    struct weir_sched_record r = arrival(5, 1);
    struct file f = file_of(&r);
    struct weir_sched_trace_reader reader;
    struct weir_sched_trace_error error;
    assert_int_equal(weir_sched_trace_open(f.data, f.bytes - 1, &reader, &error), WEIR_OK);
    assert_int_equal(weir_sched_trace_next(&reader, &r, &error), WEIR_OK);
    assert_int_equal(weir_sched_trace_next(&reader, &r, &error), WEIR_ERR_NOT_FOUND);
    assert_true(reader.is_cut);
    assert_false(reader.has_ended);
    free(f.data);
}

static void every_kind_has_a_word_and_a_line(void **state)
{
    (void)state;
    char text[512];
    for (unsigned kind = 0; kind < 256; kind++) {
        if (!weir_sched_trace_kind_word((uint8_t)kind)) {
            assert_true(kind >= WEIR_SCHED_REC_KIND_COUNT && (kind < 200 || kind > 204));
            continue;
        }
        struct weir_sched_record r = {.kind = (uint8_t)kind, .tenant = 1, .value = 1};
        FILE *out = fmemopen(text, sizeof text, "w");
        assert_non_null(out);
        weir_sched_trace_print(out, &r);
        assert_int_equal(fclose(out), 0);
        assert_non_null(strstr(text, weir_sched_trace_kind_word((uint8_t)kind)));
        assert_int_equal(text[strlen(text) - 1], '\n');
    }
    assert_null(weir_sched_trace_class_word(WEIR_SCHED_CLASS_COUNT));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(put_and_read_gives_the_same),
        cmocka_unit_test(who_may_fill_is_kept),
        cmocka_unit_test(put_into_a_full_ring_loses_and_says_so),
        cmocka_unit_test(put_beside_a_flusher_keeps_order),
        cmocka_unit_test(flush_to_a_full_disk_fails_for_good),
        cmocka_unit_test(create_refuses_nonsense),
        cmocka_unit_test(open_refuses_other_files),
        cmocka_unit_test(next_refuses_hostile_records),
        cmocka_unit_test(next_takes_a_time_that_is_not_known),
        cmocka_unit_test(next_refuses_time_that_runs_back_and_more_behind_the_end),
        cmocka_unit_test(next_at_a_cut_says_so),
        cmocka_unit_test(every_kind_has_a_word_and_a_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
