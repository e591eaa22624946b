#include "launches.h"

#include <string.h>

#include "inject.h"

#define INDEX_BITS 14
#define LAUNCHES   (1u << 13)
#define TASKS      (1u << INDEX_BITS)
#define TIMES      8192u

/* ---- free entries --------------------------------------------------------------------------- */

/* A stack of those given back; below it, those never taken. head: index + 1, and in the upper half a count of
 * changes, so that a stale head never looks right. */
struct pool {
    _Atomic uint64_t head;
    _Atomic uint32_t fresh;
    const uint32_t size;
    _Atomic uint32_t *const next; /* index + 1 */
};

static _Atomic uint32_t next_launch[LAUNCHES], next_task[TASKS];
static struct pool launch_pool = {.size = LAUNCHES, .next = next_launch};
static struct pool task_pool = {.size = TASKS, .next = next_task};

/* Acquire and release: who takes an entry sees all that was done by who gave it back. */
static bool pool_take(struct pool *pool, uint32_t *index)
{
    uint64_t head = atomic_load_explicit(&pool->head, memory_order_acquire);
    while ((uint32_t)head != 0) {
        uint32_t below = atomic_load_explicit(&pool->next[(uint32_t)head - 1], memory_order_relaxed);
        uint64_t changed = ((head >> 32) + 1) << 32 | below;
        if (atomic_compare_exchange_weak_explicit(&pool->head, &head, changed, memory_order_acquire,
                                                  memory_order_acquire)) {
            *index = (uint32_t)head - 1;
            return true;
        }
    }
    uint32_t fresh = atomic_load_explicit(&pool->fresh, memory_order_relaxed);
    while (fresh < pool->size)
        if (atomic_compare_exchange_weak_explicit(&pool->fresh, &fresh, fresh + 1, memory_order_relaxed,
                                                  memory_order_relaxed)) {
            *index = fresh;
            return true;
        }
    return false;
}

static void pool_give(struct pool *pool, uint32_t index)
{
    uint64_t head = atomic_load_explicit(&pool->head, memory_order_relaxed), changed;
    do {
        atomic_store_explicit(&pool->next[index], (uint32_t)head, memory_order_relaxed);
        changed = ((head >> 32) + 1) << 32 | (index + 1);
    } while (!atomic_compare_exchange_weak_explicit(&pool->head, &head, changed, memory_order_release,
                                                    memory_order_relaxed));
}

/* Above the index stands how often the entry has been used, from 1 on. */
static uint64_t name_of(uint64_t *uses, unsigned bits, uint32_t index)
{
    uint64_t most = (UINT64_C(1) << (bits - INDEX_BITS)) - 1;
    return ((*uses)++ % most + 1) << INDEX_BITS | index;
}

/* ---- times, for the drain thread -------------------------------------------------------------- */

/* Many put, one takes. turn: position for which the cell is free; position + 1 = filled (release). */
static struct cell {
    _Atomic uint64_t turn; /* less the index: so that zeros are right at the start */
    struct rec_drain_time time;
} cells[TIMES];
static _Atomic uint64_t times_put;
static uint64_t times_taken; /* the drain thread's */

static void put_time(const struct rec_drain_time *time)
{
    uint64_t at = atomic_load_explicit(&times_put, memory_order_relaxed);
    for (;;) {
        struct cell *cell = &cells[at % TIMES];
        uint64_t turn = atomic_load_explicit(&cell->turn, memory_order_acquire) + at % TIMES;
        if ((int64_t)(turn - at) < 0)
            return; /* full: the words tell it, without the exact time */
        if (turn != at) {
            at = atomic_load_explicit(&times_put, memory_order_relaxed);
            continue;
        }
        if (atomic_compare_exchange_weak_explicit(&times_put, &at, at + 1, memory_order_relaxed,
                                                  memory_order_relaxed)) {
            cell->time = *time;
            atomic_store_explicit(&cell->turn, at + 1 - at % TIMES, memory_order_release);
            return;
        }
    }
}

bool launch_take_time(struct rec_drain_time *time)
{
    struct cell *cell = &cells[times_taken % TIMES];
    uint64_t index = times_taken % TIMES;
    if (atomic_load_explicit(&cell->turn, memory_order_acquire) + index != times_taken + 1)
        return false;
    *time = cell->time;
    /* Release: who fills it next does so after it has been read. */
    atomic_store_explicit(&cell->turn, times_taken + TIMES - index, memory_order_release);
    times_taken++;
    return true;
}

/* ---- the words that readers see ----------------------------------------------------------------- */

static _Atomic uint64_t last_unmarked[REC_LIVE_DEFAULT_STREAMS];

static void raise_to(_Atomic uint64_t *word, uint64_t number)
{
    uint64_t have = atomic_load_explicit(word, memory_order_relaxed);
    while (have < number && !atomic_compare_exchange_weak_explicit(word, &have, number, memory_order_release,
                                                                   memory_order_relaxed))
        ;
}

/*
 * Launches of which nobody tells hide all later ones of their stream from readers, until one of those begins:
 * for then all before it are over. Sequentially consistent, so that of who adds one and who clears at least
 * the second sees the first.
 */
void launch_unmarked(uint16_t stream, uint64_t number)
{
    uint64_t none = 0;
    atomic_store(&last_unmarked[stream], number);
    atomic_compare_exchange_strong(&recorder.live.marks[stream].dropped, &none, number);
}

static void forget_unmarked(uint16_t stream, uint64_t number)
{
    _Atomic uint64_t *dropped = &recorder.live.marks[stream].dropped;
    uint64_t have = atomic_load_explicit(dropped, memory_order_relaxed);
    if (likely(have == 0) || have >= number)
        return;
    atomic_store(dropped, 0);
    uint64_t none = 0;
    if (atomic_load(&last_unmarked[stream]) > number)
        atomic_compare_exchange_strong(dropped, &none, number + 1);
}

static void publish_begin(uint16_t stream, uint64_t number, uint64_t real_ns)
{
    struct rec_live_mark *mark = &recorder.live.marks[stream];
    put_time(&(struct rec_drain_time){.stream = stream, .launch = number, .time_ns = real_ns});
    /* The stream runs them in order. */
    raise_to(&mark->end, number - 1);
    raise_to(&mark->start, number);
    forget_unmarked(stream, number);
}

static void publish_end(uint16_t stream, uint64_t number, uint64_t real_ns)
{
    put_time(&(struct rec_drain_time){.stream = stream, .ended = true, .launch = number, .time_ns = real_ns});
    raise_to(&recorder.live.marks[stream].end, number);
}

/* ---- launches -------------------------------------------------------------------------------------- */

static struct launch {
    _Atomic uint64_t name; /* 0 = free. Release after the rest */
    uint64_t uses;         /* whoever has taken it */
    _Atomic uint64_t number;
    _Atomic uint64_t end_ns; /* the latest of its tasks */
    _Atomic uint32_t holds;
    _Atomic uint16_t stream;
    _Atomic bool handed_over; /* it has had a task */
    _Atomic bool begun, dropped;
} launches[LAUNCHES];

static struct launch *launch_of(uint64_t name)
{
    struct launch *launch = &launches[name & (LAUNCHES - 1)];
    return name != 0 && atomic_load_explicit(&launch->name, memory_order_acquire) == name ? launch : NULL;
}

uint64_t launch_open(uint16_t stream, uint64_t number)
{
    uint32_t index;
    if (stream >= REC_LIVE_DEFAULT_STREAMS || !pool_take(&launch_pool, &index))
        return 0;
    struct launch *launch = &launches[index];
    uint64_t name = name_of(&launch->uses, LAUNCH_BITS, index);
    atomic_store_explicit(&launch->number, number, memory_order_relaxed);
    atomic_store_explicit(&launch->end_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&launch->stream, stream, memory_order_relaxed);
    atomic_store_explicit(&launch->handed_over, false, memory_order_relaxed);
    atomic_store_explicit(&launch->begun, false, memory_order_relaxed);
    atomic_store_explicit(&launch->dropped, false, memory_order_relaxed);
    atomic_store_explicit(&launch->holds, 1, memory_order_relaxed);
    atomic_store_explicit(&launch->name, name, memory_order_release);
    return name;
}

/* False when it is over, or about to be. */
static bool launch_hold(struct launch *launch)
{
    uint32_t holds = atomic_load_explicit(&launch->holds, memory_order_relaxed);
    while (holds != 0)
        if (atomic_compare_exchange_weak_explicit(&launch->holds, &holds, holds + 1, memory_order_acquire,
                                                  memory_order_relaxed))
            return true;
    return false;
}

/* Release and acquire: the last one sees what all others have stored. */
static void launch_release(struct launch *launch)
{
    if (atomic_fetch_sub_explicit(&launch->holds, 1, memory_order_acq_rel) != 1)
        return;
    if (atomic_load_explicit(&launch->handed_over, memory_order_relaxed) &&
        !atomic_load_explicit(&launch->dropped, memory_order_relaxed))
        publish_end(atomic_load_explicit(&launch->stream, memory_order_relaxed),
                    atomic_load_explicit(&launch->number, memory_order_relaxed),
                    atomic_load_explicit(&launch->end_ns, memory_order_relaxed));
    atomic_store_explicit(&launch->name, 0, memory_order_relaxed);
    pool_give(&launch_pool, (uint32_t)(launch - launches));
}

bool launch_close(uint64_t name)
{
    struct launch *launch = launch_of(name);
    if (!launch)
        return false;
    bool told = atomic_load_explicit(&launch->handed_over, memory_order_relaxed);
    launch_release(launch);
    return told;
}

uint64_t launch_number(uint64_t name)
{
    const struct launch *launch = launch_of(name);
    return launch ? atomic_load_explicit(&launch->number, memory_order_relaxed) : 0;
}

/* ---- tasks ------------------------------------------------------------------------------------------ */

static struct task {
    _Atomic uint64_t name; /* 0 = free. Release after the rest */
    uint64_t uses;
    _Atomic uint64_t launch;
    _Atomic uint32_t channels; /* 0 = unknown */
    _Atomic uint32_t begun, ended;
    _Atomic uint16_t owner;
} tasks[TASKS];

static struct task *task_of(uint64_t name)
{
    struct task *task = &tasks[name & (TASKS - 1)];
    return name != 0 && atomic_load_explicit(&task->name, memory_order_acquire) == name ? task : NULL;
}

uint64_t task_open(uint64_t launch_name, unsigned channels, uint16_t owner)
{
    struct launch *launch = launch_of(launch_name);
    uint32_t index;
    if (!launch || !launch_hold(launch))
        return 0;
    if (launch_of(launch_name) != launch || !pool_take(&task_pool, &index)) {
        launch_release(launch);
        return 0;
    }
    struct task *task = &tasks[index];
    uint64_t name = name_of(&task->uses, TASK_BITS, index);
    atomic_store_explicit(&launch->handed_over, true, memory_order_relaxed);
    atomic_store_explicit(&task->launch, launch_name, memory_order_relaxed);
    atomic_store_explicit(&task->channels, channels, memory_order_relaxed);
    atomic_store_explicit(&task->begun, 0, memory_order_relaxed);
    atomic_store_explicit(&task->ended, 0, memory_order_relaxed);
    atomic_store_explicit(&task->owner, owner, memory_order_relaxed);
    atomic_store_explicit(&task->name, name, memory_order_release);
    return name;
}

bool task_owner(uint64_t name, uint16_t *owner)
{
    const struct task *task = task_of(name);
    if (task)
        *owner = atomic_load_explicit(&task->owner, memory_order_relaxed);
    return task != NULL;
}

void task_began(uint64_t name, uint64_t real_ns)
{
    struct task *task = task_of(name);
    if (!task)
        return;
    atomic_fetch_add_explicit(&task->begun, 1, memory_order_relaxed);
    struct launch *launch = launch_of(atomic_load_explicit(&task->launch, memory_order_relaxed));
    if (launch && !atomic_exchange_explicit(&launch->begun, true, memory_order_relaxed))
        publish_begin(atomic_load_explicit(&launch->stream, memory_order_relaxed),
                      atomic_load_explicit(&launch->number, memory_order_relaxed), real_ns);
}

/* Only one caller gets it: the one that takes the name away. */
static void task_close(struct task *task, uint64_t name, bool over)
{
    struct launch *launch = launch_of(atomic_load_explicit(&task->launch, memory_order_relaxed));
    if (!atomic_compare_exchange_strong_explicit(&task->name, &name, 0, memory_order_relaxed,
                                                 memory_order_relaxed))
        return;
    if (launch && !over)
        atomic_store_explicit(&launch->dropped, true, memory_order_relaxed);
    if (launch)
        launch_release(launch);
    pool_give(&task_pool, (uint32_t)(task - tasks));
}

void task_ended(uint64_t name, uint64_t real_ns)
{
    struct task *task = task_of(name);
    if (!task)
        return;
    struct launch *launch = launch_of(atomic_load_explicit(&task->launch, memory_order_relaxed));
    if (launch)
        raise_to(&launch->end_ns, real_ns);
    uint32_t channels = atomic_load_explicit(&task->channels, memory_order_relaxed);
    uint32_t ended = atomic_fetch_add_explicit(&task->ended, 1, memory_order_relaxed) + 1;
    if (channels == 0)
        channels = atomic_load_explicit(&task->begun, memory_order_relaxed);
    if (ended >= channels)
        task_close(task, name, true);
}

void tasks_drop(uint16_t owner)
{
    uint32_t used = atomic_load_explicit(&task_pool.fresh, memory_order_relaxed);
    for (uint32_t i = 0; i < used; i++) {
        uint64_t name = atomic_load_explicit(&tasks[i].name, memory_order_acquire);
        if (name != 0 && atomic_load_explicit(&tasks[i].owner, memory_order_relaxed) == owner)
            task_close(&tasks[i], name, false);
    }
}

static void pool_forget(struct pool *pool)
{
    atomic_store_explicit(&pool->head, 0, memory_order_relaxed);
    atomic_store_explicit(&pool->fresh, 0, memory_order_relaxed);
}

/* uses stay: names of the parent must not fit. */
void launches_forget(void)
{
    for (size_t i = 0; i < LAUNCHES; i++)
        atomic_store_explicit(&launches[i].name, 0, memory_order_relaxed);
    for (size_t i = 0; i < TASKS; i++)
        atomic_store_explicit(&tasks[i].name, 0, memory_order_relaxed);
    pool_forget(&launch_pool);
    pool_forget(&task_pool);
    memset(cells, 0, sizeof(cells));
    memset(last_unmarked, 0, sizeof(last_unmarked));
    atomic_store_explicit(&times_put, 0, memory_order_relaxed);
    times_taken = 0;
}
