/*
 * Launches of which NCCL tells (launches.c), without NCCL: when they count as begun and over, what happens to
 * reports that come late, and that many threads at once lose nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "inject.h"
#include "launches.h"

struct recorder recorder;

enum { STREAM = 3, OWNER = 7 };

static const struct rec_live_mark *mark(void)
{
    return &recorder.live.marks[STREAM];
}

static void check(uint64_t started, uint64_t ended)
{
    assert_int_equal(atomic_load(&mark()->start), started);
    assert_int_equal(atomic_load(&mark()->end), ended);
}

static int fresh(void **state)
{
    (void)state;
    struct rec_drain_time time;
    memset(recorder.live.marks, 0, sizeof(*recorder.live.marks) * REC_LIVE_DEFAULT_STREAMS);
    while (launch_take_time(&time))
        ;
    return 0;
}

static void over_when_all_channels_are(void **state)
{
    (void)state;
    uint64_t launch = launch_open(STREAM, 5);
    assert_int_equal(launch_number(launch), 5);
    uint64_t task = task_open(launch, 2, OWNER);
    assert_true(launch_close(launch));
    check(0, 0);
    task_began(task, 100);
    check(5, 4); /* the stream has done with what was before */
    task_began(task, 101);
    task_ended(task, 200);
    check(5, 4);
    task_ended(task, 300);
    check(5, 5);
    assert_int_equal(launch_number(launch), 0);
}

static void over_when_all_tasks_are(void **state)
{
    (void)state;
    uint64_t launch = launch_open(STREAM, 1);
    uint64_t first = task_open(launch, 1, OWNER), second = task_open(launch, 0, OWNER);
    task_began(first, 10);
    task_ended(first, 20);
    assert_true(launch_close(launch));
    check(1, 0);
    task_began(second, 30); /* of unknown size: over when all that began have ended */
    task_began(second, 31);
    task_ended(second, 40);
    check(1, 0);
    task_ended(second, 35);
    check(1, 1);
    struct rec_drain_time time;
    assert_true(launch_take_time(&time));
    assert_true(!time.ended && time.stream == STREAM && time.launch == 1 && time.time_ns == 10);
    assert_true(launch_take_time(&time));
    assert_true(time.ended && time.launch == 1 && time.time_ns == 40); /* the latest end */
    assert_false(launch_take_time(&time));
}

/* Fast kernels end while the host is still busy with the next ones of the same launch. */
static void not_over_before_the_host_is_through(void **state)
{
    (void)state;
    uint64_t launch = launch_open(STREAM, 1), task = task_open(launch, 1, OWNER);
    task_began(task, 10);
    task_ended(task, 20);
    check(1, 0);
    task = task_open(launch, 1, OWNER);
    assert_true(launch_close(launch));
    check(1, 0);
    task_ended(task, 30);
    check(1, 1);
}

static void reports_of_what_is_over(void **state)
{
    (void)state;
    uint64_t launch = launch_open(STREAM, 1), task = task_open(launch, 1, OWNER);
    launch_close(launch);
    task_ended(task, 10);
    check(0, 1);
    uint16_t owner;
    assert_false(task_owner(task, &owner));
    /* The same entries are in use again, under other names. */
    uint64_t later = launch_open(STREAM, 2), later_task = task_open(later, 1, OWNER);
    assert_true(later != launch && later_task != task);
    task_began(task, 20);
    task_ended(task, 20);
    assert_int_equal(task_open(launch, 1, OWNER), 0);
    assert_false(launch_close(launch));
    check(0, 1);
    task_ended(later_task, 30);
    launch_close(later);
    check(0, 2);
    task_began(0, 1);
    task_ended(0, 1);
    assert_false(launch_close(0));
    assert_int_equal(task_open(0, 1, OWNER), 0);
}

static void nobody_tells(void **state)
{
    (void)state;
    const _Atomic uint64_t *dropped = &mark()->dropped;
    for (uint64_t number = 1; number <= 4; number++)
        assert_false(launch_close(launch_open(STREAM, number)));
    launch_unmarked(STREAM, 2);
    launch_unmarked(STREAM, 4);
    assert_int_equal(atomic_load(dropped), 2);
    /* The third one begins: the second is over; of the fourth nothing is known. */
    uint64_t third = launch_open(STREAM, 3), task = task_open(third, 1, OWNER);
    task_began(task, 1);
    assert_int_equal(atomic_load(dropped), 4);
    task_ended(task, 2);
    launch_close(third);
    uint64_t fifth = launch_open(STREAM, 5);
    task = task_open(fifth, 1, OWNER);
    launch_close(fifth);
    task_began(task, 3);
    assert_int_equal(atomic_load(dropped), 0);
    task_ended(task, 4);
    check(5, 5);
}

static void dropped_with_their_communicator(void **state)
{
    (void)state;
    uint64_t launch = launch_open(STREAM, 1), mine = task_open(launch, 1, OWNER),
             other = task_open(launch, 1, OWNER + 1);
    launch_close(launch);
    task_began(mine, 1);
    tasks_drop(OWNER);
    task_ended(mine, 2);
    task_ended(other, 3);
    check(1, 0); /* nobody knows that it is over */
    assert_int_equal(launch_number(launch), 0);
}

static void more_than_there_is_room_for(void **state)
{
    (void)state;
    static uint64_t names[20000];
    size_t n = 0;
    while (n < 20000 && (names[n] = launch_open(STREAM, n + 1)) != 0)
        n++;
    assert_in_range(n, 1000, 19999);
    static uint64_t tasks[40000];
    size_t ntasks = 0;
    while (ntasks < 40000 && (tasks[ntasks] = task_open(names[0], 1, OWNER)) != 0)
        ntasks++;
    assert_in_range(ntasks, 1000, 39999);
    for (size_t i = 0; i < ntasks; i++)
        task_ended(tasks[i], 1);
    for (size_t i = 0; i < n; i++)
        launch_close(names[i]);
    check(0, 1);
    struct rec_drain_time time;
    while (launch_take_time(&time))
        ;
    for (uint64_t i = 0; i < 100000; i++) { /* the times are not taken: what is too much is forgotten */
        uint64_t launch = launch_open(STREAM, i + 1), task = task_open(launch, 1, OWNER);
        assert_true(task != 0);
        launch_close(launch);
        task_ended(task, i + 1);
    }
    check(0, 100000);
    size_t told = 0;
    uint64_t last = 0;
    while (launch_take_time(&time)) {
        assert_true(time.time_ns > last);
        last = time.time_ns;
        told++;
    }
    assert_in_range(told, 1000, 99999);
}

/* One thread launches on each stream, another one reports, as NCCL's proxy does; a third takes the times. */
enum { THREADS = 4, ROUNDS = 20000, WINDOW = 64 };
static _Atomic uint64_t window[THREADS][WINDOW];
static _Atomic uint64_t handed[THREADS], reported[THREADS];
static _Atomic bool done;
static uint64_t taken[THREADS];

static void *launching(void *argument)
{
    size_t me = *(size_t *)argument;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        while (i - atomic_load(&reported[me]) >= WINDOW)
            sched_yield();
        uint64_t launch = launch_open((uint16_t)me, i + 1);
        atomic_store(&window[me][i % WINDOW], task_open(launch, 2, (uint16_t)me));
        atomic_store(&handed[me], i + 1);
        launch_close(launch);
    }
    return NULL;
}

static void *reporting(void *argument)
{
    size_t me = *(size_t *)argument;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        while (atomic_load(&handed[me]) <= i)
            sched_yield();
        uint64_t task = atomic_load(&window[me][i % WINDOW]);
        task_began(task, 2 * i + 1);
        task_began(task, 2 * i + 1);
        task_ended(task, 2 * i + 2);
        task_ended(task, 2 * i + 2);
        atomic_store(&reported[me], i + 1);
    }
    return NULL;
}

static void *taking(void *unused)
{
    (void)unused;
    struct rec_drain_time time;
    for (bool last = false; !last;) {
        last = atomic_load(&done);
        while (launch_take_time(&time)) {
            assert_in_range(time.stream, 0, THREADS - 1);
            assert_int_equal(time.time_ns, 2 * (time.launch - 1) + (time.ended ? 2 : 1));
            taken[time.stream]++;
        }
        sched_yield();
    }
    return NULL;
}

static void many_threads(void **state)
{
    (void)state;
    pthread_t threads[2 * THREADS], taker;
    size_t numbers[THREADS];
    assert_int_equal(pthread_create(&taker, NULL, taking, NULL), 0);
    for (size_t i = 0; i < THREADS; i++) {
        numbers[i] = i;
        assert_int_equal(pthread_create(&threads[2 * i], NULL, launching, &numbers[i]), 0);
        assert_int_equal(pthread_create(&threads[2 * i + 1], NULL, reporting, &numbers[i]), 0);
    }
    for (size_t i = 0; i < 2 * THREADS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&done, true);
    pthread_join(taker, NULL);
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(atomic_load(&recorder.live.marks[i].start), ROUNDS);
        assert_int_equal(atomic_load(&recorder.live.marks[i].end), ROUNDS);
        assert_in_range(taken[i], 1, 2 * ROUNDS);
    }
}

int main(void)
{
    recorder.live.marks = calloc(REC_LIVE_DEFAULT_STREAMS, sizeof(*recorder.live.marks));
    if (!recorder.live.marks)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(over_when_all_channels_are, fresh),
        cmocka_unit_test_setup(over_when_all_tasks_are, fresh),
        cmocka_unit_test_setup(not_over_before_the_host_is_through, fresh),
        cmocka_unit_test_setup(reports_of_what_is_over, fresh),
        cmocka_unit_test_setup(nobody_tells, fresh),
        cmocka_unit_test_setup(dropped_with_their_communicator, fresh),
        cmocka_unit_test_setup(more_than_there_is_room_for, fresh),
        cmocka_unit_test_setup(many_threads, fresh),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(recorder.live.marks);
    return failed;
}
