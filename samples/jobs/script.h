/*
 * The language of fr-script: what each rank of a small job does, one command a line.
 *
 *   # comment
 *   [rank LIST: | except LIST:] COMMAND ARGUMENT…       LIST: 0,2,4-7 (job ranks)
 *   [rank LIST:] { … }      repeat N { … }      group { … }      thread { … }
 *
 * Numbers are expressions over integers, `rank`, `world` and `i` (the innermost repeat's
 * counter) with + - * / % and parentheses, written without blanks: 1024*(rank+1).
 * samples/jobs/README.md lists the commands.
 */
#ifndef SAMPLES_SCRIPT_H
#define SAMPLES_SCRIPT_H

#include <stdbool.h>

#define SCRIPT_ARGS  12
#define SCRIPT_RANKS 1024

struct script_context; /* one thread of execution (script.c) */
struct script_node;

struct script_command {
    const char *name;
    int min_args, max_args; /* positional; key=value options come on top */
    bool block;             /* takes { … } */
    void (*run)(struct script_context *context, const struct script_node *node);
};

struct script_node {
    const struct script_command *command; /* NULL: a bare block */
    int line;
    bool only[SCRIPT_RANKS]; /* which job ranks execute it */
    int nargs;
    char *args[SCRIPT_ARGS]; /* positional */
    int noptions;
    char *options[SCRIPT_ARGS]; /* key=value */
    struct script_node *body;   /* first statement of the block */
    struct script_node *next;
};

/* Parses a whole file; exits with the line and the reason when it is wrong. */
struct script_node *script_parse(const char *path, const struct script_command *commands);
void script_free(struct script_node *node);

/* Value of an expression; exits naming the node's line when it is wrong. */
long long script_value(const struct script_node *node, const char *text, long long i);

#endif
