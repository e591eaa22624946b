#include "contents.h"

#include "key.h"

/* A frame takes some 200 bytes with its line table, a file name about 80 once. */
#define ARENA_BYTES   (2u << 20)
#define BUCKETS       4096
#define FILES         256
#define LONGEST_CHAIN 64 /* of frames that differ where the probe does not look */

/* A text or table. */
struct copy {
    struct copy *next;
    uint64_t bytes;
    char data[];
};

_Atomic uint32_t contents_generation = 1;
/* No table has this length. */
const struct contents contents_none = {.table_length = UINT64_MAX};

/* Written by one thread at a time; a bucket is stored with release once what it leads to is complete. */
static struct {
    _Atomic(const struct contents *) buckets[BUCKETS];
    struct copy *files[FILES];
    size_t used;
    uint64_t ids;
    _Alignas(16) char arena[ARENA_BYTES];
} known;

void contents_reset(void)
{
    atomic_fetch_add_explicit(&contents_generation, 1, memory_order_relaxed);
    if (known.used == 0)
        return;
    for (size_t i = 0; i < BUCKETS; i++)
        atomic_store_explicit(&known.buckets[i], NULL, memory_order_relaxed);
    memset(known.files, 0, sizeof(known.files));
    known.used = 0;
}

static void *take(size_t bytes)
{
    bytes = (bytes + 15) & ~(size_t)15;
    if (bytes > ARENA_BYTES - known.used)
        return NULL;
    void *memory = known.arena + known.used;
    known.used += bytes;
    return memory;
}

/* ---- finding ---- */

typedef uint64_t chunk __attribute__((vector_size(16), aligned(1), may_alias));

static inline chunk load(const char *at)
{
    return *(const chunk *)(const void *)at;
}

static inline chunk load_aligned(const char *at)
{
    return *(const chunk *)__builtin_assume_aligned(at, 16);
}

bool contents_differ_long(const char *data, const struct contents_piece *piece)
{
    const char *copy = piece->copy;
    if (piece->bytes < 16)
        return ((load_word(data, 0) ^ load_word(copy, 0)) |
                (load_word(data + piece->bytes - 8, 0) ^ load_word(copy + piece->bytes - 8, 0))) != 0;
    const size_t end = piece->bytes - 16u;
    chunk differ = load(data + end) ^ load(copy + end);
    for (size_t i = 0; i < end; i += 16)
        differ |= load(data + i) ^ load_aligned(copy + i);
    return (differ[0] | differ[1]) != 0;
}

static uint32_t str_data(const struct py_layout *layout, uint32_t state)
{
    return (state & CONTENTS_ASCII) != 0 ? layout->ascii_data : layout->compact_data;
}

/* Of the end, where names of files made by a counter differ, and line tables of most edited functions. */
static uint64_t probe_of(const struct py_layout *layout, const char *code, uint32_t instr)
{
    const char *file = load_pointer(code, layout->code_filename);
    const char *table = load_pointer(code, layout->code_linetable);
    uint32_t state = load_int(file, PY_STR_STATE);
    uint64_t length = load_word(file, PY_LENGTH), table_length = load_word(table, PY_LENGTH), end = 0;
    if ((state & CONTENTS_COMPACT) != 0)
        end = load_word(file + str_data(layout, state) + length * (state >> 2 & 7) - 8, 0);
    uint64_t table_end = load_word(table + PY_BYTES_DATA + table_length - 8, 0);
    uint64_t place = (uint64_t)instr << 32 ^ load_int(code, layout->code_firstlineno);
    uint64_t name = contents_hash(load_pointer(code, layout->code_name));
    return key_fold(place ^ name, KEY_SALT) ^ key_fold(end ^ length << 48, KEY_SECRET) ^
           key_fold(table_end ^ table_length << 32, KEY_SALT ^ KEY_SECRET);
}

__attribute__((noinline)) const struct contents *contents_find(const struct py_layout *layout,
                                                               const char *code, uint32_t instr)
{
    const char *file = NULL, *file_is = NULL;
    uint64_t probe = probe_of(layout, code, instr);
    const struct contents *entry =
        atomic_load_explicit(&known.buckets[probe % BUCKETS], memory_order_acquire);
    for (unsigned i = 0; entry != NULL && i < LONGEST_CHAIN; entry = entry->next, i++)
        if (entry->probe == probe && contents_equal(layout, entry, code, instr, &file, &file_is))
            return entry;
    return NULL;
}

/* ---- learning ---- */

/* Copies bytes of an object; false = cannot be had. */
static bool copy_piece(const char *object, uint32_t at, uint64_t bytes, struct contents_piece *piece)
{
    struct copy *copy = bytes <= CONTENTS_MAX ? take(sizeof(*copy) + bytes) : NULL;
    if (copy == NULL || (bytes > 0 && !py_peek((uintptr_t)object + at, copy->data, bytes)))
        return false;
    copy->bytes = bytes;
    *piece = (struct contents_piece){.copy = copy->data, .bytes = (uint32_t)bytes, .at = at};
    for (uint64_t i = 1; i <= 8 && i <= bytes; i++) {
        piece->last |= (uint64_t)(unsigned char)copy->data[bytes - i] << 8 * (8 - i);
        piece->last_mask |= UINT64_C(255) << 8 * (8 - i);
    }
    return true;
}

/* Text of a str, and what says where it lies. False also for a str whose text is elsewhere. */
static bool copy_str(const struct py_layout *layout, const char *object, uint32_t *state, uint64_t *length,
                     struct contents_piece *piece)
{
    *state = load_int(object, PY_STR_STATE) & CONTENTS_STR_STATE;
    *length = load_word(object, PY_LENGTH);
    return (*state & CONTENTS_COMPACT) != 0 && *length <= CONTENTS_MAX &&
           copy_piece(object, str_data(layout, *state), *length * (*state >> 2 & 7), piece);
}

/* A file name: all frames of a file share one copy. */
static bool copy_file(const struct py_layout *layout, const char *object, uint32_t *state, uint64_t *length,
                      struct contents_piece *piece)
{
    size_t before = known.used;
    if (!copy_str(layout, object, state, length, piece))
        return false;
    uint64_t hash = piece->bytes;
    for (size_t i = 0; i < piece->bytes; i++)
        hash = key_fold(hash ^ (unsigned char)piece->copy[i], KEY_SALT);
    struct copy **head = &known.files[hash % FILES];
    for (const struct copy *old = *head; old != NULL; old = old->next)
        if (old->bytes == piece->bytes && memcmp(old->data, piece->copy, piece->bytes) == 0) {
            known.used = before;
            piece->copy = old->data;
            return true;
        }
    struct copy *made = (struct copy *)(void *)(known.arena + before);
    made->next = *head;
    *head = made;
    return true;
}

/* Fills everything but what makes it known to others. */
static bool copy_frame(const struct py_layout *layout, const char *code, uint32_t instr, uint32_t table_bytes,
                       struct contents *entry)
{
    const char *file = load_pointer(code, layout->code_filename);
    const char *name = load_pointer(code, layout->code_name);
    const char *table = load_pointer(code, layout->code_linetable);
    *entry = (struct contents){
        .probe = probe_of(layout, code, instr),
        .name_hash = contents_hash(name),
        .table_length = load_word(table, PY_LENGTH),
        .instr = instr,
        .firstlineno = load_int(code, layout->code_firstlineno),
    };
    return copy_piece(table, PY_BYTES_DATA, table_bytes, &entry->table) &&
           (entry->name_hash != UINT64_MAX ||
            copy_str(layout, name, &entry->name_state, &entry->name_length, &entry->name)) &&
           copy_file(layout, file, &entry->file_state, &entry->file_length, &entry->file);
}

const struct contents *contents_learn(const struct py_layout *layout, const char *code, uint32_t instr,
                                      uint32_t table_bytes)
{
    size_t before = known.used;
    struct contents *entry = take(sizeof(*entry));
    if (entry == NULL || !copy_frame(layout, code, instr, table_bytes, entry)) {
        known.used = before;
        return NULL;
    }
    entry->id = key_finish(++known.ids * KEY_SALT, KEY_SALT);
    _Atomic(const struct contents *) *bucket = &known.buckets[entry->probe % BUCKETS];
    entry->next = atomic_load_explicit(bucket, memory_order_relaxed);
    atomic_store_explicit(bucket, entry, memory_order_release);
    return entry;
}
