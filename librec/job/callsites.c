#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* A call site, and behind its frames the texts that they point to. */
struct job_callsite {
    struct rec_callsite_def def;
    struct job_callsite *next; /* with the same hash */
    size_t bytes;
    struct rec_source_frame frames[];
};

void job_callsites_init(struct job_callsites *sites)
{
    *sites = (struct job_callsites){0};
    pthread_mutex_init(&sites->lock, NULL);
}

void job_callsites_fini(struct job_callsites *sites)
{
    for (size_t i = 0; i < sites->count; i++) {
        for (struct job_callsite *site = sites->items[i], *next; site; site = next) {
            next = site->next;
            free(site);
        }
    }
    free(sites->items);
    job_map_free(&sites->by_hash);
    pthread_mutex_destroy(&sites->lock);
}

static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
    return rec_mix64(hash);
}

static const char *build_of(const struct rec_source_frame *frame)
{
    return frame->build_id ? frame->build_id : "";
}

static uint64_t hash_site(const struct rec_callsite_def *def)
{
    uint64_t hash = rec_mix64(def->kind + ((uint64_t)def->nframes << 32));
    for (uint32_t i = 0; i < def->nframes; i++) {
        const struct rec_source_frame *frame = &def->frames[i];
        hash = hash_text(hash_text(hash_text(hash, frame->file), frame->function), build_of(frame));
        hash = rec_mix64(hash ^ frame->line ^ frame->offset << 8);
    }
    return hash;
}

static bool same_site(const struct rec_callsite_def *a, const struct rec_callsite_def *b)
{
    if (a->kind != b->kind || a->nframes != b->nframes)
        return false;
    for (uint32_t i = 0; i < a->nframes; i++) {
        const struct rec_source_frame *x = &a->frames[i], *y = &b->frames[i];
        if (x->line != y->line || x->offset != y->offset || strcmp(x->file, y->file) != 0 ||
            strcmp(x->function, y->function) != 0 || strcmp(build_of(x), build_of(y)) != 0)
            return false;
    }
    return true;
}

static const char *keep(char **to, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *kept = memcpy(*to, text, bytes);
    *to += bytes;
    return kept;
}

static struct job_callsite *copy_site(const struct rec_callsite_def *def)
{
    size_t bytes = sizeof(struct job_callsite) + def->nframes * sizeof(def->frames[0]);
    for (uint32_t i = 0; i < def->nframes; i++)
        bytes += strlen(def->frames[i].file) + strlen(def->frames[i].function) +
                 strlen(build_of(&def->frames[i])) + 3;
    struct job_callsite *site = malloc(bytes);
    if (!site)
        return NULL;
    char *text = (char *)&site->frames[def->nframes];
    for (uint32_t i = 0; i < def->nframes; i++) {
        site->frames[i] = def->frames[i];
        site->frames[i].file = keep(&text, def->frames[i].file);
        site->frames[i].function = keep(&text, def->frames[i].function);
        site->frames[i].build_id = keep(&text, build_of(&def->frames[i]));
    }
    site->def = (struct rec_callsite_def){.kind = def->kind, .nframes = def->nframes, .frames = site->frames};
    site->bytes = bytes;
    return site;
}

/* The shared copy of def; NULL with *full when the pool may not grow, NULL without it: no memory. */
static const struct rec_callsite_def *intern(struct job_callsites *sites, const struct rec_callsite_def *def,
                                             bool *full)
{
    uint64_t hash = hash_site(def);
    uint32_t at = job_map_get(&sites->by_hash, hash);
    *full = false;
    for (struct job_callsite *site = at == JOB_MAP_NONE ? NULL : sites->items[at]; site; site = site->next)
        if (same_site(&site->def, def))
            return &site->def;
    *full = sites->bytes >= JOB_MAX_CALLSITE_BYTES;
    struct job_callsite *site = *full ? NULL : copy_site(def);
    if (!site)
        return NULL;
    if (at == JOB_MAP_NONE) {
        if (!job_grow(&sites->items, &sites->room, sites->count + 1, sizeof(*sites->items)) ||
            !job_map_put(&sites->by_hash, hash, (uint32_t)sites->count)) {
            free(site);
            return NULL;
        }
        site->next = NULL;
        sites->items[sites->count++] = site;
    } else {
        site->next = sites->items[at];
        sites->items[at] = site;
    }
    sites->bytes += site->bytes;
    return &site->def;
}

void job_process_callsite(struct job_process *process, const struct rec_callsite_def *def)
{
    if (!process->callsites || def->id == 0 || process->nsites >= JOB_MAX_CALLSITES ||
        job_map_get(&process->site_ids, def->id) != JOB_MAP_NONE)
        return;
    bool full;
    pthread_mutex_lock(&process->callsites->lock);
    const struct rec_callsite_def *shared = intern(process->callsites, def, &full);
    pthread_mutex_unlock(&process->callsites->lock);
    if (full)
        return;
    if (!shared ||
        !job_grow(&process->sites, &process->sites_room, process->nsites + 1, sizeof(*process->sites)) ||
        !job_map_put(&process->site_ids, def->id, (uint32_t)process->nsites)) {
        process->no_memory = true;
        return;
    }
    process->sites[process->nsites++] = shared;
}

const struct rec_callsite_def *rec_process_callsite(const struct rec_process *process, uint32_t callsite)
{
    const struct job_process *p = job_process_of(process);
    uint32_t at = job_map_get(&p->site_ids, callsite);
    return at == JOB_MAP_NONE ? NULL : p->sites[at];
}
