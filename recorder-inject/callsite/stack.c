#include "stack.h"

#include <string.h>

#include "key.h"
#include "lines.h"

#define MAX_TEXT_UNITS REC_CALLSITE_MAX_FILE
#define MAX_LINE_TABLE (64u << 20)

struct copier {
    const struct py_api *api;
    const struct py_layout *layout;
    struct stack *stack;
};

static bool wrong(struct copier *copier, const char *what)
{
    copier->stack->wrong = what;
    return false;
}

static uint64_t word_at(const unsigned char *bytes, unsigned offset)
{
    uint64_t value;
    memcpy(&value, bytes + offset, sizeof(value));
    return value;
}

static int32_t int_at(const unsigned char *bytes, unsigned offset)
{
    int32_t value;
    memcpy(&value, bytes + offset, sizeof(value));
    return value;
}

/* Encodes one code point; lone surrogates (undecodable bytes of a path) become '?'. */
static unsigned put_utf8(uint32_t c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) {
        out[0] = '?';
        return 1;
    }
    unsigned bytes = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (unsigned i = bytes - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((0xf0u << (4 - bytes)) | c);
    return bytes;
}

static uint32_t unit_at(const unsigned char *units, unsigned kind, size_t i)
{
    uint32_t c = 0;
    memcpy(&c, units + i * kind, kind);
    return c;
}

/*
 * Copies a str as UTF-8 of at most max bytes: its start, or its end (what tells paths apart).
 * A str whose text does not lie in the object itself is left empty: exact is cleared.
 */
static bool copy_text(struct copier *copier, const unsigned char head[PY_OBJECT_BYTES], uintptr_t object,
                      bool end, size_t max, struct stack_frame *frame, struct stack_text *text)
{
    struct stack *stack = copier->stack;
    uint64_t length = word_at(head, PY_LENGTH);
    /* Free-threaded builds give the first member of the state a byte instead of two bits. */
    uint32_t state = (uint32_t)int_at(head, PY_STR_STATE) >> (copier->layout->header != 0 ? 6 : 0);
    unsigned kind = state >> 2 & 7;
    bool compact = (state & 0x20) != 0, ascii = (state & 0x40) != 0;
    text->length = 0;
    text->at = (uint16_t)stack->used;
    if (word_at(head, PY_TYPE) != copier->api->str_type || !compact) {
        stack->exact = false;
        return true;
    }
    if ((kind != 1 && kind != 2 && kind != 4) || length > INT32_MAX || (ascii && kind != 1))
        return wrong(copier, "a str that is none");
    unsigned char units[MAX_TEXT_UNITS * 4];
    size_t count = length < max ? (size_t)length : max;
    size_t skip = end ? (size_t)length - count : 0;
    uintptr_t data = object + (ascii ? copier->layout->ascii_data : copier->layout->compact_data);
    if (!py_peek(data + skip * kind, units, count * kind))
        return wrong(copier, "a str that cannot be read");
    size_t used = 0;
    if (sizeof(stack->text) - stack->used < max) {
        frame->cut = true;
        return true;
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t c = unit_at(units, kind, i);
        char utf8[4];
        unsigned bytes = put_utf8(c, utf8);
        if (c == 0 || (ascii && c >= 0x80))
            return wrong(copier, "a str with impossible text");
        if (used + bytes > max)
            break;
        memcpy(stack->text + stack->used + used, utf8, bytes);
        used += bytes;
    }
    stack->used += used;
    text->length = (uint16_t)used;
    return true;
}

static bool find_line(struct copier *copier, const unsigned char head[PY_OBJECT_BYTES], uintptr_t object,
                      struct stack_frame *frame)
{
    uint64_t length = word_at(head, PY_LENGTH);
    if (word_at(head, PY_TYPE) != copier->api->bytes_type || length > MAX_LINE_TABLE)
        return wrong(copier, "a line table that is no bytes object");
    struct line_table table = {.address = object + copier->layout->header + PY_BYTES_DATA, .left = length};
    frame->line = line_of(copier->layout->lines, &table, frame->offset, frame->firstlineno);
    if (table.unreadable)
        return wrong(copier, "a line table that cannot be read");
    frame->table_bytes = line_table_used(&table, length);
    return true;
}

/* Bytes of instructions that the code object has, negative = unreadable. */
static int64_t bytecode_length(struct copier *copier, const unsigned char *code)
{
    const struct py_layout *layout = copier->layout;
    if (layout->instr_unit == 0)
        return (int64_t)(2 * word_at(code, layout->header + PY_LENGTH)); /* ob_size counts code units */
    unsigned char head[PY_OBJECT_BYTES];
    if (!py_peek(word_at(code, layout->code_bytecode), head, sizeof(head)) ||
        word_at(head, PY_TYPE) != copier->api->bytes_type)
        return -1;
    return (int64_t)word_at(head, PY_LENGTH);
}

/* An outer frame of the same code was copied before: recursion. */
static const struct stack_frame *same_code(const struct stack *stack, const struct stack_frame *frame)
{
    for (const struct stack_frame *other = stack->frames; other < frame; other++)
        if (other->location == 0 && other->code == frame->code)
            return other;
    return NULL;
}

/*
 * Where the instructions of this frame begin, 0 = unknown. Free-threaded builds have a copy for each thread.
 * Another thread may replace the array of them meanwhile by a longer one; the old one is freed after that, so
 * an array that is still the code's was read whole. (CPython's source says so, 3.14 and 3.15; no test
 * makes the two meet.)
 */
static uint64_t instructions(const struct py_layout *layout, uintptr_t code, const unsigned char *frame)
{
    if (layout->header == 0)
        return code + layout->code_bytecode;
    uint64_t index = (uint32_t)int_at(frame, layout->frame_copy), at, again, copy;
    for (unsigned attempt = 0; attempt < 8 && py_peek(code + layout->code_copies, &at, sizeof(at));
         attempt++) {
        uint64_t size; /* and behind it the addresses of the copies */
        bool good = py_peek(at, &size, sizeof(size)) && index < size &&
                    py_peek(at + sizeof(size) + index * sizeof(copy), &copy, sizeof(copy));
        if (py_peek(code + layout->code_copies, &again, sizeof(again)) && again == at)
            return good ? copy : 0;
    }
    return 0;
}

/* Fills frame from the code object at frame->code; bytes are the interpreter's frame. */
static bool copy_code(struct copier *copier, struct stack_frame *frame, const unsigned char *bytes)
{
    const struct py_layout *layout = copier->layout;
    unsigned char code[PY_CODE_BYTES], heads[3][PY_OBJECT_BYTES];
    uint64_t instr = word_at(bytes, layout->frame_instr);
    unsigned owner = layout->frame_owner != PY_NOT_THERE ? bytes[layout->frame_owner] : 0;
    if (!py_peek(frame->code, code, layout->code_size) ||
        word_at(code, layout->header + PY_TYPE) != copier->api->code_type)
        return wrong(copier, "a frame whose code is no code object");
    if (layout->instr_unit == 0)
        frame->offset = (int64_t)(instr - instructions(layout, frame->code, bytes));
    else
        frame->offset = (int32_t)instr < 0 ? -2 : (int64_t)(int32_t)instr * layout->instr_unit;
    /* Just before the first instruction: a call that has not begun yet. */
    if (frame->offset < -2 || frame->offset % 2 != 0 || frame->offset >= bytecode_length(copier, code))
        return wrong(copier, "an instruction outside its code");
    frame->firstlineno = int_at(code, layout->code_firstlineno);
    frame->hidden = layout->code_firsttraceable != PY_NOT_THERE && owner != PY_OWNER_GENERATOR &&
                    frame->offset < 2 * (int64_t)int_at(code, layout->code_firsttraceable);
    frame->settled = !layout->by_version || int_at(code, layout->code_version) != 0;
    uintptr_t objects[3] = {word_at(code, layout->code_filename), word_at(code, layout->code_name),
                            word_at(code, layout->code_linetable)};
    struct iovec parts[3];
    for (unsigned i = 0; i < 3; i++)
        parts[i] = (struct iovec){(void *)(objects[i] + layout->header), PY_OBJECT_BYTES};
    if (!py_peekv(parts, 3, heads, sizeof(heads)))
        return wrong(copier, "a code object with unreadable parts");
    const struct stack_frame *same = same_code(copier->stack, frame);
    if (same != NULL) {
        frame->settled &= same->settled;
        frame->cut = same->cut;
        frame->file = same->file;
        frame->function = same->function;
        return find_line(copier, heads[2], objects[2], frame);
    }
    return copy_text(copier, heads[0], objects[0], true, REC_CALLSITE_MAX_FILE, frame, &frame->file) &&
           copy_text(copier, heads[1], objects[1], false, REC_CALLSITE_MAX_FUNCTION, frame,
                     &frame->function) &&
           find_line(copier, heads[2], objects[2], frame);
}

/* Bytes of a frame up to the end of the last member used: the frame itself may end soon after. */
static size_t frame_bytes(const struct py_layout *layout)
{
    size_t end = layout->frame_instr;
    end = layout->frame_code > end ? layout->frame_code : end;
    end = layout->frame_previous > end ? layout->frame_previous : end;
    end += sizeof(uint64_t);
    if (layout->frame_owner != PY_NOT_THERE && layout->frame_owner >= end)
        end = layout->frame_owner + 1u;
    if (layout->header != 0 && layout->frame_copy + sizeof(uint32_t) > end)
        end = layout->frame_copy + sizeof(uint32_t);
    return end;
}

bool stack_find(const struct py_layout *layout, uintptr_t thread_state, unsigned max, struct stack *stack)
{
    uint64_t at;
    stack->count = 0;
    stack->wrong = "a thread state that cannot be read";
    if (!py_peek(thread_state + layout->ts_frame, &at, sizeof(at)) ||
        (layout->cframe_frame != PY_NOT_THERE && !py_peek(at + layout->cframe_frame, &at, sizeof(at))))
        return false;
    stack->wrong = "a frame that cannot be read";
    for (unsigned steps = 0; at != 0 && stack->count < max && steps < 2 * max; steps++) {
        unsigned char frame[PY_FRAME_BYTES];
        if (!py_peek(at, frame, frame_bytes(layout)))
            return false;
        if (layout->frame_owner == PY_NOT_THERE || frame[layout->frame_owner] < PY_OWNER_C)
            stack->frames[stack->count++] = (struct stack_frame){.address = at};
        at = word_at(frame, layout->frame_previous);
    }
    stack->wrong = NULL;
    return true;
}

bool stack_copy(const struct py_api *api, const struct py_layout *layout, struct stack *stack)
{
    struct copier copier = {api, layout, stack};
    stack->wrong = NULL;
    stack->exact = true;
    stack->used = 0;
    for (unsigned i = 0; i < stack->count; i++) {
        struct stack_frame *frame = &stack->frames[i];
        unsigned char bytes[PY_FRAME_BYTES];
        if (frame->location != 0)
            continue;
        if (!py_peek(frame->address, bytes, frame_bytes(layout)))
            return wrong(&copier, "a frame that cannot be read");
        frame->code = word_at(bytes, layout->frame_code) & ~PY_TAG_BITS;
        frame->cut = false;
        if (!copy_code(&copier, frame, bytes))
            return false;
    }
    return true;
}
