/*
 * Memory for call sites, and a made-up CPython 3.11 in it whose every pointer can be spoilt.
 */
#ifndef MADE_UP_H
#define MADE_UP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>

#include "callsite.h"

#define BYTES   (1u << 20)
#define THREADS 4

extern void *memory; /* of the recorder */
void *zeroed(void);
int free_memory(void **unused); /* teardown of a group of tests */
const struct rec_callsite_header *header(void);
struct rec_callsite_site site_of(uint32_t id);
const void *address(uintptr_t i);

/* ---- the interpreter ---- */

struct object {
    uint64_t references;
    const void *type;
};

struct text {
    struct object object;
    int64_t length, hash;
    uint64_t state, unused;
    char text[56];
};

struct bytes {
    struct object object;
    int64_t length, hash;
    unsigned char data[16];
};

/* Offsets as in layouts.h. */
struct code {
    struct object object;
    int64_t units;
    char unused0[48];
    int32_t firstlineno;
    char unused1[36];
    const struct text *filename, *name;
    char unused2[8];
    const struct bytes *linetable;
    char unused3[24];
    int32_t firsttraceable;
    char unused4[12];
    uint16_t instructions[20];
};
_Static_assert(offsetof(struct code, firstlineno) == 72 && offsetof(struct code, filename) == 112 &&
                   offsetof(struct code, linetable) == 136 && offsetof(struct code, firsttraceable) == 168 &&
                   offsetof(struct code, instructions) == 184,
               "CPython 3.11");

struct frame {
    char unused0[32];
    const struct code *code;
    char unused1[8];
    const struct frame *previous;
    const uint16_t *previous_instruction;
    char unused2[5];
    char owner;
    char unused3[26];
};
_Static_assert(offsetof(struct frame, previous_instruction) == 56 && offsetof(struct frame, owner) == 69,
               "CPython 3.11");

struct cframe {
    uint64_t unused;
    const struct frame *frame;
};

struct thread_state {
    char unused0[16];
    const void *interpreter;
    char unused1[32];
    const struct cframe *cframe;
    char unused2[88];
    pthread_t thread;
};
_Static_assert(offsetof(struct thread_state, cframe) == 56 && offsetof(struct thread_state, thread) == 152,
               "CPython 3.11");

extern struct python {
    struct thread_state state;
    struct cframe cframe;
    struct frame frames[3];
    struct code code[3];
    struct text file, name[3];
    struct bytes lines;
} python;
extern char interpreter, str_type;
extern _Atomic int initialized;
extern _Thread_local struct thread_state *own_state;

/* Three frames: one.py's h, g and f, in lines 3, 2 and 1. */
void make_python(void);
const struct callsite_symbols *symbols(void);
struct text make_text(const char *string);
void start(unsigned frames);
void check_stack(uint32_t id, unsigned count);

#endif
