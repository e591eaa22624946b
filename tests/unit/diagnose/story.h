/*
 * Traces from a story: a few lines say what each rank of a small job did, the writer turns
 * it into .frec files, job loading and diagnosis read them back.
 *
 * A line is [repeat N] RANKS VERB ARGUMENT…; RANKS is a list (0-2,5), * for all, or * with exceptions
 * (*-3). Each line happens 1 ms after the one before. Verbs:
 *
 *   init C [of LIST] [nranks N]   joins communicator C; a call that never returns when "of" names
 *                                 more members than called (those of one line)
 *   split P C      child C of P with these ranks;     nocolor P     the call alone
 *   insplit P      inside CommSplit of P for ever;    shrink P C [abort]
 *   inshrink P N   inside CommShrink of P without N ranks for ever
 *   ar|ag|rs|bc|a2a|ga C COUNT [dtype] [redop] [root N] [stream N] [thread N] [failed] [open]
 *   … started|done   the GPU was seen to begin, to end it
 *   … failed|broken  NCCL refused it with InvalidArgument, RemoteError
 *   send|recv C PEER COUNT [dtype] [stream N] [thread N]      PEER is a comm rank
 *   signal C PEER | await C PEER COUNT    [index N] [context N] [untold]: as before 1.4
 *   await C -1 COUNT several          one wait for several signals, each told by: await C PEER COUNT … part
 *   gpu N          the GPU has left the first N launches and begun the next one, if there is one
 *   {   } [failed] a group;          }open   inside its GroupEnd for ever
 *   capture [G] … before an op: captured into graph number G; without, launches are not seen
 *   replay G       launches it
 *   destroy|finalize|abort C          in finalize|destroy C   for ever inside
 *   window|devcomm C [failed] [open]  registers a window, makes a device communicator
 *   async C RESULT                    an asynchronous error is reported
 *   loop N ( LINE, LINE … )           all of it N times; rank lists inside may have no commas
 *   wait MS                           time passes (for all)
 *   lose | record                     records are lost from here, kept again
 *   exit STATUS    dies SIGNAL    stops   (no sign of life from here)
 *   clock MS                          its clock is so much ahead (8 ranks share a host)
 *   torn                              its file is cut off soon after here
 *   behind                            its file ends here, in one piece, though it goes on
 *   notrace                           its file is deleted
 *   unreadable                        its file is found, but cannot be read any more
 * At the end all that still run leave a last heartbeat.
 */
#ifndef STORY_H
#define STORY_H

#include "rec/verdict.h"

struct story {
    char dir[64];
    struct rec_job *job;
    struct rec_verdict *verdict;
};

/* Fails the running test when the story makes no sense or cannot be analyzed. */
void story_tell(struct story *story, int nranks, const char *text);
void story_end(struct story *story);

/* The verdict's culprits, folded; the buffer is reused. */
const char *story_culprits(const struct story *story);
/* No finding but notes may blame one of these ranks. */
void story_expect(int nranks, const char *text, const char *type, const char *culprits, const char *innocent);
/* Beside the verdict there is such a finding. */
void story_expect_also(int nranks, const char *text, const char *type, const char *culprits);
/* How sure the verdict is, and whom it suspects beside its culprits. */
void story_expect_doubt(int nranks, const char *text, const char *confidence, const char *culprits,
                        const char *suspects);
/* Ranks of a list as in stories; returns how many. */
int story_ranks(const char *text, int nranks, int *ranks);
/* Summary and evidence of the verdict contain the words. */
void story_expect_words(int nranks, const char *text, const char *words);

#endif
