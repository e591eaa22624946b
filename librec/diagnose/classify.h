/* What classify.c and knot.c share. */
#ifndef DIAG_CLASSIFY_H
#define DIAG_CLASSIFY_H

#include "past.h"

struct classify {
    struct diag *d;
    size_t ndiverged;        /* findings that were there before: where members disagree */
    uint32_t *blamed;        /* by process: finding index + 1; 0 = none */
    uint32_t *reverse_start; /* by node */
    uint32_t *reverse_from;
    uint32_t *reverse_op; /* of the edge */
    bool *reached;        /* by node, scratch */
    uint32_t *queue;
    uint32_t *ties; /* waits at which as many came as left; in the order of their beginning */
    size_t nties;
    bool *first_dead;     /* by process: died first, of all that died while others lived on */
    uint32_t first_death; /* one of them; DIAG_NONE */
};

/* Marks every node that waits, directly or not, for one of the given ones. */
void classify_reach(struct classify *c, const uint32_t *nodes, size_t count);
/* Adds the reached processes as victims, except its culprits and suspects. */
void classify_victims(struct classify *c, struct rec_finding *f);
/* Adds everybody who waits there, directly or not. */
void classify_waiting(struct classify *c, struct rec_finding *f, const struct diag_wait *wait);
/* "ranks 0-1,3 wait in AllReduce (…), op 7 of communicator … since 12:00:00 UTC" */
void classify_say_wait(struct classify *c, struct diag_text *t, const struct diag_wait *wait);
/* " while " these do; or ", in AllReduce (…), … since …" when only those to blame do. */
enum classify_while {
    CLASSIFY_SAID = 1,  /* "it" for the op */
    CLASSIFY_APART = 2, /* with a comma */
};
void classify_say_while(struct classify *c, struct diag_text *t, const struct diag_wait *wait, unsigned how);
/* "AllReduce (…), op 7 of communicator …"; several: as it looks to all of those who wait. */
void classify_say_awaited(const struct diag *d, struct diag_text *t, const struct diag_wait *wait,
                          bool several);
void classify_evidence_wait(struct classify *c, struct rec_finding *f, const struct diag_wait *wait);
/* Fills comm, seq and op. */
void classify_place(struct classify *c, struct rec_finding *f, const struct diag_wait *wait);

/* The findings from the first one on are about what is over: anything that lasts comes before them. */
void classify_over(struct diag *d, size_t first);

uint32_t classify_node(const struct diag *d, const struct diag_wait *wait);

/* ---- vote.c ---- */

/* Has a member left for good without this op: ended well, torn the communicator down, or gone on? */
bool classify_gone(const struct diag *d, const struct diag_partner *partner, const struct diag_wait *wait);
/* When it came back, or ended, having done nothing while anybody waited there; 0 = it did something, or
 * never. */
uint64_t classify_back_ns(const struct diag *d, uint32_t proc, const struct diag_wait *wait);
/* Has it gone on with other work, in the thread that works on this communicator? */
bool classify_went_on(const struct diag *d, const struct diag_partner *partner, const struct diag_wait *wait);

enum classify_side { CLASSIFY_ABSENT, CLASSIFY_NEARLY, CLASSIFY_FEW, CLASSIFY_TIE, CLASSIFY_ALONE };
/*
 * Who is wrong; gone tells how many left. CLASSIFY_NEARLY: those who did not come, if not all members that
 * are not recorded left, too. CLASSIFY_FEW: those who came. CLASSIFY_ALONE: perhaps the one that came, with a
 * call that nobody had made before.
 */
enum classify_side classify_vote(const struct classify *c, const struct diag_wait *wait,
                                 const struct diag_partner *partners, size_t count, uint32_t *gone);
/* Judges the waits in c->ties by what the others have brought to light, by the past, or as ties. */
void classify_ties(struct classify *c);

/* ---- causes.c ---- */

/* How sure is it that those who did not come are wrong? */
enum classify_doubt {
    CLASSIFY_DECIDED,
    CLASSIFY_RULED, /* by what else is known of them: likely */
    CLASSIFY_PAIR,  /* one against one: they are named, the others are suspects */
    CLASSIFY_EVEN,  /* both sides are named */
    CLASSIFY_OPEN,  /* who is not recorded might tell, or nobody: all are suspects */
    CLASSIFY_SOME,  /* not all of those who did not come need come: they are suspects */
};
/*
 * At a wait for a signal: another one that the awaited rank raised for the waiting one, which does not wait
 * for it. NULL: there is none. Then either may have used the wrong index or context.
 */
const struct diag_op *classify_other_signal(const struct diag *d, const struct diag_wait *wait);
/* Blames those of the partners that are concerned; who is blamed already only gets more victims. */
void classify_partners(struct classify *c, const struct diag_wait *wait, const struct diag_partner *partners,
                       size_t count, enum classify_doubt doubt);
/* Blames those who came, because more have left without it. */
void classify_few(struct classify *c, const struct diag_wait *wait, uint32_t gone);
/* Blames the one that came, and suspects those who stand outside. */
void classify_alone(struct classify *c, const struct diag_wait *wait, const struct diag_partner *partners,
                    size_t count);
/* Blames the one that came, because it left its loop to do so and the one that left did not. */
void classify_one_too_many(struct classify *c, const struct diag_wait *wait, uint32_t came, uint32_t gone,
                           const struct diag_departure *departure);
void classify_more_victims(struct classify *c, const struct diag_wait *wait, uint32_t finding);

/*
 * Still at work when the recording ended, measured by the patience of those who wait: what it
 * has not done yet it may have done next.
 */
bool classify_busy(const struct diag *d, uint32_t proc, const struct diag_wait *wait);

/* ---- deaths.c ---- */

/* Fills first_dead. */
void classify_find_deaths(struct classify *c);
/* A wait for somebody who died. */
void classify_death(struct classify *c, const struct diag_wait *wait);
/* Those for whom nobody waited, and those who died later. */
void classify_deaths(struct classify *c);

/* ---- broken.c ---- */

void classify_failed(struct classify *c, const struct diag_wait *wait);
/* Does it follow a message of the same pair that does not fit? */
bool classify_shifted(const struct diag *d, const struct diag_wait *wait);
/* Send and Recv of different size. */
void classify_pair(struct classify *c, const struct diag_wait *wait);
/* Collectives that do not fit: diag_diverge has told it, only the victims are new. */
void classify_divergence(struct classify *c, const struct diag_wait *wait);
/* Is it at, or behind, an op of its communicator where the members disagree? Then that is why it does not
 * end. */
bool classify_behind_divergence(struct classify *c, const struct diag_wait *wait);
/* Everybody has launched it, it fits, and still it does not end. */
void classify_kernel(struct classify *c, const struct diag_wait *wait);
/* A creation or teardown that no known process could end. */
void classify_lonely(struct classify *c, const struct diag_wait *wait);

/* ---- suspects.c ---- */

static inline bool classify_inside(const struct diag *d, uint32_t node, uint32_t component)
{
    return d->component[node] == component;
}

#define CLASSIFY_CYCLE_MAX    512
#define CLASSIFY_SUSPECTS_MAX 64

/* A shortest way from a process back to itself inside the component: its edges; returns their number. */
size_t classify_cycle(struct classify *c, uint32_t component, uint32_t start, uint32_t *path, size_t max);

/* Processes of a knot of which one may be wrong, and who of them has left its loop. */
struct classify_suspects {
    uint32_t procs[CLASSIFY_SUSPECTS_MAX];
    bool left[CLASSIFY_SUSPECTS_MAX];
    struct diag_departure what[CLASSIFY_SUSPECTS_MAX];
    size_t count; /* 0: too many */
    size_t nleft;
    bool alone; /* each of them could have caused the knot alone; else nobody could, and these are all */
    bool by_siblings; /* what others did on communicators of the same kind left only one */
};
/* guessed: who is awaited in it is not known for sure. */
void classify_suspects(struct classify *c, uint32_t component, bool guessed, struct classify_suspects *s);
/* Sets left and nleft if some have left their loop and all others have kept to theirs. */
void classify_departures(struct classify *c, uint32_t component, struct classify_suspects *s);
/* Of several that could have caused the knot alone, the one that did other than its siblings. */
void classify_odd_sibling(struct classify *c, uint32_t component, struct classify_suspects *s);
/* Is it one of those who left, or of all if nobody did? */
bool classify_is_named(const struct classify_suspects *s, uint32_t proc);

/* ---- knot.c ---- */

/* Knots: components of several nodes that depend on nothing else. */
void classify_knot(struct classify *c, uint32_t component);

#endif
