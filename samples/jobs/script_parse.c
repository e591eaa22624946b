#include "script.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job.h"

struct source {
    const char *path;
    char *text, *at;
    int line;
    const struct script_command *commands;
};

static _Noreturn void wrong(const struct source *source, const char *what, const char *detail)
{
    job_fail(JOB_EXIT_USAGE, "%s:%d: %s%s%s", source->path, source->line, what, detail ? ": " : "",
             detail ? detail : "");
}

static void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (!memory)
        job_fail(JOB_EXIT_USAGE, "no memory");
    return memory;
}

static void load(struct source *source)
{
    FILE *file = fopen(source->path, "re");
    if (!file)
        job_fail(JOB_EXIT_USAGE, "%s: %s", source->path, strerror(errno));
    size_t size = 0;
    FILE *copy = open_memstream(&source->text, &size);
    for (int c; copy && (c = getc(file)) != EOF;)
        putc(c, copy);
    fclose(file);
    if (!copy || fclose(copy))
        job_fail(JOB_EXIT_USAGE, "no memory");
    source->at = source->text;
    source->line = 1;
}

/* Skips blanks and comments, and ends of lines too when told so. */
static void skip(struct source *source, bool lines)
{
    for (;; source->at++) {
        if (*source->at == '#')
            source->at += strcspn(source->at, "\n");
        if (*source->at == '\n' && lines)
            source->line++;
        else if (*source->at == ';' && lines)
            continue;
        else if (!isblank((unsigned char)*source->at))
            return;
    }
}

/* The next word of this line; NULL at its end or before a brace. */
static char *word(struct source *source)
{
    skip(source, false);
    size_t length = strcspn(source->at, " \t\n;{}#");
    if (!length)
        return NULL;
    char *copy = strndup(source->at, length);
    source->at += length;
    return copy;
}

static void parse_ranks(const struct source *source, const char *list, bool value, bool only[SCRIPT_RANKS])
{
    for (const char *p = list; *p;) {
        char *end;
        long first = strtol(p, &end, 10), last = first;
        if (end != p && *end == '-') {
            p = end + 1;
            last = strtol(p, &end, 10);
        }
        if (end == p || first < 0 || last < first || last >= SCRIPT_RANKS || (*end && *end != ','))
            wrong(source, "no list of ranks", list);
        for (long rank = first; rank <= last; rank++)
            only[rank] = value;
        p = *end ? end + 1 : end;
    }
}

/* "rank LIST:" or "except LIST:"; gives the word after it, if any. */
static char *parse_prefix(struct source *source, struct script_node *node, char *first)
{
    bool is_rank = first && !strcmp(first, "rank"), is_except = first && !strcmp(first, "except");
    for (int rank = 0; rank < SCRIPT_RANKS; rank++)
        node->only[rank] = !is_rank;
    if (!is_rank && !is_except)
        return first;
    char *list = word(source);
    if (!list || !*list || list[strlen(list) - 1] != ':')
        wrong(source, "wanted LIST: after", first);
    list[strlen(list) - 1] = 0;
    parse_ranks(source, list, is_rank, node->only);
    free(list);
    free(first);
    return word(source);
}

static const struct script_command *find_command(const struct source *source, const char *name)
{
    for (const struct script_command *c = source->commands; c->name; c++)
        if (!strcmp(c->name, name))
            return c;
    wrong(source, "unknown command", name);
}

static bool is_option(const char *text)
{
    size_t key = strcspn(text, "=");
    return text[key] == '=' && key > 0 && isalpha((unsigned char)*text);
}

static struct script_node *parse_block(struct source *source, bool nested);

static struct script_node *parse_statement(struct source *source)
{
    struct script_node *node = allocate(sizeof *node);
    node->line = source->line;
    char *name = parse_prefix(source, node, word(source));
    if (name) {
        node->command = find_command(source, name);
        free(name);
        for (char *argument; (argument = word(source));) {
            bool option = is_option(argument);
            int *count = option ? &node->noptions : &node->nargs;
            if (*count == SCRIPT_ARGS)
                wrong(source, "too many arguments", argument);
            (option ? node->options : node->args)[(*count)++] = argument;
        }
        if (node->nargs < node->command->min_args || node->nargs > node->command->max_args)
            wrong(source, "wrong number of arguments", node->command->name);
    }
    skip(source, false);
    bool block = *source->at == '{';
    if (node->command ? block != node->command->block : !block)
        wrong(source, block ? "this command takes no block" : "{ expected",
              node->command ? node->command->name : NULL);
    if (block) {
        source->at++;
        node->body = parse_block(source, true);
    }
    return node;
}

static struct script_node *parse_block(struct source *source, bool nested)
{
    struct script_node *first = NULL, **end = &first;
    for (;;) {
        skip(source, true);
        if (!*source->at) {
            if (nested)
                wrong(source, "} expected", NULL);
            return first;
        }
        if (*source->at == '}') {
            if (!nested)
                wrong(source, "} without {", NULL);
            source->at++;
            return first;
        }
        *end = parse_statement(source);
        end = &(*end)->next;
    }
}

struct script_node *script_parse(const char *path, const struct script_command *commands)
{
    struct source source = {.path = path, .commands = commands};
    load(&source);
    struct script_node *first = parse_block(&source, false);
    free(source.text);
    return first;
}

void script_free(struct script_node *node)
{
    while (node) {
        struct script_node *next = node->next;
        for (int i = 0; i < node->nargs; i++)
            free(node->args[i]);
        for (int i = 0; i < node->noptions; i++)
            free(node->options[i]);
        script_free(node->body);
        free(node);
        node = next;
    }
}

/* ---- expressions ---- */

struct expression {
    const struct script_node *node;
    const char *text, *at;
    long long i;
};

static long long parse_sum(struct expression *e);

static _Noreturn void wrong_expression(const struct expression *e)
{
    job_fail(JOB_EXIT_USAGE, "script line %d: no number: %s", e->node->line, e->text);
}

static long long parse_atom(struct expression *e)
{
    static const char *const names[] = {"rank", "world", "i"};
    const long long values[] = {job.rank, job.world, e->i};
    if (*e->at == '-') {
        e->at++;
        return -parse_atom(e);
    }
    if (*e->at == '(') {
        e->at++;
        long long value = parse_sum(e);
        if (*e->at++ != ')')
            wrong_expression(e);
        return value;
    }
    if (isdigit((unsigned char)*e->at)) {
        char *end;
        long long value = strtoll(e->at, &end, 10);
        e->at = end;
        return value;
    }
    size_t length = strspn(e->at, "abcdefghijklmnopqrstuvwxyz");
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        if (length == strlen(names[n]) && !strncmp(e->at, names[n], length)) {
            e->at += length;
            return values[n];
        }
    wrong_expression(e);
}

static long long parse_product(struct expression *e)
{
    long long value = parse_atom(e);
    while (*e->at && strchr("*/%", *e->at)) {
        char sign = *e->at++;
        long long right = parse_atom(e);
        if (sign != '*' && right == 0)
            wrong_expression(e);
        value = sign == '*' ? value * right : sign == '/' ? value / right : value % right;
    }
    return value;
}

static long long parse_sum(struct expression *e)
{
    long long value = parse_product(e);
    while (*e->at == '+' || *e->at == '-')
        value = *e->at++ == '+' ? value + parse_product(e) : value - parse_product(e);
    return value;
}

long long script_value(const struct script_node *node, const char *text, long long i)
{
    struct expression e = {.node = node, .text = text, .at = text, .i = i};
    long long value = parse_sum(&e);
    if (*e.at)
        wrong_expression(&e);
    return value;
}
