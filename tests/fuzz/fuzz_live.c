/*
 * libFuzzer target: a live region that anybody may have written to, loaded as a job. Input:
 * records of 12 bytes, each a 32-bit offset and eight bytes that go there, into a small valid
 * region. The file lies in /dev/shm; one process, one file.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rec/callsite.h"
#include "rec/job.h"
#include "rec/live.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define OPS 200

static char path[64];
static unsigned char *region;
static uint64_t bytes;

#define SITE_BYTES 1024

static uint32_t put_record(unsigned char *memory, uint32_t *at, unsigned kind, unsigned count, uint32_t id,
                           const void *payload, uint32_t payload_bytes)
{
    uint32_t offset = *at;
    struct rec_callsite_record record = {.kind = (uint16_t)kind, .count = (uint16_t)count, .id = id};
    memcpy(memory + offset, &record, sizeof(record));
    memcpy(memory + offset + sizeof(record), payload, payload_bytes);
    *at = (offset + (uint32_t)sizeof(record) + payload_bytes + 3) & ~3u;
    return offset;
}

/* Site 1, a stack of two equal frames, and site 2, a return address. */
static void fill_callsites(unsigned char *memory)
{
    struct rec_callsite_header *header = (struct rec_callsite_header *)(void *)memory;
    header->version = REC_CALLSITE_VERSION;
    header->bytes = SITE_BYTES;
    header->max_sites = 4;
    header->index_offset = (sizeof(*header) + 63) & ~63u;
    header->arena_offset = header->index_offset + 64;
    uint32_t at = header->arena_offset;
    uint32_t *index = (uint32_t *)(void *)(memory + header->index_offset);
    uint32_t location[3] = {put_record(memory, &at, REC_CALLSITE_STRING, 4, 0, "a.py", 4),
                            put_record(memory, &at, REC_CALLSITE_STRING, 1, 0, "f", 1), 7};
    uint32_t frames[2];
    frames[0] = frames[1] = put_record(memory, &at, REC_CALLSITE_LOCATION, 3, 0, location, sizeof(location));
    index[1] = put_record(memory, &at, REC_CALLSITE_STACK, 2, 1, frames, sizeof(frames));
    index[2] = put_record(memory, &at, REC_CALLSITE_ADDRESS, 2, 2, location, 8);
    header->sites = 2;
    header->used = at;
    header->magic = REC_CALLSITE_MAGIC;
}

static void fill(unsigned char *memory)
{
    static const struct rec_live_config config = {.comms = 4,
                                                  .threads = 4,
                                                  .redops = 4,
                                                  .streams = 4,
                                                  .slots = 4 * REC_LIVE_CHUNK_SLOTS,
                                                  .tick_ns = 64,
                                                  .callsite_bytes = SITE_BYTES};
    struct rec_live_header *header = (struct rec_live_header *)(void *)memory;
    struct rec_live live;
    memset(memory, 0, bytes);
    rec_live_layout(&config, header);
    rec_live_attach(&live, memory);
    header->proc_uid = 1;
    header->pid = 1;
    strcpy(header->meta, "{\"rank\":0}");
    header->meta_bytes = 10;
    header->clock.real0_ns = 1;
    fill_callsites(live.callsites);
    live.threads[0].id = 1;
    live.threads[0].ordinal = OPS + 1;
    live.threads[0].open = OPS + 1;
    live.threads[0].chunk = 2;
    live.comms[0] = (struct rec_live_comm){.version = 2, .state = REC_LIVE_COMM_READY, .nranks = 2, .uid = 7};
    for (uint32_t i = 0; i <= OPS; i++)
        live.slots[i].fields = (struct rec_slot){.ordinal = i,
                                                 .enter = i,
                                                 .exit = i + 1,
                                                 .seq = i,
                                                 .group = i / 8,
                                                 .kind = i % 9 == 8 ? 64 : 1,
                                                 .callsite = i % 4};
    for (uint32_t i = 0; i < 2; i++)
        live.chunks[i] =
            (struct rec_live_chunk){.owner = 1,
                                    .done = i ? OPS - REC_LIVE_CHUNK_SLOTS : REC_LIVE_CHUNK_SLOTS,
                                    .thread_id = 1,
                                    .first_ordinal = i * REC_LIVE_CHUNK_SLOTS,
                                    .claim = i + 1};
    header->magic = REC_LIVE_MAGIC;
}

static void clean_up(void)
{
    unlink(path);
}

static void prepare(void)
{
    struct rec_live_header layout;
    struct rec_live_config config = {.comms = 4,
                                     .threads = 4,
                                     .redops = 4,
                                     .streams = 4,
                                     .slots = 4 * REC_LIVE_CHUNK_SLOTS,
                                     .callsite_bytes = SITE_BYTES};
    bytes = rec_live_layout(&config, &layout);
    snprintf(path, sizeof(path), "/dev/shm/fuzz-%d.live", (int)getpid());
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0)
        abort();
    region = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (region == MAP_FAILED || atexit(clean_up) != 0)
        abort();
}

static void use(void)
{
    const char *paths[] = {path};
    struct rec_job *job;
    if (rec_job_open(paths, 1, NULL, &job, NULL) != REC_OK)
        return;
    size_t count;
    const struct rec_process *process = rec_job_processes(job, &count)[0];
    struct rec_scan *scan;
    struct rec_event event;
    if (count != 1 || rec_scan_open(job, process, NULL, &scan, NULL) != REC_OK)
        abort();
    uint64_t ops = 0;
    while (rec_scan_next(scan, &event, NULL) == REC_OK) {
        ops += event.type == REC_EV_OP;
        if (event.type == REC_EV_CALLSITE && event.u.callsite.nframes > REC_CALLSITE_FRAMES)
            abort();
    }
    for (uint32_t id = 0; id < 5; id++) {
        const struct rec_callsite_def *site = rec_process_callsite(process, id);
        char text[64];
        if (site && rec_callsite_text(site, NULL, text, sizeof(text)) != (site->nframes != 0))
            abort();
    }
    if (ops != process->ops)
        abort(); /* the scan shows what loading saw */
    rec_scan_close(scan);
    rec_job_close(job);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!region)
        prepare();
    fill(region);
    for (; size >= 12; data += 12, size -= 12) {
        uint32_t offset;
        memcpy(&offset, data, sizeof(offset));
        memcpy(region + offset % (bytes - 8), data + 4, 8);
    }
    use();
    return 0;
}
