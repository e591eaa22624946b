/*
 * Captures of Python stacks without a real interpreter: all that a made-up one may hold.
 */
#include "made_up.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "key.h"
#include "layouts.h"

static void made_up_stack(void **unused)
{
    (void)unused;
    make_python();
    start(16);
    assert_int_equal(atomic_load(&header()->python), REC_CALLSITE_PYTHON_PENDING);
    uint32_t id = callsite_capture(NULL);
    check_stack(id, 3);
    assert_int_equal(atomic_load(&header()->python), REC_CALLSITE_PYTHON_PROVED);
    assert_string_equal(header()->python_version, "3.11.4");
    assert_int_equal(callsite_capture(NULL), id);
    assert_int_equal(atomic_load(&header()->misses), 1);
    assert_true(python.lines.hash == -1 && python.file.hash == -1); /* nothing is written there */

    /* Another place, then the first one again. */
    python.frames[1].previous_instruction++;
    uint32_t other = callsite_capture(NULL);
    check_stack(other, 3); /* the same line */
    assert_int_equal(other, id);
    assert_int_equal(atomic_load(&header()->misses), 2);
    python.code[2].firstlineno = 7;
    other = callsite_capture(NULL);
    assert_int_not_equal(other, id);
    assert_int_equal(site_of(other).frames[2].line, 7);

    /* Not once the interpreter ends. */
    initialized = 0;
    assert_int_equal(callsite_capture(NULL), 0);
    assert_int_equal(site_of(callsite_capture(address(3))).kind, REC_CALLSITE_ADDRESS);
    initialized = 1;
    start(2);
    python.code[2].firstlineno = 1;
    check_stack(callsite_capture(NULL), 2);
}

static void no_frames_yet(void **unused)
{
    (void)unused;
    make_python();
    python.cframe.frame = NULL;
    start(16);
    assert_int_equal(callsite_capture(NULL), 0);
    assert_int_equal(site_of(callsite_capture(address(3))).kind, REC_CALLSITE_ADDRESS);
    assert_int_equal(atomic_load(&header()->python), REC_CALLSITE_PYTHON_PENDING);
    python.cframe.frame = &python.frames[0];
    check_stack(callsite_capture(address(3)), 3);
}

/* Offsets that are not known when compiling give the same keys. */
static void any_layout(void **unused)
{
    (void)unused;
    make_python();
    struct py_api api;
    struct py_layout other = py_3_11;
    assert_true(py_take(&api, symbols()));
    other.frame_copy = 1; /* not looked at without free threads */
    key_function *known = key_choose(&py_3_11), *any = key_choose(&other);
    assert_true(known != any);
    for (unsigned max = 1; max < 6; max++) {
        uint64_t key = known(&api, &py_3_11, (const char *)&python.state, max);
        assert_int_not_equal(key, KEY_NONE);
        assert_true(any(&api, &other, (const char *)&python.state, max) == key);
    }
    python.frames[1].previous = NULL;
    assert_true(known(&api, &py_3_11, (const char *)&python.state, 2) ==
                known(&api, &py_3_11, (const char *)&python.state, 3));
}

/* A frame that has not begun, and a generator's, which has. */
static void hidden_frames(void **unused)
{
    (void)unused;
    make_python();
    start(16);
    assert_int_not_equal(callsite_capture(NULL), 0);
    python.code[0].firsttraceable = 9;
    python.frames[0].previous_instruction = &python.code[0].instructions[4];
    struct rec_callsite_site site = site_of(callsite_capture(NULL));
    assert_int_equal(site.frame_count, 2);
    assert_memory_equal(site.frames[0].function, "g", 1);
    start(16);
    python.frames[0].owner = 1;
    check_stack(callsite_capture(NULL), 3);
}

/* The same addresses with other contents are another stack. */
static void reused_memory(void **unused)
{
    (void)unused;
    make_python();
    start(16);
    uint32_t id = callsite_capture(NULL);
    python.name[1] = make_text("x");
    uint32_t other = callsite_capture(NULL);
    assert_int_not_equal(other, id);
    assert_memory_equal(site_of(other).frames[1].function, "x", 1);
    python.name[1] = make_text("g");
    assert_int_equal(callsite_capture(NULL), id);
    python.lines.data[1] = 0;
    python.lines.data[0] = 0x80 | 11 << 3 | 7; /* the first range is one line further down */
    other = callsite_capture(NULL);
    assert_int_not_equal(other, id);
    assert_int_equal(site_of(other).frames[0].line, 4);
}

/* Each word of the made-up interpreter in turn becomes nonsense. */
static void spoilt_words(void **unused)
{
    (void)unused;
    void *hole = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(hole, MAP_FAILED);
    const uint64_t nonsense[] = {
        0, 1, 8, UINT64_MAX, UINT64_C(0x8000000000000000), (uintptr_t)hole, (uintptr_t)&python.file + 3};
    unsigned off = 0, unharmed = 0;
    for (size_t word = 0; word < sizeof(python) / 8; word++) {
        for (size_t i = 0; i < sizeof(nonsense) / sizeof(nonsense[0]); i++) {
            make_python();
            memcpy((char *)&python + word * 8, &nonsense[i], 8);
            start(16);
            errno = EDOM;
            uint32_t id = callsite_capture(NULL);
            assert_int_equal(errno, EDOM);
            unsigned state = atomic_load(&header()->python);
            assert_true(id == 0 || state == REC_CALLSITE_PYTHON_PROVED);
            assert_true((state == REC_CALLSITE_PYTHON_OFF) == (header()->reason[0] != 0));
            off += state == REC_CALLSITE_PYTHON_OFF;
            unharmed += id != 0;
            assert_int_not_equal(callsite_capture(address(5)), 0);
        }
    }
    assert_true(off > 150 && unharmed > 100);
    munmap(hole, 4096);
}

/* Threads with frames of their own, in code that they share. */
struct worker {
    struct thread_state state;
    struct cframe cframe;
    struct frame frames[3];
    pthread_t thread;
    unsigned wrong;
};

static void *work(void *argument)
{
    struct worker *worker = argument;
    worker->state.thread = pthread_self();
    own_state = &worker->state;
    for (unsigned i = 0; i < 4000; i++) {
        unsigned frame = i % 3, instruction = i % 16 + 2;
        worker->frames[frame].previous_instruction = &python.code[frame].instructions[instruction];
        uint32_t id = callsite_capture(NULL);
        if (id == 0)
            continue; /* another thread was publishing */
        struct rec_callsite_site site = site_of(id);
        uint32_t line = (uint32_t)(3 - frame);
        worker->wrong += site.frame_count != 3 || site.frames[frame].line != line ||
                         site.frames[frame].function[0] != "hgf"[frame];
    }
    return NULL;
}

static void python_threads(void **unused)
{
    (void)unused;
    static struct worker workers[THREADS];
    make_python();
    start(16);
    for (unsigned i = 0; i < THREADS; i++) {
        struct worker *worker = &workers[i];
        worker->state = python.state;
        worker->state.cframe = &worker->cframe;
        worker->cframe.frame = &worker->frames[0];
        memcpy(worker->frames, python.frames, sizeof(python.frames));
        for (int frame = 0; frame < 2; frame++)
            worker->frames[frame].previous = &worker->frames[frame + 1];
        assert_int_equal(pthread_create(&worker->thread, NULL, work, worker), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_int_equal(workers[i].wrong, 0);
    }
    assert_int_equal(atomic_load(&header()->python), REC_CALLSITE_PYTHON_PROVED);
    assert_int_equal(atomic_load(&header()->sites), 1); /* one line in each function */
    /* How often a thread came while another one published depends on the scheduler; now nobody does. */
    assert_true(atomic_load(&header()->misses) >= 16);
    make_python();
    uint32_t id = callsite_capture(NULL);
    assert_int_not_equal(id, 0);
    uint64_t misses = atomic_load(&header()->misses);
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(callsite_capture(NULL), id);
    assert_int_equal(atomic_load(&header()->misses), misses);
}

/* A thread that has come to rest is seen by others; one that runs, or is another than it was, is not. */
static pthread_barrier_t at_rest, asked;
static struct callsite_thread resting;

static void *rest(void *argument)
{
    struct worker *worker = argument;
    worker->state.thread = pthread_self();
    own_state = &worker->state;
    callsite_thread(&resting);
    pthread_barrier_wait(&at_rest);
    pthread_barrier_wait(&asked);
    return NULL;
}

static void another_thread(void **unused)
{
    (void)unused;
    static struct worker worker;
    make_python();
    start(16);
    struct callsite_thread own;
    callsite_thread(&own);
    assert_int_equal(callsite_of_thread(&own), 0); /* nothing has been proved yet */
    uint32_t id = callsite_capture(NULL);
    worker.state = python.state;
    worker.state.cframe = &worker.cframe;
    worker.cframe.frame = &worker.frames[0];
    memcpy(worker.frames, python.frames, sizeof(python.frames));
    worker.frames[0].previous = &worker.frames[2];
    pthread_barrier_init(&at_rest, NULL, 2);
    pthread_barrier_init(&asked, NULL, 2);
    assert_int_equal(pthread_create(&worker.thread, NULL, rest, &worker), 0);
    pthread_barrier_wait(&at_rest);

    uint32_t there = callsite_of_thread(&resting);
    assert_int_not_equal(there, id);
    struct rec_callsite_site site = site_of(there);
    assert_int_equal(site.frame_count, 2);
    assert_memory_equal(site.frames[0].function, "h", 1);
    assert_memory_equal(site.frames[1].function, "f", 1);
    assert_int_equal(callsite_of_thread(&own), id);

    struct callsite_thread other = {.state = resting.state, .owner = resting.owner + 1};
    assert_int_equal(callsite_of_thread(&other), 0); /* the state belongs to somebody else now */
    other = (struct callsite_thread){.state = (void *)(uintptr_t)8, .owner = resting.owner};
    assert_int_equal(callsite_of_thread(&other), 0); /* freed */
    worker.frames[0].previous = (struct frame *)(uintptr_t)8;
    assert_int_equal(callsite_of_thread(&resting), 0); /* caught in the middle of something */
    assert_int_equal(atomic_load(&header()->python), REC_CALLSITE_PYTHON_PROVED);
    assert_int_equal(callsite_capture(NULL), id);
    pthread_barrier_wait(&asked);
    pthread_join(worker.thread, NULL);
}

/* Found broken only after the proof: off from then on, as soon as a new stack is looked at. */
static void broken_later(void **unused)
{
    (void)unused;
    make_python();
    start(16);
    assert_int_not_equal(callsite_capture(NULL), 0);
    struct bytes foreign = python.lines;
    foreign.object.type = &str_type;
    foreign.data[0] = 0x84; /* else the frame would be known */
    python.code[1].linetable = &foreign;
    assert_int_equal(callsite_capture(NULL), 0);
    assert_int_equal(atomic_load(&header()->python), REC_CALLSITE_PYTHON_OFF);
    assert_string_equal(header()->reason, "Python 3.11.4: a line table that is no bytes object");
    assert_int_equal(site_of(callsite_capture(address(3))).kind, REC_CALLSITE_ADDRESS);
}

/* The interpreter's memory is only read: its constants may lie in pages that cannot be written. */
static void read_only_objects(void **unused)
{
    (void)unused;
    make_python();
    struct text *constant = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(constant, MAP_FAILED);
    *constant = python.name[2];
    assert_int_equal(mprotect(constant, 4096, PROT_READ), 0);
    python.code[2].name = constant;
    start(16);
    uint32_t id = callsite_capture(NULL);
    check_stack(id, 3);
    assert_int_equal(callsite_capture(NULL), id);
    assert_int_equal(atomic_load(&header()->misses), 1);
    munmap(constant, 4096);
}

/* Of a long table only what leads to the line is compared; if that is too long, each call gets its number
 * anew. */
static void long_table(void **unused)
{
    (void)unused;
    static struct {
        struct bytes head;
        unsigned char more[128 << 10];
    } table;
    make_python();
    table.head = python.lines;
    table.head.length = sizeof(table.more);
    memset(table.more, 0x80, sizeof(table.more));
    python.code[0].linetable = &table.head;
    start(16);
    uint32_t id = callsite_capture(NULL);
    check_stack(id, 3);
    assert_int_equal(callsite_capture(NULL), id);
    assert_int_equal(atomic_load(&header()->misses), 1);
    table.head.data[0] = 0x80;
    memset(table.head.data + 1, 0,
           sizeof(table.head.data) - 1 + 100000); /* one long entry, for 2 bytes of code */
    callsite_stop();
    start(16);
    id = callsite_capture(NULL);
    check_stack(id, 3);
    assert_int_equal(callsite_capture(NULL), id);
    assert_int_equal(atomic_load(&header()->misses), 2);
}

/* Each byte of what leads to the answer in turn: another one makes another stack, and back. */
static void check_bytes(unsigned char *bytes, unsigned count)
{
    uint32_t id = callsite_capture(NULL);
    for (unsigned i = 0; i < count; i++) {
        uint64_t misses = atomic_load(&header()->misses);
        bytes[i] ^= 1;
        (void)callsite_capture(NULL);
        assert_int_equal(atomic_load(&header()->misses), misses + 1);
        bytes[i] ^= 1;
        assert_int_equal(callsite_capture(NULL), id);
        assert_int_equal(atomic_load(&header()->misses), misses + 1);
    }
}

static void every_byte_counts(void **unused)
{
    (void)unused;
    make_python();
    for (int i = 0; i < 3; i++)
        python.frames[i].previous_instruction = &python.code[i].instructions[18];
    for (unsigned length = 1; length < sizeof(python.file.text); length++) {
        memset(python.file.text, 'p', sizeof(python.file.text));
        memset(python.name[1].text, 'n', sizeof(python.name[1].text));
        python.file.length = python.name[1].length = length;
        start(16);
        check_bytes((unsigned char *)python.file.text, length);
        start(16);
        check_bytes((unsigned char *)python.name[1].text, length);
        uint64_t misses = atomic_load(&header()->misses);
        python.file.text[length] = 'q'; /* beyond its end */
        assert_int_not_equal(callsite_capture(NULL), 0);
        assert_int_equal(atomic_load(&header()->misses), misses);
    }
    make_python();
    for (int i = 0; i < 3; i++)
        python.frames[i].previous_instruction = &python.code[i].instructions[18];
    start(16);
    check_bytes(python.lines.data, 5); /* three entries are begun */
    check_bytes((unsigned char *)&python.code[2].firstlineno, 1);
    uint64_t misses = atomic_load(&header()->misses);
    python.lines.data[5] ^= 1;
    assert_int_not_equal(callsite_capture(NULL), 0);
    assert_int_equal(atomic_load(&header()->misses), misses);
    python.file.hash = 12345; /* as if the interpreter had computed it just now */
    assert_int_not_equal(callsite_capture(NULL), 0);
    assert_int_equal(atomic_load(&header()->misses), misses);
    python.name[0].hash = 123456; /* of a name this stands for the text */
    assert_int_not_equal(callsite_capture(NULL), 0);
    assert_int_equal(atomic_load(&header()->misses), misses + 1);
    check_bytes((unsigned char *)&python.name[0].hash, 8);
}

/* New frames until the memory for what is known of them is full: numbers are still right. */
static void much_to_know(void **unused)
{
    (void)unused;
    make_python();
    start(16);
    for (unsigned i = 1; i < 40000; i++) {
        python.code[1].firstlineno = (int32_t)(i % 100 + 1);
        memcpy(python.name[1].text,
               &(char[]){(char)('a' + i % 26), (char)('a' + i / 26 % 26), (char)('a' + i / 676 % 26),
                         (char)('a' + i / 17576)},
               4);
        python.name[1].length = 4;
        uint32_t id = callsite_capture(NULL);
        if (id == 0)
            continue;
        struct rec_callsite_site site = site_of(id);
        assert_memory_equal(site.frames[1].function, python.name[1].text, 4);
        assert_int_equal(site.frames[1].line, i % 100 + 1);
    }
    assert_true(atomic_load(&header()->lost_full) > 0);
    python.name[1] = make_text("g");
    python.code[1].firstlineno = 2;
    start(16);
    check_stack(callsite_capture(NULL), 3);
    (void)callsite_capture(NULL);
    assert_int_equal(atomic_load(&header()->misses), 1); /* known again */
}

/* Sandboxes may forbid the reads that cannot fault: off, and return addresses remain. Comes last: it stays.
 */
static void forbidden_reads(void **unused)
{
    (void)unused;
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(filter) / sizeof(filter[0]), .filter = filter};
    make_python();
    start(16);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        skip();
    assert_int_equal(callsite_capture(NULL), 0);
    assert_int_equal(atomic_load(&header()->python), REC_CALLSITE_PYTHON_OFF);
    assert_string_equal(header()->reason, "process_vm_readv: Operation not permitted");
    assert_int_equal(site_of(callsite_capture(address(3))).kind, REC_CALLSITE_ADDRESS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(made_up_stack),  cmocka_unit_test(no_frames_yet),
        cmocka_unit_test(hidden_frames),  cmocka_unit_test(any_layout),
        cmocka_unit_test(reused_memory),  cmocka_unit_test(spoilt_words),
        cmocka_unit_test(broken_later),   cmocka_unit_test(read_only_objects),
        cmocka_unit_test(long_table),     cmocka_unit_test(every_byte_counts),
        cmocka_unit_test(python_threads), cmocka_unit_test(another_thread),
        cmocka_unit_test(much_to_know),   cmocka_unit_test(forbidden_reads),
    };
    return cmocka_run_group_tests(tests, NULL, free_memory);
}
