/* The directory: what the supervisor enters, finds and forgets, and how a worker asks it. */
#include "host_backend/supervisor/state/supervisor.h"
#include "host_backend/supervisor/tenants/tenants.h"
#include "host_backend/supervisor/workers/workers.h"
#include "host_backend/worker/memory/directory.h"
#include "host_backend/worker/memory/vmm.h"
#include "host_backend/worker/session/tenant_life.h"
#include "host_backend/worker/state/tenant.h"
#include "host_backend/worker/state/worker.h"

#include "../../lib/tl_cmocka.h"
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MEMORY WEIR_ACCOUNT_DEVICE_MEMORY
#define DEVICE 1u /* on which all memory is */
#define THERE  (WEIR_ACCOUNT_OF_DEVICE + DEVICE)

/* Two workers of tenant A, one of tenant B, and one that has C's remote programs and others'. */
enum { MAKER, TAKER, STRANGER, SHARED, N_WORKERS };
enum { A, B, C, N_TENANTS };

static struct weir_supervisor sup;
static struct weir_account_page pages[N_TENANTS];
static int links[N_WORKERS]; /* the workers' ends */

static int set_up(void **state)
{
    static const int tenants[N_WORKERS] = {A, A, B, -1};

    (void)state;
    memset(&sup, 0, sizeof sup);
    memset(pages, 0, sizeof pages);
    weir_sup_chunks_init(&sup);
    assert_true(weir_sup_directory_open(&sup));
    for (uint32_t i = 0; i < N_TENANTS; i++) {
        sup.tenants[i] = (struct weir_sup_tenant){
            .index = i, .used = true, .worker = i == C ? SHARED : -1, .account = &pages[i]};
    }
    for (int i = 0; i < N_WORKERS; i++) {
        int pair[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
        sup.workers[i] = (struct weir_sup_worker){
            .used = true, .tenant = tenants[i], .link = pair[0], .kind = WEIR_WORKER_PROGRAM};
        links[i] = pair[1];
        if (tenants[i] >= 0) {
            atomic_store(&pages[tenants[i]].of[i][MEMORY], 100);
            atomic_fetch_add(&pages[tenants[i]].used[MEMORY], 100);
            atomic_store(&pages[tenants[i]].of[i][THERE], 100);
            atomic_fetch_add(&pages[tenants[i]].used[THERE], 100);
        }
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    weir_sup_directory_close(&sup);
    for (int i = 0; i < N_WORKERS; i++) {
        close(sup.workers[i].link);
        close(links[i]);
    }
    return 0;
}

/* What the supervisor has answered to a worker, and the descriptor that came with it. */
static enum weir_status answered(int worker, struct weir_link_entry *ret_entry, int *ret_fd)
{
    struct weir_link_message message;

    assert_int_equal(weir_link_receive(links[worker], &message, ret_fd), WEIR_OK);
    assert_int_equal(message.type, WEIR_LINK_FOUND);
    *ret_entry = message.entry;
    return (enum weir_status)message.entry.status;
}

static struct weir_link_entry entry(uint32_t kind, uint32_t tenant, char key)
{
    struct weir_link_entry e = {.question = 7, .kind = kind, .tenant_index = tenant};

    memset(e.key, key, sizeof e.key);
    if (kind == WEIR_ENTRY_MEMORY) {
        e.bytes = 60;
        e.device = DEVICE;
        e.handle_types = 1;
    }
    return e;
}

static enum weir_status publish(int worker, const struct weir_link_entry *e, int fd)
{
    struct weir_link_entry said;
    int no_fd;
    enum weir_status status;

    weir_sup_publish(&sup, worker, e, fd);
    status = answered(worker, &said, &no_fd);
    assert_int_equal(said.question, e->question);
    assert_int_equal(no_fd, -1);
    return status;
}

/* Memory that is one end of a pipe; gives the other, which ends when nobody has the memory. */
static int publish_memory(char key)
{
    const struct weir_link_entry e = entry(WEIR_ENTRY_MEMORY, A, key);
    int ends[2];

    assert_int_equal(pipe(ends), 0);
    assert_int_equal(publish(MAKER, &e, ends[1]), WEIR_OK);
    return ends[0];
}

static bool is_gone(int pipe_end)
{
    struct pollfd wait = {pipe_end, 0, 0};

    return poll(&wait, 1, 0) == 1 && (wait.revents & POLLHUP) != 0;
}

static enum weir_status find(int worker, const struct weir_link_entry *e,
                             struct weir_link_entry *ret_found)
{
    enum weir_status status;
    int fd;

    weir_sup_find(&sup, worker, e);
    status = answered(worker, ret_found, &fd);
    assert_int_equal(fd >= 0, status == WEIR_OK && ret_found->bytes != 0);
    if (fd >= 0) {
        close(fd);
    }
    return status;
}

/* It says how often it has it, and may say so for ever. */
static void what_is_found_in_a_loop_has_an_end(void **state)
{
    struct weir_link_entry mine = entry(WEIR_ENTRY_MEMORY, A, 'k'), found;
    enum weir_status status = WEIR_OK;
    int memory = publish_memory('k');
    uint32_t n = 0;

    (void)state;
    while (n < 100000 && (status = find(TAKER, &mine, &found)) == WEIR_OK) {
        n++;
    }
    assert_int_equal(status, WEIR_ERR_QUOTA);
    assert_in_range(n, 1000, 20000);
    weir_sup_directory_worker_gone(&sup, TAKER);
    assert_int_equal(find(TAKER, &mine, &found), WEIR_OK);
    weir_sup_directory_worker_gone(&sup, TAKER);
    assert_false(is_gone(memory));
    weir_sup_directory_worker_gone(&sup, MAKER);
    assert_true(is_gone(memory));
    close(memory);
}

static uint64_t kept(void)
{
    return atomic_load(&pages[A].of[WEIR_ACCOUNT_KEPT][MEMORY]);
}

static uint64_t used(void)
{
    assert_int_equal(atomic_load(&pages[A].used[THERE]), atomic_load(&pages[A].used[MEMORY]));
    return atomic_load(&pages[A].used[MEMORY]);
}

static void memory_is_found_by_workers_of_its_tenant_alone(void **state)
{
    struct weir_link_entry mine = entry(WEIR_ENTRY_MEMORY, A, 'k'), found;
    struct weir_link_entry theirs = entry(WEIR_ENTRY_MEMORY, B, 'k');
    int memory = publish_memory('k');

    (void)state;
    mine.bytes = theirs.bytes = 0;
    assert_int_equal(find(TAKER, &mine, &found), WEIR_OK);
    assert_int_equal(found.bytes, 60);
    assert_int_equal(found.device, 1);
    assert_int_equal(found.handle_types, 1);
    assert_int_equal(find(STRANGER, &theirs, &found), WEIR_ERR_NOT_FOUND);
    assert_int_equal(find(STRANGER, &mine, &found), WEIR_ERR_NOT_FOUND); /* it says that it is A */
    assert_int_equal(find(SHARED, &mine, &found), WEIR_ERR_NOT_FOUND);
    mine.kind = WEIR_ENTRY_EVENT;
    assert_int_equal(find(TAKER, &mine, &found), WEIR_ERR_NOT_FOUND);
    close(memory);
}

/* The programs of a tenant that come from other machines are in a worker that others share. */
static void a_shared_worker_speaks_of_those_whom_it_serves(void **state)
{
    const struct weir_link_entry e = entry(WEIR_ENTRY_EVENT, C, 'e');
    struct weir_link_entry found;

    (void)state;
    assert_int_equal(publish(SHARED, &e, -1), WEIR_OK);
    assert_int_equal(find(SHARED, &e, &found), WEIR_OK);
    assert_int_equal(find(MAKER, &e, &found), WEIR_ERR_NOT_FOUND);
    weir_sup_withdraw(&sup, MAKER, &e);
    assert_int_equal(find(SHARED, &e, &found), WEIR_OK);
    weir_sup_directory_worker_gone(&sup, SHARED);
}

static void memory_lives_as_long_as_a_worker_has_it(void **state)
{
    const struct weir_link_entry e = entry(WEIR_ENTRY_MEMORY, A, 'k');
    struct weir_link_entry found;
    int memory = publish_memory('k');

    (void)state;
    assert_int_equal(kept(), 60);
    assert_int_equal(used(), 200);
    find(TAKER, &e, &found);
    find(TAKER, &e, &found);
    weir_sup_directory_worker_gone(&sup, MAKER);
    weir_sup_withdraw(&sup, TAKER, &e);
    weir_sup_withdraw(&sup, STRANGER, &e);
    assert_false(is_gone(memory));
    assert_int_equal(kept(), 60);
    weir_sup_withdraw(&sup, TAKER, &e); /* once for each time that it has found it */
    assert_true(is_gone(memory));
    assert_int_equal(kept(), 0);
    assert_int_equal(used(), 200 - 60);
    assert_int_equal(sup.directory.n_memory, 0);
    close(memory);
}

static void a_descriptor_keeps_its_memory_until_it_is_closed(void **state)
{
    const struct weir_link_entry memory_entry = entry(WEIR_ENTRY_MEMORY, A, 'k');
    struct weir_link_entry e = entry(WEIR_ENTRY_DESCRIPTOR, A, 't'), found;
    int memory = publish_memory('k'), pair[2];

    (void)state;
    memset(e.value, 'k', WEIR_ENTRY_KEY_BYTES);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    assert_int_equal(publish(MAKER, &e, dup(pair[0])), WEIR_OK); /* the worker keeps its own */
    weir_sup_directory_worker_gone(&sup, MAKER);
    weir_sup_directory_look(&sup);
    assert_false(is_gone(memory));
    assert_int_equal(find(TAKER, &e, &found), WEIR_OK);
    assert_memory_equal(found.value, e.value, WEIR_ENTRY_KEY_BYTES);
    close(pair[1]);
    weir_sup_directory_look(&sup);
    weir_sup_directory_look(&sup); /* the copy hangs up, too: nothing of it is left here */
    assert_int_equal(find(TAKER, &e, &found), WEIR_ERR_NOT_FOUND);
    assert_false(is_gone(memory)); /* the taker has it */
    weir_sup_withdraw(&sup, TAKER, &memory_entry);
    assert_true(is_gone(memory));
    close(pair[0]);
    close(memory);
}

static void a_pool_is_its_name(void **state)
{
    struct weir_link_entry e = entry(WEIR_ENTRY_POOL, A, 't'), found;
    int pair[2];

    (void)state;
    strcpy((char *)e.value, "a pool's name");
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    assert_int_equal(publish(MAKER, &e, pair[0]), WEIR_OK);
    assert_int_equal(find(TAKER, &e, &found), WEIR_OK);
    assert_string_equal((char *)found.value, "a pool's name");
    close(pair[1]);
    weir_sup_directory_look(&sup);
    assert_int_equal(find(TAKER, &e, &found), WEIR_ERR_NOT_FOUND);
}

static void an_event_goes_with_its_maker(void **state)
{
    struct weir_link_entry e = entry(WEIR_ENTRY_EVENT, A, 'e'), found;

    (void)state;
    strcpy((char *)e.value, "CUDA's handle");
    assert_int_equal(publish(MAKER, &e, -1), WEIR_OK);
    assert_int_equal(find(TAKER, &e, &found), WEIR_OK);
    assert_string_equal((char *)found.value, "CUDA's handle");
    weir_sup_withdraw(&sup, TAKER, &e); /* not its own */
    assert_int_equal(find(TAKER, &e, &found), WEIR_OK);
    weir_sup_directory_worker_gone(&sup, MAKER);
    assert_int_equal(find(TAKER, &e, &found), WEIR_ERR_NOT_FOUND);
}

static void what_makes_no_sense_is_refused(void **state)
{
    struct weir_link_entry e = entry(WEIR_ENTRY_MEMORY, A, 'k');
    struct weir_link_entry other = entry(WEIR_ENTRY_DESCRIPTOR, A, 't');
    int null = open("/dev/null", O_RDWR);

    (void)state;
    assert_int_equal(publish(MAKER, &e, -1), WEIR_ERR_INVALID);
    e.bytes = 101; /* more than it has charged */
    assert_int_equal(publish(MAKER, &e, dup(null)), WEIR_ERR_INVALID);
    e.bytes = 100;
    e.device = 0; /* where it has charged nothing */
    assert_int_equal(publish(MAKER, &e, dup(null)), WEIR_ERR_INVALID);
    e.device = WEIR_ACCOUNT_DEVICES;
    assert_int_equal(publish(MAKER, &e, dup(null)), WEIR_ERR_INVALID);
    e.device = DEVICE;
    assert_int_equal(publish(STRANGER, &e, dup(null)), WEIR_ERR_INVALID); /* it serves B */
    assert_int_equal(publish(SHARED, &e, dup(null)), WEIR_ERR_INVALID);
    assert_int_equal(publish(MAKER, &other, dup(null)), WEIR_ERR_INVALID); /* of what memory? */
    other.kind = 99;
    assert_int_equal(publish(MAKER, &other, dup(null)), WEIR_ERR_INVALID);
    other.tenant_index = UINT32_MAX;
    assert_int_equal(publish(MAKER, &other, dup(null)), WEIR_ERR_INVALID);
    assert_int_equal(publish(MAKER, &e, dup(null)), WEIR_OK);
    assert_int_equal(publish(MAKER, &e, dup(null)), WEIR_OK); /* the same question, heard again */
    e.question++;
    assert_int_equal(publish(MAKER, &e, dup(null)), WEIR_ERR_INVALID); /* a second time */
    assert_int_equal(used(), 200);
    close(null);
}

static void entries_are_limited(void **state)
{
    struct weir_link_entry e = entry(WEIR_ENTRY_EVENT, A, 'e');
    struct weir_link_entry other = entry(WEIR_ENTRY_EVENT, A, 'f');

    (void)state;
    weir_account_limit_set(&sup.chunks.of[A], WEIR_ACCOUNT_DESCRIPTORS, 1);
    assert_int_equal(publish(MAKER, &e, -1), WEIR_OK);
    assert_int_equal(publish(MAKER, &other, -1), WEIR_ERR_QUOTA);
    weir_sup_withdraw(&sup, MAKER, &e);
    assert_int_equal(publish(MAKER, &other, -1), WEIR_OK);
}

static void all_of_a_tenant_goes_with_it(void **state)
{
    struct weir_link_entry e = entry(WEIR_ENTRY_DESCRIPTOR, A, 't'), found;
    int memory = publish_memory('k'), pair[2];

    (void)state;
    memset(e.value, 'k', WEIR_ENTRY_KEY_BYTES);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    assert_int_equal(publish(MAKER, &e, pair[0]), WEIR_OK);
    weir_sup_directory_tenant_gone(&sup, &sup.tenants[B]);
    assert_int_equal(find(TAKER, &e, &found), WEIR_OK);
    weir_sup_directory_tenant_gone(&sup, &sup.tenants[A]);
    assert_true(is_gone(memory));
    assert_int_equal(kept(), 0);
    assert_int_equal(find(TAKER, &e, &found), WEIR_ERR_NOT_FOUND);
    close(pair[1]);
    close(memory);
}

/* ---------------------------------------------------------------- the worker's half */

static struct weir_worker worker;
static struct weir_tenant *tenant;
static int supervisors_end;

static int set_up_worker(void **state)
{
    struct weir_tenant_config config = {.name = "a", .weight = 1, .sessions_max = 1};
    int pair[2];

    (void)state;
    memset(&worker, 0, sizeof worker);
    memset(pages, 0, sizeof pages);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    worker.link = pair[0];
    supervisors_end = pair[1];
    pthread_mutex_init(&worker.lock, NULL);
    worker.directory = weir_directory_create(worker.link);
    tenant = weir_tenant_create(&worker, 0, &config);
    assert_non_null(tenant);
    tenant->account.page = &pages[A];
    tenant->has_others = true;
    return 0;
}

static int tear_down_worker(void **state)
{
    (void)state;
    tenant->account.page = NULL;
    weir_tenant_destroy(tenant);
    weir_directory_destroy(worker.directory);
    pthread_mutex_destroy(&worker.lock);
    close(worker.link);
    close(supervisors_end);
    return 0;
}

struct search {
    pthread_t thread;
    struct weir_link_entry entry;
    CUresult result;
    int fd;
};

static void *search(void *user)
{
    struct search *s = user;

    s->result = weir_directory_find(tenant, &s->entry, &s->fd);
    return NULL;
}

/* Begin a search, and take its question. */
static struct weir_link_entry begin(struct search *s, uint32_t kind)
{
    struct weir_link_message message;
    int no_fd;

    *s = (struct search){.entry = {.kind = kind}, .fd = -1};
    assert_int_equal(pthread_create(&s->thread, NULL, search, s), 0);
    assert_int_equal(weir_link_receive(supervisors_end, &message, &no_fd), WEIR_OK);
    assert_int_equal(message.type, WEIR_LINK_FIND);
    return message.entry;
}

static void each_gets_its_own_answer(void **state)
{
    struct search pool, memory;
    struct weir_link_entry of_pool = begin(&pool, WEIR_ENTRY_POOL);
    struct weir_link_entry of_memory = begin(&memory, WEIR_ENTRY_MEMORY);
    int null = open("/dev/null", O_RDWR);

    (void)state;
    of_memory.bytes = 60;
    weir_directory_answered(&worker, &of_memory, null);
    pthread_join(memory.thread, NULL);
    assert_int_equal(memory.result, CUDA_SUCCESS);
    assert_int_equal(memory.entry.bytes, 60);
    assert_int_equal(memory.fd, null);
    close(null);
    of_pool.status = WEIR_ERR_NOT_FOUND;
    weir_directory_answered(&worker, &of_pool, -1);
    pthread_join(pool.thread, NULL);
    assert_int_equal(pool.result, CUDA_ERROR_INVALID_VALUE);
}

/* The descriptor was lost on its way: what was found is given up again. */
static void memory_without_its_descriptor_is_withdrawn(void **state)
{
    struct weir_link_message message;
    struct search memory;
    struct weir_link_entry answer = begin(&memory, WEIR_ENTRY_DESCRIPTOR);
    int no_fd;

    (void)state;
    memset(answer.value, 'k', sizeof answer.value);
    weir_directory_answered(&worker, &answer, -1);
    pthread_join(memory.thread, NULL);
    assert_int_equal(memory.result, CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(weir_link_receive(supervisors_end, &message, &no_fd), WEIR_OK);
    assert_int_equal(message.type, WEIR_LINK_WITHDRAW);
    assert_int_equal(message.entry.kind, WEIR_ENTRY_MEMORY);
    assert_memory_equal(message.entry.key, answer.value, WEIR_ENTRY_KEY_BYTES);
}

static void who_waits_at_the_end_is_told(void **state)
{
    struct weir_link_entry answer;
    struct search first, second = {.entry = {.kind = WEIR_ENTRY_POOL}};
    int ends[2];

    (void)state;
    answer = begin(&first, WEIR_ENTRY_MEMORY);
    weir_directory_close(&worker);
    pthread_join(first.thread, NULL);
    assert_int_equal(first.result, CUDA_ERROR_DEVICE_UNAVAILABLE);
    search(&second); /* does not wait */
    assert_int_equal(second.result, CUDA_ERROR_DEVICE_UNAVAILABLE);
    assert_int_equal(pipe(ends), 0);
    weir_directory_answered(&worker, &answer, ends[1]); /* nobody takes it */
    assert_true(is_gone(ends[0]));
    close(ends[0]);
}

static void a_tenant_of_one_worker_asks_nobody(void **state)
{
    uint8_t token[16] = {0}, name[16];

    (void)state;
    assert_true(weir_directory_is_used(tenant));
    tenant->has_others = false;
    assert_false(weir_directory_is_used(tenant));
    assert_int_equal(weir_export_find_name(tenant, token, name), CUDA_ERROR_INVALID_VALUE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_found_in_a_loop_has_an_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(memory_is_found_by_workers_of_its_tenant_alone, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_shared_worker_speaks_of_those_whom_it_serves, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(memory_lives_as_long_as_a_worker_has_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_descriptor_keeps_its_memory_until_it_is_closed, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_pool_is_its_name, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_event_goes_with_its_maker, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_makes_no_sense_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(entries_are_limited, set_up, tear_down),
        cmocka_unit_test_setup_teardown(all_of_a_tenant_goes_with_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(each_gets_its_own_answer, set_up_worker, tear_down_worker),
        cmocka_unit_test_setup_teardown(memory_without_its_descriptor_is_withdrawn, set_up_worker,
                                        tear_down_worker),
        cmocka_unit_test_setup_teardown(who_waits_at_the_end_is_told, set_up_worker,
                                        tear_down_worker),
        cmocka_unit_test_setup_teardown(a_tenant_of_one_worker_asks_nobody, set_up_worker,
                                        tear_down_worker),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
