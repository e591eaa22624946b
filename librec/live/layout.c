#include "rec/live.h"

#include <string.h>

static uint64_t align64(uint64_t bytes)
{
    return (bytes + 63) & ~UINT64_C(63);
}

/* The marks have pages of their own: they are registered with CUDA, which pins whole ones. */
static uint64_t align_page(uint64_t bytes)
{
    return (bytes + 4095) & ~UINT64_C(4095);
}

uint64_t rec_live_layout(const struct rec_live_config *config, struct rec_live_header *header)
{
    memset(header, 0, sizeof(*header));
    header->version = REC_LIVE_VERSION;
    header->header_bytes = sizeof(*header);
    header->tick_ns = config->tick_ns;
    header->comm_count = config->comms;
    header->thread_count = config->threads;
    header->redop_count = config->redops;
    header->stream_count = config->streams;
    header->chunk_slots = REC_LIVE_CHUNK_SLOTS;
    header->chunk_count =
        (uint32_t)(((uint64_t)config->slots + REC_LIVE_CHUNK_SLOTS - 1) / REC_LIVE_CHUNK_SLOTS);

    uint64_t at = align64(sizeof(*header));
    header->comm_offset = at;
    at = align64(at + sizeof(struct rec_live_comm) * config->comms);
    header->thread_offset = at;
    at = align64(at + sizeof(struct rec_live_thread) * config->threads);
    header->redop_offset = at;
    at = align64(at + sizeof(struct rec_live_redop) * config->redops);
    header->stream_offset = at;
    at = align64(at + sizeof(struct rec_live_stream) * config->streams);
    at = align_page(at);
    header->mark_offset = at;
    at = align_page(at + sizeof(struct rec_live_mark) * config->streams);
    header->callsite_bytes = align64(config->callsite_bytes);
    header->callsite_offset = at;
    at += header->callsite_bytes;
    header->chunk_offset = at;
    at += sizeof(struct rec_live_chunk) * header->chunk_count;
    header->slot_offset = at;
    at += sizeof(union rec_live_slot) * REC_LIVE_CHUNK_SLOTS * header->chunk_count;
    header->total_bytes = at;
    return at;
}

void rec_live_attach(struct rec_live *live, void *memory)
{
    unsigned char *base = memory;
    struct rec_live_header *header = memory;
    live->header = header;
    live->comms = (struct rec_live_comm *)(base + header->comm_offset);
    live->threads = (struct rec_live_thread *)(base + header->thread_offset);
    live->redops = (struct rec_live_redop *)(base + header->redop_offset);
    live->streams = (struct rec_live_stream *)(base + header->stream_offset);
    live->marks = (struct rec_live_mark *)(base + header->mark_offset);
    live->callsites = header->callsite_bytes ? base + header->callsite_offset : NULL;
    live->chunks = (struct rec_live_chunk *)(base + header->chunk_offset);
    live->slots = (union rec_live_slot *)(base + header->slot_offset);
    live->bytes = header->total_bytes;
}
