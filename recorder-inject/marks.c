#include "marks.h"

#include <stdio.h>
#include <string.h>

#include "cuda.h"
#include "inject.h"
#include "launches.h"
#include "plugin.h"

#define GROUP_STREAMS 32 /* further streams of a group get no marks */
#define COMMS         4  /* that one launch may wait for; ops of further ones get no number */
#define CONTEXTS      64

/*
 * A stream takes about 1,024 pieces of work; who asks for more waits inside the call. Marks must not bring
 * a program there that would not have come there by itself, so they take no more than about half of the
 * places: where many launches of the stream are not over, only some of the next ones have marks.
 */
#define AHEAD_ALL  240 /* every launch */
#define AHEAD_SOME 768 /* one of 16; then none */

/* ---- who may mark a stream ---------------------------------------------------------------- */

#define NOBODY  0u
#define PENDING UINT32_MAX /* the end mark waits for marks_async; whoever launches there next takes over */

static _Atomic uint32_t owners[REC_LIVE_DEFAULT_STREAMS]; /* thread index + 1 */

/* Under the slow lock. */
static struct pending {
    struct mark mark;
    uint16_t comms[COMMS];
    uint32_t ncomms;
} pending[REC_LIVE_DEFAULT_STREAMS];
_Atomic uint32_t marks_pending;

static bool leave_pending(uint16_t index, uint32_t to)
{
    uint32_t have = PENDING;
    bool left = atomic_compare_exchange_strong_explicit(&owners[index], &have, to, memory_order_acquire,
                                                        memory_order_relaxed);
    if (left)
        atomic_fetch_sub_explicit(&marks_pending, 1, memory_order_relaxed);
    return left;
}

/* The launch came to nothing, or nobody waits for it any more. */
static void give_back(const struct mark *mark)
{
    if (mark->told != 0)
        launch_close(mark->told);
}

static bool take(uint16_t index, uint32_t self)
{
    uint32_t have = NOBODY;
    if (atomic_compare_exchange_strong_explicit(&owners[index], &have, self, memory_order_acquire,
                                                memory_order_relaxed) ||
        have == self)
        return true;
    if (have != PENDING)
        return false;
    slow_lock();
    bool left = leave_pending(index, self);
    if (left)
        give_back(&pending[index].mark);
    slow_unlock();
    return left;
}

/*
 * The per-thread default stream has one handle and is another stream in each thread: its numbers
 * are those of the first thread that launches there.
 */
#define PER_THREAD_STREAM 2u
static _Atomic uint32_t users[REC_LIVE_DEFAULT_STREAMS]; /* thread id; of such streams only */

static bool is_own_stream(const struct thread *thread, uint16_t index, const void *stream)
{
    uint32_t self = atomic_load_explicit(&thread->entry->id, memory_order_relaxed), none = 0;
    return (uintptr_t)stream != PER_THREAD_STREAM ||
           atomic_compare_exchange_strong_explicit(&users[index], &none, self, memory_order_relaxed,
                                                   memory_order_relaxed) ||
           none == self;
}

static void release(uint16_t index)
{
    atomic_store_explicit(&owners[index], NOBODY, memory_order_release);
}

/* ---- the driver ------------------------------------------------------------------------------ */

enum { STATE_NEW, STATE_BUSY, STATE_ON, STATE_OFF };
static _Atomic int state;

/* Device address of the marks, by context. Slots are filled in order, under the slow lock; context is
 * stored last (release). */
static struct {
    _Atomic(void *) context;
    _Atomic uint64_t address;
} contexts[CONTEXTS];

static void give_up(const char *what, int error)
{
    struct rec_live_header *header = recorder.live.header;
    int before = atomic_exchange_explicit(&state, STATE_OFF, memory_order_relaxed);
    if (before == STATE_OFF)
        return;
    snprintf(header->gpu_reason, sizeof(header->gpu_reason), "%s: CUDA error %d", what, error);
    header->gpu_error = (uint32_t)error;
    atomic_store_explicit(&header->gpu, REC_LIVE_GPU_FAILED, memory_order_release);
    verbose("%s; GPU progress is not recorded any more", header->gpu_reason);
}

/* The launch has no marks, or only one: readers must not wait for them. */
static void disown(const struct mark *mark)
{
    uint64_t none = 0;
    atomic_compare_exchange_strong_explicit(&recorder.live.marks[mark->index].dropped, &none, mark->number,
                                            memory_order_release, memory_order_relaxed);
}

/*
 * Lets the driver write to the marks. Registering is among what a capture in the same process forbids, hence
 * the relaxed mode: this touches no captured stream.
 */
static bool register_marks(const struct cuda_driver *cuda)
{
    int device, able = 0, mode = CUDA_CAPTURE_MODE_RELAXED;
    if (cuda->current_device(&device) != CUDA_OK ||
        cuda->device_attribute(&able, CUDA_HAS_64_BIT_STREAM_MEM_OPS, device) != CUDA_OK || !able) {
        give_up("no 64-bit stream memory operations", CUDA_NOT_SUPPORTED);
        return false;
    }
    int moded = cuda->exchange_mode(&mode);
    int error = cuda->host_register(recorder.live.marks,
                                    sizeof(struct rec_live_mark) * recorder.live.header->stream_count,
                                    CUDA_REGISTER_PORTABLE | CUDA_REGISTER_DEVICE_MAP);
    if (moded == CUDA_OK)
        cuda->exchange_mode(&mode);
    if (error != CUDA_OK)
        give_up("cuMemHostRegister", error);
    return error == CUDA_OK;
}

static bool ready(const struct cuda_driver *cuda)
{
    int now = atomic_load_explicit(&state, memory_order_acquire);
    if (likely(now != STATE_NEW))
        return now == STATE_ON;
    void *context = NULL;
    if (options.gpu != GPU_MARKS || cuda->current_context(&context) != CUDA_OK || !context ||
        !atomic_compare_exchange_strong_explicit(&state, &now, STATE_BUSY, memory_order_relaxed,
                                                 memory_order_relaxed))
        return false;
    if (!register_marks(cuda))
        return false;
    atomic_store_explicit(&recorder.live.header->gpu, REC_LIVE_GPU_MARKS, memory_order_release);
    atomic_store_explicit(&state, STATE_ON, memory_order_release);
    return true;
}

void marks_prepare(void)
{
    KEEP_ERRNO;
    if (plugin_in_use())
        return;
    cuda_look_for_driver();
    const struct cuda_driver *cuda = cuda_driver();
    if (cuda)
        ready(cuda);
}

static uint64_t find_address(const void *context)
{
    for (unsigned i = 0; i < CONTEXTS; i++) {
        void *have = atomic_load_explicit(&contexts[i].context, memory_order_acquire);
        if (have == context)
            return atomic_load_explicit(&contexts[i].address, memory_order_relaxed);
        if (!have)
            break;
    }
    return 0;
}

static void keep_address(void *context, uint64_t address)
{
    slow_lock();
    for (unsigned i = 0; i < CONTEXTS; i++) {
        if (atomic_load_explicit(&contexts[i].context, memory_order_relaxed))
            continue;
        atomic_store_explicit(&contexts[i].address, address, memory_order_relaxed);
        atomic_store_explicit(&contexts[i].context, context, memory_order_release);
        break;
    }
    slow_unlock();
}

/* Makes the context current, if it is not, and says whether it did so. */
static bool enter(const struct cuda_driver *cuda, void *context, bool *pushed)
{
    void *current = NULL;
    *pushed = false;
    if (cuda->current_context(&current) != CUDA_OK)
        return false;
    if (likely(current == context))
        return true;
    *pushed = cuda->push_context(context) == CUDA_OK;
    return *pushed;
}

static void leave(const struct cuda_driver *cuda, bool pushed)
{
    void *popped;
    if (pushed)
        cuda->pop_context(&popped);
}

static uint64_t address_in(const struct cuda_driver *cuda, void *context)
{
    uint64_t address = find_address(context);
    bool pushed;
    if (likely(address != 0))
        return address;
    if (!enter(cuda, context, &pushed))
        return 0;
    int error = cuda->device_pointer(&address, recorder.live.marks, 0);
    leave(cuda, pushed);
    if (error != CUDA_OK) {
        give_up("cuMemHostGetDevicePointer", error);
        return 0;
    }
    keep_address(context, address);
    return address;
}

/* The context of a stream. The default streams exist in every context: NCCL means the one of the
 * communicator's device, which we know only when it is current. */
static void *context_of(const struct cuda_driver *cuda, void *stream, uint16_t index)
{
    void *context = NULL;
    int device;
    if ((uintptr_t)stream > 2)
        return cuda->stream_context(stream, &context) == CUDA_OK ? context : NULL;
    if (cuda->current_context(&context) != CUDA_OK || !context || cuda->current_device(&device) != CUDA_OK ||
        device != recorder.live.streams[index].device)
        return NULL;
    return context;
}

static void put(const struct mark *mark, size_t word)
{
    const struct cuda_driver *cuda = cuda_driver();
    bool pushed;
    if (atomic_load_explicit(&state, memory_order_relaxed) != STATE_ON) {
        disown(mark);
        return;
    }
    int error = 1;
    if (enter(cuda, mark->context, &pushed)) {
        error = cuda->write_value(mark->stream, mark->address + word, mark->number, 0);
        leave(cuda, pushed);
    }
    if (unlikely(error != CUDA_OK)) {
        disown(mark);
        give_up("cuStreamWriteValue64", error);
    }
}

/* Of each stream, its last launch without marks that the GPU may not have passed yet; 0 = none. Its owner's.
 */
static uint64_t unmarked[REC_LIVE_DEFAULT_STREAMS];

static void put_start(const struct mark *mark)
{
    if (mark->told == 0 && mark->address != 0)
        put(mark, offsetof(struct rec_live_mark, start));
}

/* False: NCCL would have told when it ends, and will not. */
static bool put_end(const struct mark *mark)
{
    if (mark->told != 0)
        return launch_close(mark->told);
    if (mark->address != 0)
        put(mark, offsetof(struct rec_live_mark, end));
    return true;
}

enum mark_stream marks_ask(void *stream)
{
    const struct cuda_driver *cuda = cuda_driver();
    int status = CUDA_CAPTURE_NONE;
    if (!cuda)
        return MARK_STREAM_UNKNOWN;
    /* It does not disturb a capture, whatever it returns. An error: this is the legacy stream, and
     * another one is being captured, which a write here would spoil. */
    if (cuda->is_capturing(stream, &status) != CUDA_OK)
        return MARK_STREAM_UNKNOWN;
    return status == CUDA_CAPTURE_NONE     ? MARK_STREAM_RUNS
           : status == CUDA_CAPTURE_ACTIVE ? MARK_STREAM_CAPTURED
                                           : MARK_STREAM_UNKNOWN;
}

/* ---- launches ---------------------------------------------------------------------------------- */

/* The next number; slots hold the low 16 bits, and 0 means none. */
static uint64_t next_number(uint16_t index)
{
    _Atomic uint64_t *launched = &recorder.live.marks[index].launched;
    uint64_t number = atomic_load_explicit(launched, memory_order_relaxed) + 1;
    if ((number & 0xffff) == 0)
        number++;
    atomic_store_explicit(launched, number, memory_order_relaxed);
    return number;
}

/* How many launches before this one are not over, as far as is known. */
static uint64_t ahead_of_gpu(const struct mark *mark)
{
    const struct rec_live_mark *words = &recorder.live.marks[mark->index];
    uint64_t start = atomic_load_explicit(&words->start, memory_order_relaxed);
    uint64_t over = atomic_load_explicit(&words->end, memory_order_relaxed);
    if (start > over)
        over = start - 1;
    /* The stream runs them in order: those without marks are over. */
    if (unlikely(unmarked[mark->index] != 0) && start > unmarked[mark->index]) {
        unmarked[mark->index] = 0;
        atomic_store_explicit(&recorder.live.marks[mark->index].dropped, 0, memory_order_release);
    }
    return mark->number - 1 - over;
}

/* Where there are too many: takes the marks from the launch, and says so before its op is published. */
static void leave_room(struct mark *mark)
{
    uint64_t ahead = ahead_of_gpu(mark);
    if (likely(ahead < AHEAD_ALL) || (ahead < AHEAD_SOME && mark->number % 16 == 0))
        return;
    mark->address = 0;
    unmarked[mark->index] = mark->number;
    disown(mark);
}

static bool claim_told(struct thread *thread, struct mark *mark, uint16_t index, void *stream)
{
    *mark = (struct mark){.index = index};
    if (index >= REC_LIVE_DEFAULT_STREAMS || !is_own_stream(thread, index, stream) ||
        !take(index, thread->index + 1))
        return false;
    uint64_t number = next_number(index);
    mark->told = launch_open(index, number);
    if (mark->told == 0) {
        release(index);
        return false;
    }
    mark->number = number;
    return true;
}

static bool claim(struct thread *thread, struct mark *mark, uint16_t index, void *stream)
{
    const struct cuda_driver *cuda = cuda_driver();
    mark->number = mark->told = 0;
    if (index >= REC_LIVE_DEFAULT_STREAMS || !cuda || !ready(cuda))
        return false;
    mark->context = context_of(cuda, stream, index);
    mark->address = mark->context ? address_in(cuda, mark->context) : 0;
    if (!mark->address || !is_own_stream(thread, index, stream) || !take(index, thread->index + 1))
        return false;
    mark->address += sizeof(struct rec_live_mark) * index;
    mark->stream = stream;
    mark->index = index;
    mark->number = next_number(index);
    leave_room(mark);
    return true;
}

/* Written by their own thread only. */
static struct group_marks {
    uint32_t count;
    struct pending launches[GROUP_STREAMS];
} groups[REC_LIVE_DEFAULT_THREADS];

static bool concerns(const struct pending *launch, uint16_t comm)
{
    for (uint32_t i = 0; i < launch->ncomms; i++)
        if (launch->comms[i] == comm)
            return true;
    return false;
}

static bool add_comm(struct pending *launch, uint16_t comm)
{
    if (concerns(launch, comm))
        return true;
    if (launch->ncomms == COMMS)
        return false;
    launch->comms[launch->ncomms++] = comm;
    return true;
}

static const struct mark *claim_in_group(struct thread *thread, uint16_t index, void *stream, uint16_t comm,
                                         bool told)
{
    struct group_marks *group = &groups[thread->index];
    for (uint32_t i = 0; i < group->count; i++) {
        struct pending *launch = &group->launches[i];
        if (launch->mark.index == index)
            return (launch->mark.told != 0) == told && add_comm(launch, comm) ? &launch->mark : NULL;
    }
    struct pending *launch = &group->launches[group->count];
    if (group->count == GROUP_STREAMS || !(told ? claim_told : claim)(thread, &launch->mark, index, stream))
        return NULL;
    group->count++;
    launch->ncomms = 0;
    add_comm(launch, comm);
    return &launch->mark;
}

void marks_claim(struct thread *thread, struct mark *mark, uint16_t index, void *stream, uint16_t comm)
{
    KEEP_ERRNO;
    bool told = plugin_tells(comm);
    const struct mark *claimed = NULL;
    mark->number = 0;
    thread->told = 0;
    if (thread->group_depth != 0)
        claimed = claim_in_group(thread, index, stream, comm, told);
    else if ((told ? claim_told : claim)(thread, mark, index, stream))
        claimed = mark;
    if (claimed) {
        thread->launch = (uint16_t)claimed->number;
        thread->told = claimed->told;
    }
}

uint64_t marks_told(const struct thread *thread, uint16_t comm)
{
    const struct group_marks *group = &groups[thread->index];
    if (thread->group_depth == 0)
        return thread->told;
    for (uint32_t i = 0; i < group->count; i++)
        if (concerns(&group->launches[i], comm))
            return group->launches[i].mark.told;
    return 0;
}

static void wait_for_async(const struct pending *launch)
{
    uint16_t index = launch->mark.index;
    slow_lock();
    pending[index] = *launch;
    atomic_fetch_add_explicit(&marks_pending, 1, memory_order_relaxed);
    atomic_store_explicit(&owners[index], PENDING, memory_order_release);
    slow_unlock();
}

static bool finish(const struct pending *launch, unsigned result)
{
    bool marked = true;
    if (result == REC_RESULT_IN_PROGRESS) {
        wait_for_async(launch);
        return true;
    }
    if (result == REC_RESULT_SUCCESS)
        marked = put_end(&launch->mark);
    else
        give_back(&launch->mark);
    release(launch->mark.index);
    return marked;
}

void marks_start(const struct mark *mark)
{
    KEEP_ERRNO;
    put_start(mark);
}

bool marks_end(const struct mark *mark, uint16_t comm, unsigned result)
{
    KEEP_ERRNO;
    const struct pending launch = {.mark = *mark, .comms = {comm}, .ncomms = 1};
    return finish(&launch, result);
}

void marks_group_begin(struct thread *thread)
{
    struct group_marks *group = &groups[thread->index];
    for (uint32_t i = 0; i < group->count; i++) {
        give_back(&group->launches[i].mark);
        release(group->launches[i].mark.index);
    }
    group->count = 0;
}

void marks_group_start(struct thread *thread)
{
    struct group_marks *group = &groups[thread->index];
    KEEP_ERRNO;
    for (uint32_t i = 0; i < group->count; i++)
        put_start(&group->launches[i].mark);
}

void marks_group_end(struct thread *thread, unsigned result)
{
    struct group_marks *group = &groups[thread->index];
    KEEP_ERRNO;
    for (uint32_t i = 0; i < group->count; i++) {
        const struct mark *mark = &group->launches[i].mark;
        if (!finish(&group->launches[i], result))
            launch_unmarked(mark->index, mark->number);
    }
    group->count = 0;
}

/* Removes comm from the launch that waits; true when it was the last. */
static bool settle(struct pending *launch, uint16_t comm)
{
    for (uint32_t i = 0; i < launch->ncomms; i++)
        if (launch->comms[i] == comm) {
            launch->comms[i] = launch->comms[--launch->ncomms];
            return launch->ncomms == 0;
        }
    return false;
}

/* The next stream, from *at on, whose launch has been waiting only for comm; it is the caller's then. */
static bool next_settled(uint16_t comm, uint32_t self, uint32_t *at, struct mark *mark)
{
    bool found = false;
    slow_lock();
    for (; *at < REC_LIVE_DEFAULT_STREAMS && !found; ++*at)
        if (atomic_load_explicit(&owners[*at], memory_order_relaxed) == PENDING &&
            settle(&pending[*at], comm) && leave_pending((uint16_t)*at, self)) {
            *mark = pending[*at].mark;
            found = true;
        }
    slow_unlock();
    return found;
}

void marks_async(uint16_t comm, unsigned error)
{
    KEEP_ERRNO;
    if (error == REC_RESULT_IN_PROGRESS)
        return;
    struct mark mark;
    for (uint32_t at = 0; next_settled(comm, self_thread.index + 1, &at, &mark);) {
        if (error != REC_RESULT_SUCCESS)
            give_back(&mark);
        else if (!put_end(&mark))
            launch_unmarked(mark.index, mark.number);
        release(mark.index);
    }
}

void marks_thread_exit(struct thread *thread)
{
    marks_group_begin(thread);
    for (uint32_t i = 0; i < REC_LIVE_DEFAULT_STREAMS; i++)
        if (atomic_load_explicit(&owners[i], memory_order_relaxed) == thread->index + 1)
            release((uint16_t)i);
}

void marks_forget(void)
{
    memset(owners, 0, sizeof(owners));
    memset(users, 0, sizeof(users));
    memset(contexts, 0, sizeof(contexts));
    memset(unmarked, 0, sizeof(unmarked));
    for (uint32_t i = 0; i < REC_LIVE_DEFAULT_THREADS; i++)
        if (groups[i].count != 0)
            groups[i].count = 0;
    atomic_store_explicit(&marks_pending, 0, memory_order_relaxed);
    atomic_store_explicit(&state, STATE_NEW, memory_order_relaxed);
}
