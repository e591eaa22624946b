#include "callsite/callsite.h"
#include "graphs.h"
#include "inject.h"
#include "marks.h"
#include "plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

struct recorder recorder;

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void loaded(void)
{
    config_note_cwd();
}

static void write_meta(void)
{
    struct rec_live_header *header = recorder.live.header;
    size_t bytes = meta_write(header->meta, sizeof(header->meta));
    strcpy(header->frec_dir, options.dir);
    atomic_store_explicit(&header->meta_bytes, (uint32_t)bytes, memory_order_release);
}

static void *find_symbol(const char *name)
{
    return real_dlsym(RTLD_DEFAULT, name);
}

/* The first capture here, so that what became of Python is known when the metadata is written. */
static void start_callsites(const struct callsite_symbols *symbols)
{
    struct callsite_config config = {
        .memory = recorder.live.callsites,
        .bytes = recorder.live.header->callsite_bytes,
        .frames = options.pyframes,
        .native_frames = options.native_frames,
        .symbols = symbols,
    };
    if (config.memory && callsite_init(&config))
        (void)callsite_capture(NULL);
}

static bool start(const struct callsite_symbols *symbols)
{
    config_read();
    if (options.disable)
        return false;
    recorder.pid = getpid();
    recorder.start_ticks = meta_start_ticks();
    recorder.start_ns = real_now_ns();
    if (getrandom(&recorder.proc_uid, sizeof(recorder.proc_uid), GRND_NONBLOCK) !=
        (ssize_t)sizeof(recorder.proc_uid))
        recorder.proc_uid = rec_mix64(recorder.start_ns ^ ((uint64_t)recorder.pid << 40));
    if (!region_make()) {
        verbose("no memory for the live region; recording nothing");
        return false;
    }
    atomic_store_explicit(&free_chunks, recorder.live.header->chunk_count, memory_order_relaxed);
    start_callsites(symbols);
    write_meta();
    drain_start();
    fork_hooks_install();
    exit_hooks_install();
    crash_hooks_install();
    return true;
}

bool recorder_start(void)
{
    int state = atomic_load_explicit(&recorder.state, memory_order_acquire);
    if (state != RECORDER_NEW)
        return state == RECORDER_ON;
    /* Looked up now, for it takes the dynamic linker's locks: under ours it could wait for a thread
     * that loads a library, whose constructor calls NCCL and waits for us. */
    struct callsite_symbols symbols;
    real_version(0);
    real_version(1);
    callsite_find(&symbols, find_symbol);
    pthread_mutex_lock(&start_lock);
    state = atomic_load_explicit(&recorder.state, memory_order_relaxed);
    if (state == RECORDER_NEW) {
        state = start(&symbols) ? RECORDER_ON : RECORDER_OFF;
        atomic_store_explicit(&recorder.state, state, memory_order_release);
    }
    pthread_mutex_unlock(&start_lock);
    return state == RECORDER_ON;
}

void recorder_forget(void)
{
    bool on = atomic_load_explicit(&recorder.state, memory_order_relaxed) == RECORDER_ON;
    pthread_mutex_init(&start_lock, NULL);
    slow_lock_forget();
    if (!on)
        return;
    callsite_stop();
    crash_hooks_forget();
    drain_forget();
    threads_forget();
    registry_forget();
    tables_forget();
    identity_forget();
    marks_forget();
    plugin_forget();
    graphs_forget();
    munmap(recorder.live.header, recorder.live.bytes);
    memset(&recorder.live, 0, sizeof(recorder.live));
    atomic_store_explicit(&recorder.state, RECORDER_NEW, memory_order_relaxed);
}
