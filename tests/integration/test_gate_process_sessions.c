/* Sessions that do everything in random orders, behind the gate process: nothing may be left. */
#include "gate_process_fixture.h"

#include <time.h>

#define STREAMS      2u
#define STRESS_STEPS 600u

/* On a busy machine the process's thread may get no core for a second, and would be left. */
bool __wrap_weir_gate_client_is_deaf(struct weir_gate_client *client);

bool __wrap_weir_gate_client_is_deaf(struct weir_gate_client *client)
{
    (void)client;
    return false;
}

/* A session's thread that does, in a random order, what sessions do with streams and marks. */
struct session {
    struct tl_gate_session base; /* first */
    struct worker *worker;
    struct weir_gate_batch unmarked[STREAMS];
    uint32_t words[WORDS]; /* of the device, used in turn: each counts up to its mark's number */
    uint32_t given, reached;
    uint64_t seed;
    pthread_t thread;
};

static void mark_stream(struct session *s, uint32_t stream)
{
    uint32_t *word = &s->words[s->given % WORDS];
    struct weir_gate_mark mark = {.word = word, .value = s->given + 1};

    if (s->unmarked[stream].n == 0 || !weir_gate_batch_may_close(s->worker->queue)) {
        return;
    }
    __atomic_store_n(word, s->given++, __ATOMIC_RELAXED);
    weir_gate_batch_close(s->worker->queue, &s->unmarked[stream], &mark);
}

static void mark_streams(void *session, struct weir_gate_queue *queue)
{
    struct session *s = session;

    (void)queue;
    for (uint32_t i = 0; i < STREAMS; i++) {
        mark_stream(s, i);
    }
}

static void reach(struct session *s, uint32_t n)
{
    for (; n != 0 && s->reached != s->given; n--, s->reached++) {
        __atomic_store_n(&s->words[s->reached % WORDS], s->reached + 1, __ATOMIC_RELEASE);
    }
}

/* While it waits for a grant its device goes on. */
static bool attend_session(void *session)
{
    reach(session, 1);
    return true;
}

static const struct weir_gate_session_ops stress_ops = {.is_over = tl_gate_is_over,
                                                        .attend = attend_session,
                                                        .rests = tl_gate_rests,
                                                        .sm_limit_pct = tl_gate_sm_limit_pct,
                                                        .mark_all = mark_streams};

static void give_one(struct session *s, uint32_t stream, uint64_t key, bool given)
{
    struct weir_gate_work work = {.class = key % 2 ? WEIR_SCHED_KERNEL : WEIR_SCHED_GRAPH,
                                  .key = key,
                                  .blocks = 4,
                                  .blocks_per_sm = 1};
    struct weir_gate_batch *unmarked = &s->unmarked[stream];
    struct weir_gate_pass pass;

    if (weir_gate_enter(s->worker->queue, &work, &pass) != WEIR_OK) {
        return;
    }
    if (weir_gate_begins_apart(&pass, unmarked)) {
        mark_stream(s, stream);
    }
    if (weir_gate_leave(&pass, unmarked, given)) {
        mark_stream(s, stream);
    }
}

static void do_anything(struct session *s)
{
    uint64_t r = next_random(&s->seed);
    struct timespec pause = {0, (long)(r >> 16 & 0x1fffff)}; /* up to 2 ms */
    uint32_t stream = r >> 8 & 1;

    switch (r & 15) {
    case 0:
        nanosleep(&pause, NULL); /* long enough now and then that another is alone */
        break;
    case 1:
        weir_gate_batch_drop(s->worker->queue, &s->unmarked[stream]);
        break;
    case 2:
        mark_stream(s, stream);
        break;
    case 3:
        weir_gate_look(s->worker->queue);
        break;
    case 4:
    case 5:
    case 6:
        reach(s, r >> 9 & 7);
        break;
    default:
        give_one(s, stream, 1 + (r >> 12 & 3), (r >> 40 & 15) != 0);
    }
}

static void *run_session(void *user)
{
    struct session *s = user;

    for (uint32_t i = 0; i < STRESS_STEPS; i++) {
        do_anything(s);
    }
    mark_streams(s, s->worker->queue);
    reach(s, UINT32_MAX);
    return NULL;
}

static uint32_t names_in_use(struct weir_gate_client *client)
{
    uint32_t n;

    pthread_mutex_lock(&client->lock);
    n = client->handles_made;
    for (uint32_t at = client->free_handle; at != 0; at = client->handles[at - 1].next_free) {
        n--;
    }
    pthread_mutex_unlock(&client->lock);
    return n;
}

/* Tenants are alone and are not, in turn: when all work has ended, nobody holds anything. */
static void nothing_is_left_when_all_has_ended(void **state)
{
    struct session sessions[4] = {0};

    (void)state;
    process_open();
    for (uint32_t i = 0; i < 4; i++) {
        struct worker *w = worker_new(i + 1, i, (int32_t)i);

        weir_gate_queue_destroy(w->queue);
        sessions[i] = (struct session){.worker = w, .seed = i + 1};
        open_queue(w, &stress_ops, &sessions[i]);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&sessions[i].thread, NULL, run_session, &sessions[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(sessions[i].thread, NULL);
    }
    await(counts_now().items == 0);
    for (int i = 0; i < 4; i++) {
        await(names_in_use(sessions[i].worker->client) == 0); /* which follows the last request */
        worker_gone(sessions[i].worker);
    }
    host_close();
}

/* A session that ends has work on the device, some of it undecided and reported. */
static void a_queue_that_goes_gives_its_names_back(void **state)
{
    struct weir_gate_batch unmarked = {0};
    struct worker *a, *b;

    (void)state;
    process_open();
    a = worker_new(1, 0, 0);
    b = worker_new(2, 1, 1);
    make_alone(a);
    launch(a, 1);
    pass_unmarked(a, &unmarked);
    launch(b, 1);
    await(names_in_use(a->client) == 2);
    weir_gate_queue_destroy(a->queue);
    assert_int_equal(names_in_use(a->client), 0);
    open_queue(a, &tl_gate_session_ops, &a->session);
    worker_gone(a);
    worker_gone(b);
    host_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_left_when_all_has_ended),
        cmocka_unit_test(a_queue_that_goes_gives_its_names_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
